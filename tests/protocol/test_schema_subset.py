"""The JSON Schema subset against a library that knows all of it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, SchemaError

from libs.protocol import schema_subset as schema

# Lengths differ above the BMP: there the subset counts UTF-16 units, as its users' language does.
TEXT = st.text(st.characters(max_codepoint=0xD7FF), max_size=4)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([1.0, -0.0, 0.5, 2**70, 1e300, "", "ab"])
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(NAMES | TEXT, v, max_size=3), max_leaves=8
)
COUNTS = st.integers(0, 3)


def keywords(inner: st.SearchStrategy[Any], **more: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    kinds = st.sampled_from(schema.TYPES)
    optional: dict[str, st.SearchStrategy[Any]] = {
        "type": kinds | st.lists(kinds, min_size=1, max_size=3, unique=True),
        "description": TEXT,
        "properties": st.dictionaries(NAMES, inner, max_size=3),
        "required": st.lists(NAMES, unique=True, max_size=2),
        "additionalProperties": st.booleans() | inner,
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "minLength": COUNTS,
        "maxLength": COUNTS,
        "minimum": st.integers(-2, 2) | st.floats(-2, 2),
        "maximum": st.integers(-2, 2) | st.floats(-2, 2),
        "items": inner,
        "minItems": COUNTS,
        "maxItems": COUNTS,
    }
    return st.fixed_dictionaries({}, optional={**optional, **more})


SCHEMAS = st.recursive(keywords(st.just({})), keywords, max_leaves=4)
OBJECTS = keywords(SCHEMAS, type=st.just("object"))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[dict[str, Any], Any]:
    """A schema, and a value that now and then is of its enum."""
    wanted = draw(SCHEMAS)
    nearby = st.sampled_from(wanted["enum"]) if wanted.get("enum") else VALUES
    return wanted, draw(VALUES | nearby)


@given(pairs())
@settings(max_examples=150, deadline=None)
def test_the_same_values_are_valid(pair: tuple[dict[str, Any], Any]) -> None:
    wanted, value = pair
    assert (schema.errors(value, wanted) == []) == Draft202012Validator(wanted).is_valid(value)


@given(OBJECTS)
@settings(max_examples=150, deadline=None)
def test_schemas_of_the_subset_are_taken(wanted: dict[str, Any]) -> None:
    assert schema.refusals(wanted) == []
    Draft202012Validator.check_schema(wanted)


@given(keywords(SCHEMAS, **dict.fromkeys(sorted(schema._KEYWORDS), VALUES)), VALUES)
@settings(max_examples=120, deadline=None)
def test_what_is_taken_is_a_schema_and_judges_every_value(wanted: dict[str, Any], value: Any) -> None:
    before = copy.deepcopy(wanted)
    if schema.refusals(wanted):
        return
    unique = {**wanted, **{k: sorted(set(wanted[k])) for k in ("required",) if k in wanted}}
    if isinstance(unique.get("type"), list):
        unique["type"] = sorted(set(unique["type"]))
    Draft202012Validator.check_schema(unique)
    schema.errors(value, wanted)
    assert wanted == before


@given(VALUES)
@settings(max_examples=100, deadline=None)
def test_nothing_that_is_no_schema_breaks_the_check(value: Any) -> None:
    assert schema.refusals(value) or isinstance(value, dict)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ([], "$: a schema must be an object"),
        ({"type": "array"}, "$: the root must be an object"),
        ({"oneOf": []}, "$: keyword oneOf is not supported"),
        ({"properties": {"a": {"type": "text"}}}, "$.a: unknown type text"),
        ({"properties": {"a": {"minLength": None}}}, "$.a: minLength must be a non-negative integer"),
        ({"required": None}, "$: required must be a list of names"),
        ({"properties": {"a": {"items": {"minimum": "1"}}}}, "$.a[]: minimum must be a number"),
        ({"additionalProperties": None}, "$.*: a schema must be an object"),
        ({"type": []}, "$: type must name a type"),
    ],
)
def test_refusals_say_where_and_why(wanted: Any, why: str) -> None:
    assert schema.refusals(wanted)[0] == why


def test_a_schema_has_an_end() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"items": deep}
    assert "nested too deeply" in schema.refusals(deep)[0]
    with pytest.raises(SchemaError):
        Draft202012Validator.check_schema({"items": 1})


@pytest.mark.parametrize(
    ("value", "wanted", "message"),
    [
        ("x", {"type": "integer"}, "$: expected integer, got string"),
        (1, {"type": ["string", "null"]}, "$: expected string or null, got number"),
        (True, {"enum": [1, "a"]}, '$: expected one of [1,"a"]'),
        ("a", {"minLength": 2}, "$: string shorter than minLength 2"),
        ("\U0001f600", {"maxLength": 1}, "$: string longer than maxLength 1"),
        (0, {"minimum": 0.5}, "$: number below minimum 0.5"),
        (2, {"maximum": 1}, "$: number above maximum 1"),
        ([], {"minItems": 1}, "$: array shorter than minItems 1"),
        ([1, 2], {"maxItems": 1}, "$: array longer than maxItems 1"),
        ({}, {"required": ["a"]}, "$.a: required property is missing"),
        ({"a": [{"b": 1}]}, {"properties": {"a": {"items": {"additionalProperties": False}}}},
         "$.a[0].b: property is not allowed"),
    ],
)  # fmt: skip
def test_errors_say_where_and_what(value: Any, wanted: Any, message: str) -> None:
    assert schema.errors(value, wanted) == [message]
