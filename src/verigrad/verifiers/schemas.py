"""JSON Schema, with an end to its patience and decimals as they are written.

Validation is that of the ``jsonschema`` package but for two kinds of keyword: patterns are matched
with a limit of time, because they may backtrack, and ``multipleOf`` counts in decimals, in which
0.3 is a multiple of 0.1.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

from verigrad.errors import ConfigError, UserError
from verigrad.verifiers.extras import extra
from verigrad.verifiers.patterns import matches


def check_schema(schema: Any, error_class: type[UserError]) -> None:
    """Refuse what is no JSON Schema.

    Raises:
        error_class: it is none.
    """
    jsonschema = extra("jsonschema")
    if not isinstance(schema, Mapping | bool):
        raise error_class(f"the schema is {schema!r:.80}; expected a table")
    try:
        jsonschema.validators.validator_for(schema).check_schema(schema)
    except jsonschema.SchemaError as error:
        place = "/".join(map(str, error.absolute_path)) or "the top"
        raise error_class(
            f"the JSON schema is not valid at {place}: {error.message:.120}"
        ) from None


def violation(value: Any, schema: Any) -> str:
    """How a value breaks a schema, or nothing.

    Raises:
        ConfigError: the schema refers to another document.
        VerigradError: a pattern of the schema takes too long on this value.
    """
    jsonschema, referencing = extra("jsonschema"), extra("referencing")
    kind = _patient(jsonschema.validators.validator_for(schema))
    # An empty registry: what a schema refers to outside itself is never fetched.
    validator = kind(schema, registry=referencing.Registry())
    try:
        error = jsonschema.exceptions.best_match(validator.iter_errors(value))
    except referencing.exceptions.Unresolvable as missing:
        raise ConfigError(
            f"the JSON schema refers to {missing.ref!r}, which is not in it"
        ) from None
    if error is None:
        return ""
    return f"at {'/'.join(map(str, error.absolute_path)) or 'the top'}: {error.message:.120}"


@cache
def _patient(kind: Any) -> Any:
    """A validator of a draft, with keywords of ours."""
    return extra("jsonschema").validators.extend(
        kind,
        {
            "multipleOf": _multiple_of,
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
        },
    )


def _broken(message: str) -> Any:
    return extra("jsonschema").ValidationError(message)


def _multiple_of(validator: Any, unit: float, value: Any, _schema: Any) -> Iterator[Any]:
    if validator.is_type(value, "number") and Fraction(str(value)) % Fraction(str(unit)):
        yield _broken(f"{value!r} is not a multiple of {unit}")


def _pattern(validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[Any]:
    if validator.is_type(value, "string") and not _found(pattern, value):
        yield _broken(f"{value!r:.60} does not match {pattern!r}")


def _pattern_properties(validator: Any, parts: Any, value: Any, _schema: Any) -> Iterator[Any]:
    if not validator.is_type(value, "object"):
        return
    for pattern, part in parts.items():
        for name, each in value.items():
            if _found(pattern, name):
                yield from validator.descend(each, part, path=name, schema_path=pattern)


def _additional_properties(validator: Any, part: Any, value: Any, schema: Any) -> Iterator[Any]:
    if not validator.is_type(value, "object"):
        return
    known = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    for name, each in value.items():
        if name in known or any(_found(pattern, name) for pattern in patterns):
            continue
        if part is False:
            yield _broken(f"the name {name!r:.60} is not allowed")
        else:
            yield from validator.descend(each, part, path=name)


def _found(pattern: str, text: str) -> bool:
    return matches(pattern, text, "search", "")
