"""What all wire types share: camelCase names on the wire, absent optional keys left out."""

from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

Json: TypeAlias = Any
"""Any value the schema leaves open."""

OpenMap: TypeAlias = dict[str, Any]
"""A map with keys the schema leaves open."""


class Wire(msgspec.Struct, kw_only=True, rename="camel"):
    """A map of the schema. Keys it does not know are ignored; a field that is UNSET is not written."""


class Action(Wire, kw_only=True, tag=True, tag_field="_"):
    """A request. Its `_` is the class name."""

    ts: int | float | UnsetType = UNSET
    """The signed client clock, epoch milliseconds; signing sets it."""


class Response(Wire, kw_only=True, tag=True, tag_field="_"):
    """An answer. Its `_` is the class name."""
