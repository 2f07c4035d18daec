"""DAG-JSON, the readable form of DAG-CBOR: bytes as `{"/": {"bytes": base64}}`, links as `{"/": cid}`."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from libs.wire import CidError, Link


def loads(text: str) -> Any:
    """The value in DAG-JSON text. Raises ValueError."""
    return json.loads(text, object_hook=_from_object)


def dumps(value: Any, indent: int | None = 2) -> str:
    """DAG-JSON text of a decoded DAG-CBOR value."""
    return json.dumps(_plain(value), indent=indent, ensure_ascii=False)


def _from_object(value: dict[str, Any]) -> Any:
    if value.keys() != {"/"}:
        return value
    inner = value["/"]
    try:
        if isinstance(inner, str):
            return Link.parse(inner)
        if isinstance(inner, dict) and inner.keys() == {"bytes"} and isinstance(inner["bytes"], str):
            text = inner["bytes"]
            return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (CidError, binascii.Error) as e:
        raise ValueError(f'bad {{"/": …}} value: {e}') from e
    raise ValueError('{"/": …} holds {"bytes": base64} or the text of a CID')


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(x) for key, x in value.items()}
    if isinstance(value, list):
        return [_plain(x) for x in value]
    if isinstance(value, bytes):
        return {"/": {"bytes": base64.b64encode(value).decode().rstrip("=")}}
    if isinstance(value, Link):
        return {"/": str(value)}
    return value
