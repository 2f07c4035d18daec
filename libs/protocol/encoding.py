"""From typed values to what travels: plain builtins, DAG-CBOR answers, JSON frames."""

import base64
import math
from typing import Any, Final

import msgspec

from libs.wire import MAX_SAFE_INTEGER, Link, encode

from .base import Wire
from .ws import WsAgentChange, WsRunChange

_AS_THEY_ARE: Final = (bytes, Link)
_HOLD_OPEN_VALUES: Final = (WsAgentChange, WsRunChange)
_MAX_INDEXED_BYTES: Final = 1 << 16


def to_wire(value: Any) -> Any:
    """Dicts, lists and scalars with wire names; UNSET fields are gone, bytes and links stay what they are."""
    return msgspec.to_builtins(value, builtin_types=_AS_THEY_ARE)


def encode_response(response: Wire) -> bytes:
    """The DAG-CBOR of an answer. Raises `libs.wire.EncodeError` when an open value in it has no DAG-CBOR form."""
    return encode(to_wire(response))


def ws_json(event: Wire) -> bytes:
    """The JSON of a WebSocket event, UTF-8. Open values in it are made JSON-safe; `Raw` fields are spliced in."""
    if not isinstance(event, _HOLD_OPEN_VALUES):
        try:
            return msgspec.json.encode(event)
        except UnicodeEncodeError:
            pass
    return msgspec.json.encode(json_safe(_keeping_raw(event)))


def json_safe(value: Any) -> Any:
    """The value as JSON can hold it, the way a JavaScript peer writes it.

    Integers beyond 2^53-1 become decimal text, numbers that are not finite None, lone surrogates U+FFFD. Bytes become
    an object of their values by index (over 64 KiB `{"/": {"bytes": base64}}`, to bound the growth), links
    `{"/": cid}`.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _well_formed(value)
    if isinstance(value, int):
        return value if abs(value) <= MAX_SAFE_INTEGER else str(value)
    if isinstance(value, float):
        return _json_number(value)
    if isinstance(value, dict):
        return {_well_formed(str(key)): json_safe(x) for key, x in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(x) for x in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _json_bytes(bytes(value))
    if isinstance(value, Link):
        return {"/": str(value)}
    if isinstance(value, msgspec.Raw):
        return value
    return json_safe(to_wire(value))


def json_bytes(value: Any) -> bytes:
    """Compact JSON, UTF-8, of `json_safe(value)`: the form in which event payloads are stored."""
    return msgspec.json.encode(json_safe(value))


def _keeping_raw(event: Wire) -> Any:
    return msgspec.to_builtins(event, builtin_types=(*_AS_THEY_ARE, msgspec.Raw))


def _json_number(value: float) -> int | float | None:
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) <= MAX_SAFE_INTEGER else value


def _json_bytes(value: bytes) -> dict[str, Any]:
    if len(value) > _MAX_INDEXED_BYTES:
        return {"/": {"bytes": base64.b64encode(value).decode().rstrip("=")}}
    return {str(i): byte for i, byte in enumerate(value)}


def _well_formed(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
