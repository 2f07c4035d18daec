"""The JSON Schema subset of tool contracts and typed results (runtime.md, section 5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .encoding import json_bytes

TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
_KEYWORDS = frozenset(
    (
        "type",
        "description",
        "properties",
        "required",
        "additionalProperties",
        "enum",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "items",
        "minItems",
        "maxItems",
    )
)
_DEPTH = 32


def refusals(schema: Any) -> list[str]:
    """Why a schema is not of the subset: `<path>: <why>` for each fault; empty when it is fine.

    The root must be of type object or untyped.
    """
    faults = list(_refusals(schema, "$", 0))
    if not faults and schema.get("type", "object") != "object":
        faults.append("$: the root must be an object")
    return faults


def _refusals(schema: Any, path: str, depth: int) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        yield f"{path}: a schema must be an object"
        return
    if depth > _DEPTH:
        yield f"{path}: nested too deeply"
        return
    for key in schema:
        if key not in _KEYWORDS:
            yield f"{path}: keyword {key} is not supported"
    if "type" in schema:
        kinds = schema["type"]
        if kinds == []:
            yield f"{path}: type must name a type"
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            if kind not in TYPES:
                yield f"{path}: unknown type {kind}"
    if not isinstance(schema.get("description", ""), str):
        yield f"{path}: description must be text"
    for name in ("minLength", "maxLength", "minItems", "maxItems"):
        value = schema.get(name, 0)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            yield f"{path}: {name} must be a non-negative integer"
    for name in ("minimum", "maximum"):
        if name in schema and not _number(schema[name]):
            yield f"{path}: {name} must be a number"
    required = schema.get("required", [])
    if not (isinstance(required, list) and all(isinstance(x, str) for x in required)):
        yield f"{path}: required must be a list of names"
    if "enum" in schema and not isinstance(schema["enum"], list):
        yield f"{path}: enum must be a list"
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        yield f"{path}: properties must be an object"
    else:
        for name, value in properties.items():
            yield from _refusals(value, f"{path}.{name}", depth + 1)
    extra = schema.get("additionalProperties", True)
    if not isinstance(extra, bool):
        yield from _refusals(extra, f"{path}.*", depth + 1)
    if "items" in schema:
        yield from _refusals(schema["items"], f"{path}[]", depth + 1)


def errors(value: Any, schema: Mapping[str, Any]) -> list[str]:
    """Where a value departs from a schema of the subset: `<path>: <message>`, in document order."""
    return [f"{path}: {message}" for path, message in _errors(value, schema, "$")]


def _errors(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    kinds = schema.get("type")
    if kinds is not None:
        wanted: Sequence[str] = kinds if isinstance(kinds, list) else [kinds]
        if not any(_is(value, kind) for kind in wanted):
            yield path, f"expected {' or '.join(wanted)}, got {_kind(value)}"
            return
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        yield path, f"expected one of {json_bytes(schema['enum']).decode()}"
        return
    if isinstance(value, str):
        # Lengths are those of JavaScript strings.
        length = len(value.encode("utf-16-le", "surrogatepass")) // 2
        yield from _bounds(length, schema, path, "minLength", "maxLength", "string shorter than", "string longer than")
    elif _number(value):
        yield from _bounds(value, schema, path, "minimum", "maximum", "number below", "number above")
    elif isinstance(value, list):
        yield from _bounds(len(value), schema, path, "minItems", "maxItems", "array shorter than", "array longer than")
        if "items" in schema:
            for n, item in enumerate(value):
                yield from _errors(item, schema["items"], f"{path}[{n}]")
    elif isinstance(value, Mapping):
        yield from _object(value, schema, path)


def _object(value: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name}", "required property is missing"
    properties = schema.get("properties", {})
    extra = schema.get("additionalProperties", True)
    for name, item in value.items():
        if name in properties:
            yield from _errors(item, properties[name], f"{path}.{name}")
        elif extra is False:
            yield f"{path}.{name}", "property is not allowed"
        elif isinstance(extra, Mapping):
            yield from _errors(item, extra, f"{path}.{name}")


def _bounds(
    value: float, schema: Mapping[str, Any], path: str, low: str, high: str, below: str, above: str
) -> Iterator[tuple[str, str]]:
    if low in schema and value < schema[low]:
        yield path, f"{below} {low} {schema[low]}"
    if high in schema and value > schema[high]:
        yield path, f"{above} {high} {schema[high]}"


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(one: Any, other: Any) -> bool:
    # Unlike in Python, true and 1 are different values in JSON, on any level; 1 and 1.0 are not.
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(item, other[name]) for name, item in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


def _is(value: Any, kind: str) -> bool:
    return {
        "string": isinstance(value, str),
        "number": _number(value),
        "integer": _number(value) and (isinstance(value, int) or value.is_integer()),
        "boolean": isinstance(value, bool),
        "object": isinstance(value, Mapping),
        "array": isinstance(value, list),
        "null": value is None,
    }.get(kind, False)


def _kind(value: Any) -> str:
    for kind in ("null", "boolean", "string", "array", "object"):
        if _is(value, kind):
            return kind
    return "number"
