"""Columns that are read together, and what their rows become on the wire inside."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa
from seed.triggers.v1 import triggers_pb2 as pb

from libs.richtext import blocks_to_markdown
from libs.store import Row, param


def text(name: str) -> sa.BindParameter[Any]:
    """A text parameter."""
    return param(name, sa.Text)


def binary(name: str) -> sa.BindParameter[Any]:
    """A document parameter."""
    return param(name, sa.LargeBinary)


NOW = param("now")

_OPTIONAL = ("merged_into", "last_checked_at", "last_fired_at", "last_error")


def trigger_of(row: Row) -> pb.Trigger:
    """The message of a trigger row."""
    trigger = pb.Trigger(
        id=row["id"],
        account=row["account"],
        agent_id=row["agent_id"],
        name=row["name"],
        enabled=row["enabled"],
        source=row["source"],
        prompt=row["prompt"],
        continuation=row["continuation"] or b"",
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        prompt_markdown=blocks_to_markdown(msgspec.json.decode(row["prompt"])),
    )
    for name in _OPTIONAL:
        if (value := row[name]) is not None:
            setattr(trigger, name, value)
    return trigger


def firing_of(row: Row) -> pb.Firing:
    """The message of a firing row."""
    firing = pb.Firing(
        id=row["id"],
        status=row["status"],
        fired_at=row["fired_at"],
        activity_summary=row["summary"],
        matched_conditions=row["matched"] or b"",
    )
    for name in ("session_id", "error", "activity_key"):
        if (value := row[name]) is not None:
            setattr(firing, name, value)
    return firing
