"""JSON as the answer: strictly read, alone or in prose, against a schema or a value."""

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


@pytest.mark.parametrize("schema", [{"type": "strng"}, {"minimum": "x"}, [1], "object"])
def test_a_schema_that_is_none_is_refused_where_it_is_given(schema: Any) -> None:
    with pytest.raises(ConfigError, match="schema"):
        Json(schema=schema)
    assert verify(Json(reference_is="schema"), "{}", schema).status is Status.FAILED


def test_a_schema_is_never_fetched_from_elsewhere() -> None:
    verdict = verify(Json(schema={"$ref": "http://example.com/a.json"}), "{}", {})
    assert verdict.status is Status.FAILED
    assert "refers to 'http://example.com/a.json'" in verdict.detail
