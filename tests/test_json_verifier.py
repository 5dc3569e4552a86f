"""JSON as the answer: strictly read, alone or in prose, against a schema or a value."""

import time
from typing import Any

import pytest

from verigrad.errors import ConfigError
from verigrad.types import Status
from verigrad.verifiers import Json, verify

NUMBER_SCHEMA = {
    "type": "object",
    "required": ["n"],
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 10}},
}


def reward(verifier: Any, completion: str, reference: Any = None) -> float | None:
    return verify(verifier, completion, reference).reward


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ('{"n": 3}', 1.0),
        (' {"n": 3.0}\n', 1.0),
        ('\N{BYTE ORDER MARK}{"n": 3}', 1.0),
        ('<think>{"n": 99}</think>{"n": 3}', 1.0),
        ('{"n": 3} and', 0.0),
        ('```json\n{"n": 3}\n```', 0.0),
        ('{"n": 3,}', 0.0),
        ('{"n": 3, "n": 3}', 0.0),
        ('{"n": 3, "a": {"b": 1, "b": 1}}', 0.0),
        ('{"n": NaN}', 0.0),
        ('{"n": 1e999}', 0.0),
        ('{"n": true}', 0.0),
        ('{"n": "3"}', 0.0),
        ('"{\\"n\\": 3}"', 0.0),
        ('{"n": ' + "1" * 6000 + "}", 0.0),
        ('{"a":' * 3000 + "1" + "}" * 3000, 0.0),
        ("[" * 100_000, 0.0),
        ("", 0.0),
    ],
    ids=lambda value: str(value)[:30],
)
def test_json_is_taken_strictly(completion: str, expected: float) -> None:
    assert reward(Json(schema=NUMBER_SCHEMA, reference_is="unused"), completion) == expected


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ('Here:\n```json\n{"n": 3}\n```\nok?', 1.0),
        ('For example {"n": 99}.\n```\n{"n": 3}\n```', 1.0),
        ('Of {these}, I get {"n": 3} [1]', 1.0),
        ('{"n": 3}', 1.0),
        ('{"n": 1} or {"n": 2}', 0.0),
        ('{"n": 1}, I say {"n": 1}', 1.0),
        ('all: [{"n": 3}]', 0.0),
        ('{"a": {"n": 3}, "b":', 0.0),
        ('```json\n{"n": 3\n```\n{"n": 3}', 0.0),
        ("{" * 100_000, 0.0),
        ('{"a":' * 20_000, 0.0),
        ("none", 0.0),
        ("```json\n" * 25_000, 0.0),
        ('```json\r\n{"n": 3}\r\n```\r\n', 1.0),
        ('```python\nx = {"n": 9}\n```\n```json\n{"n": 3}\n```', 1.0),
    ],
    ids=lambda value: str(value)[:30],
)
def test_json_in_prose_is_the_fenced_block_or_the_only_object(
    completion: str, expected: float
) -> None:
    verifier = Json(schema=NUMBER_SCHEMA, extract=True, reference_is="unused")
    assert reward(verifier, completion) == expected


@pytest.mark.parametrize(
    ("completion", "reference", "expected"),
    [
        ('{"b": 2, "a": 1.0}', {"a": 1, "b": 2}, 1.0),
        ('{"a": true}', {"a": 1}, 0.0),
        ('{"a": 1}', {"a": True}, 0.0),
        ("[2, 1]", [1, 2], 0.0),
        ('{"a": null}', {}, 0.0),
        ("null", None, 1.0),
        ("0", False, 0.0),
        ('"x"', "x", 1.0),
        ("[]", {}, 0.0),
    ],
)
def test_json_values_are_equal_as_json(completion: str, reference: Any, expected: float) -> None:
    assert reward(Json(), completion, reference) == expected


@pytest.mark.parametrize(
    ("schema", "completion", "expected"),
    [
        ({"multipleOf": 0.01}, "19.99", 1.0),
        ({"multipleOf": 0.01}, "19.999", 0.0),
        ({"multipleOf": 0.1}, "0.3", 1.0),
        ({"multipleOf": 2}, "3", 0.0),
        ({"pattern": "^a"}, '"ab"', 1.0),
        ({"pattern": "^a"}, '"ba"', 0.0),
        ({"patternProperties": {"^x": {"type": "integer"}}}, '{"x1": "a"}', 0.0),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, '{"x1": 1}', 1.0),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, '{"y": 1}', 0.0),
        ({"additionalProperties": {"type": "string"}}, '{"y": 1}', 0.0),
        ({"properties": {"y": {}}, "additionalProperties": False}, '{"y": 1}', 1.0),
    ],
)
def test_a_schema_is_fulfilled_or_not(schema: Any, completion: str, expected: float) -> None:
    assert reward(Json(schema=schema, reference_is="unused"), completion) == expected


@pytest.mark.parametrize(
    ("schema", "completion"),
    [
        ({"pattern": "^(a+)+$"}, '"' + "a" * 60 + '!"'),
        ({"patternProperties": {"^(a+)+$": False}, "required": ["b"]}, '{"' + "a" * 60 + '!": 1}'),
        (
            {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
            '{"' + "a" * 60 + '!": 1}',
        ),
    ],
    ids=["pattern", "patternProperties", "additionalProperties"],
)
def test_a_pattern_of_a_schema_that_backtracks_is_decided_in_time(
    schema: Any, completion: str
) -> None:
    start = time.process_time()
    assert reward(Json(schema=schema, reference_is="unused"), completion) == 0.0
    assert time.process_time() - start < 4


def test_json_nested_very_deep_is_no_answer_whatever_walks_it() -> None:
    tree = {"$defs": {"t": {"properties": {"a": {"$ref": "#/$defs/t"}}}}, "$ref": "#/$defs/t"}
    for depth, status in ((60, Status.SCORED), (70, Status.UNPARSABLE), (900, Status.UNPARSABLE)):
        completion = '{"a":' * (depth - 1) + "{}" + "}" * (depth - 1)
        verdict = verify(Json(schema=tree, reference_is="unused"), completion, None)
        assert verdict.status is status, depth


@pytest.mark.parametrize("reference", [float("nan"), {"a": [float("inf")]}, {1, 2}])
def test_a_reference_that_is_no_json_is_a_failure_that_says_so(reference: Any) -> None:
    verdict = verify(Json(), '{"a": 1}', reference)
    assert verdict.status is Status.FAILED
    assert "no JSON value" in verdict.detail


@pytest.mark.parametrize("schema", [{"type": "strng"}, {"minimum": "x"}, [1], "object"])
def test_a_schema_that_is_none_is_refused_where_it_is_given(schema: Any) -> None:
    with pytest.raises(ConfigError, match="schema"):
        Json(schema=schema)
    assert verify(Json(reference_is="schema"), "{}", schema).status is Status.FAILED


def test_a_schema_is_never_fetched_from_elsewhere() -> None:
    verdict = verify(Json(schema={"$ref": "http://example.com/a.json"}), "{}", {})
    assert verdict.status is Status.FAILED
    assert "refers to 'http://example.com/a.json'" in verdict.detail
