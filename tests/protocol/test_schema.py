"""Unit: every wire type, encoded, is valid against the schema, and every rule of the schema has its type."""

import json
import re
from functools import cache
from pathlib import Path

import msgspec
import pycddl
import pytest

from libs.protocol import encode_response, to_wire, ws_json
from libs.protocol.base import Wire
from libs.wire import decode, encode
from tests.protocol.samples import all_wire_types, samples

SCHEMA = (Path(__file__).parents[2] / "proto" / "agents.cddl").read_text()
RULES = re.findall(r"^([A-Za-z][A-Za-z-]*) =", SCHEMA, re.MULTILINE)
TYPES = all_wire_types()

RULE_OF = {
    "NewThread": "TriggerContinuation",
    "Wake": "TriggerContinuation",
    "MemoryUploadTarget": "FileUploadTarget",
    "AttachmentUploadTarget": "FileUploadTarget",
    # The checker tries only the first group of a choice between groups, so each is named.
    "TextPart": "{ textPart }",
    "ContextPart": "{ contextPart }",
    "AttachmentPart": "{ attachmentPart }",
    "TypedResultObligation": "UnmetObligation",
    "PlanObligation": "UnmetObligation",
    "UserMentionSourceInput": "AgentTriggerSourceInput",
    "Error": "ErrorResponse",
}
"""Rule of a type that the schema knows under another name."""

PARTS = {
    "AgentActivityConditionInput", "ChildrenUsage", "JournalError", "WsSessionEvent", "SessionPatch", "AccountHint",
    "RunProgress", "RunPatch", "WebTools",
}  # fmt: skip
"""Types that the schema writes inline; the types that hold them are checked."""

NO_STRUCT = {
    *("agents-message", "Principal", "Signature", "AccountId", "Num", "Ms", "Id", "Seq", "Cid", "Json", "SchemaMap"),
    *("OpenMap", "stamp", "triggerSummary", "usageCounts", "journalHead", "textPart", "contextPart", "attachmentPart"),
    *("MessageSessionContentPart", "LegacyUserMentionSource", "PlainError", "ProtocolTooOldError"),
}
"""Rules that are scalars, groups, or covered by a wider type."""


@cache
def rule(name: str) -> pycddl.Schema:
    return pycddl.Schema(f"root = {name}\n{SCHEMA}")


def fix_mentions(wire: object) -> object:
    """The schema takes either form of a user mention, never both: keep the modern one."""
    if isinstance(wire, dict):
        kept = {k: fix_mentions(v) for k, v in wire.items()}
        if "mentionedAccounts" in kept:
            kept.pop("mentionedAccount", None)
        elif kept.get("type") == "user-mention":
            kept.setdefault("mentionedAccount", "z")
        return kept
    return [fix_mentions(x) for x in wire] if isinstance(wire, list) else wire


CHECKED = [name for name in TYPES if name not in PARTS]


@pytest.mark.parametrize("name", CHECKED)
def test_type_is_valid_against_its_rule(name: str):
    for value in samples(TYPES[name]):
        if name.startswith("Ws"):
            wire = json.loads(ws_json(value))
        else:
            wire = fix_mentions(to_wire(value))
        rule(RULE_OF.get(name, name)).validate_cbor(encode(wire))


@pytest.mark.parametrize("name", [n for n in CHECKED if not n.startswith("Ws")])
def test_type_reads_back_what_it_wrote(name: str):
    for value in samples(TYPES[name]):
        assert msgspec.convert(decode(encode_response(value)), TYPES[name], builtin_types=(bytes,)) == value


def test_every_rule_has_a_type():
    aliases = {name for name in RULES if name not in TYPES and name not in NO_STRUCT and name not in RULE_OF.values()}
    for name in aliases:
        body = re.search(rf"^{re.escape(name)} =([^;]*?)(?=^\S|\Z)", SCHEMA, re.MULTILINE)
        assert body is not None, name
        assert not body[1].lstrip().startswith("{"), f"{name} is a map without a type"


def test_every_type_has_a_rule():
    for name in CHECKED:
        assert RULE_OF.get(name, name).strip("{} ") in RULES or name in ("TextPart", "ContextPart", "AttachmentPart")


def test_samples_are_not_vacuous():
    assert len(CHECKED) > 200
    assert sum(len(samples(TYPES[name])) for name in CHECKED) > 500


def test_schema_rejects_what_is_wrong():
    wire = to_wire(samples(TYPES["AgentInfo"])[0])
    for wrong in ({**wire, "surplus": 1}, {**wire, "status": "asleep"}, {k: v for k, v in wire.items() if k != "id"}):
        with pytest.raises(pycddl.ValidationError):
            rule("AgentInfo").validate_cbor(encode(wrong))


@pytest.mark.parametrize("kind", TYPES.values(), ids=lambda k: k.__name__)
def test_wire_names_are_camel_case_of_the_field_names(kind: type[Wire]):
    for field in msgspec.structs.fields(kind):
        words = field.name.split("_")
        assert field.encode_name == words[0] + "".join(w.capitalize() for w in words[1:])
