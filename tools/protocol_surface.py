"""The public surface as one file, and whether a change of it breaks a client.

`python tools/protocol_surface.py` writes proto/surface.json from libs/protocol, `--check` says whether that file is
current, `--against REF` compares it with the one of a commit. A breaking change needs a higher PROTOCOL_VERSION and a
line of CHANGELOG.md that names it, `protocol <n>`.

What a client sends may be taken in more forms than before; what it is sent may come in fewer. New actions, answers and
events, new fields of answers, and new optional fields of requests are compatible (envelope.md, section 5).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from msgspec import NODEFAULT, UNSET, inspect

from libs.protocol import (
    ACTIONS,
    ANSWERS,
    MIN_CLIENT_PROTOCOL,
    MUTATING,
    PROTOCOL_VERSION,
    RESPONSES,
    WsEvent,
)
from libs.protocol.routes import HealthJson, VersionJson
from libs.protocol.signed import CapabilityBlob, SignedActionEnvelope

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "proto" / "surface.json"
CHANGES = ROOT / "CHANGELOG.md"

Surface = dict[str, Any]
Type = list[Any]
"""The forms a value may have: a name, a quoted literal, or `{"list": Type}`, `{"map": Type}`."""

_PLAIN = {
    inspect.AnyType: "any",
    inspect.RawType: "any",
    inspect.BoolType: "bool",
    inspect.BytesType: "bytes",
    inspect.FloatType: "float",
    inspect.IntType: "int",
    inspect.NoneType: "null",
    inspect.StrType: "text",
}
_SENT = ("actions", "signed")
_ANSWERED = ("answers", "events", "routes")


class _Inventory:
    """Collects the named types that fields refer to."""

    def __init__(self) -> None:
        self.types: dict[str, Any] = {}
        self._classes: dict[str, type] = {}

    def fields(self, info: inspect.Type) -> dict[str, Any]:
        """The fields of a struct."""
        assert isinstance(info, inspect.StructType)
        return {
            f.encode_name: {
                "type": self._type(f.type),
                # A field with a default other than UNSET is always written.
                "required": f.required or f.default not in (NODEFAULT, UNSET),
            }
            for f in info.fields
        }

    def _type(self, info: inspect.Type) -> Type:
        forms: list[Any] = []
        for member in _members(info):
            forms += self._forms(member)
        return sorted({_key(f): f for f in forms}.values(), key=_key)

    def _forms(self, info: inspect.Type) -> Iterator[Any]:
        if isinstance(info, inspect.LiteralType):
            yield from (json.dumps(value) for value in info.values)
        elif isinstance(info, inspect.ListType | inspect.VarTupleType):
            yield {"list": self._type(info.item_type)}
        elif isinstance(info, inspect.DictType):
            yield {"map": self._type(info.value_type)}
        elif isinstance(info, inspect.StructType):
            yield self._named(info)
        else:
            yield _PLAIN[type(info)]

    def _named(self, info: inspect.StructType) -> str:
        name = info.cls.__name__
        known = self._classes.setdefault(name, info.cls)
        assert known is info.cls, f"two types are named {name}"
        if name not in self.types:
            self.types[name] = {}
            entry: dict[str, Any] = {"fields": self.fields(info)}
            if info.tag is not None:
                entry["tag"] = {str(info.tag_field): info.tag}
            self.types[name] = entry
        return name


def _members(info: inspect.Type) -> tuple[inspect.Type, ...]:
    return info.types if isinstance(info, inspect.UnionType) else (info,)


def _key(form: Any) -> str:
    return form if isinstance(form, str) else json.dumps(form, sort_keys=True)


def surface() -> Surface:
    """What libs/protocol says now."""
    inventory = _Inventory()

    def described(classes: Iterable[type]) -> dict[str, Any]:
        return {c.__name__: {"fields": inventory.fields(inspect.type_info(c))} for c in classes}

    actions = described(ACTIONS.values())
    for name, entry in actions.items():
        entry["mutating"] = name in MUTATING
        entry["answer"] = ANSWERS[name].__name__ if name in ANSWERS else None
    events: dict[str, Any] = {}
    for event in get_args(WsEvent):
        info = inspect.type_info(event)
        assert isinstance(info, inspect.StructType)
        events[event.__name__] = {"_": info.tag, "fields": inventory.fields(info)}
    found = {
        "protocol": PROTOCOL_VERSION,
        "minClientProtocol": MIN_CLIENT_PROTOCOL,
        "actions": actions,
        "answers": described(RESPONSES.values()),
        "events": events,
        "routes": described((HealthJson, VersionJson)),
        "signed": described((CapabilityBlob,)) | {"SignedActionEnvelope": _envelope(inventory)},
    }
    return found | {"types": inventory.types}


def _envelope(inventory: _Inventory) -> dict[str, Any]:
    # Its action is one of `actions`.
    fields = inventory.fields(inspect.type_info(SignedActionEnvelope))
    for name in ACTIONS:
        inventory.types.pop(name, None)
    return {"fields": {name: field for name, field in fields.items() if name != "action"}}


def breaking(old: Surface, new: Surface) -> list[str]:
    """What a client of the old surface would miss or get wrong in the new one, one line each."""
    found: list[str] = []
    if new["minClientProtocol"] > old["minClientProtocol"]:
        found.append(f"clients below protocol {new['minClientProtocol']} are refused")
    for part in (*_SENT, *_ANSWERED):
        for name, entry in old[part].items():
            now = new[part].get(name)
            if now is None:
                found.append(f"{part}: {name} is gone")
                continue
            found += _changed(f"{part}: {name}", entry["fields"], now["fields"], part in _SENT)
            found += [
                f"{part}: {name}: its {key} is another" for key in ("answer", "_") if entry.get(key) != now.get(key)
            ]
    for sent, parts in ((True, _SENT), (False, _ANSWERED)):
        for name in sorted(_reachable(old, parts)):
            now = new["types"].get(name)
            if now is None:
                continue  # whoever referred to it refers to something else now, which is found there
            before = old["types"][name]
            found += _changed(f"types: {name}", before["fields"], now["fields"], sent)
            if before.get("tag") != now.get("tag"):
                found.append(f"types: {name}: its tag is another")
    return list(dict.fromkeys(found))


def _changed(where: str, old: Mapping[str, Any], new: Mapping[str, Any], sent: bool) -> Iterator[str]:
    for name, before in old.items():
        now = new.get(name)
        if now is None:
            yield f"{where}.{name} is gone"
        elif not (_accepts(now["type"], before["type"]) if sent else _accepts(before["type"], now["type"])):
            yield f"{where}.{name} has another type"
        elif now["required"] and not before["required"] and sent:
            yield f"{where}.{name} is required now"
        elif before["required"] and not now["required"] and not sent:
            yield f"{where}.{name} may be absent now"
    if sent:
        yield from (f"{where}.{n} is new and required" for n, f in new.items() if n not in old and f["required"])


def _accepts(wide: Type, narrow: Type) -> bool:
    """Whether every value of `narrow` is one of `wide`."""
    return all(any(_covers(w, n) for w in wide) for n in narrow)


def _covers(wide: Any, narrow: Any) -> bool:
    if wide == narrow or wide == "any":
        return True
    if isinstance(wide, str) or isinstance(narrow, str):
        return wide == "text" and isinstance(narrow, str) and narrow.startswith('"')
    return wide.keys() == narrow.keys() and all(_accepts(wide[k], narrow[k]) for k in wide)


def _reachable(of: Surface, parts: Iterable[str]) -> set[str]:
    found: set[str] = set()
    waiting = [entry["fields"] for part in parts for entry in of[part].values()]
    while waiting:
        for field in waiting.pop().values():
            for name in _names(field["type"]):
                if name in of["types"] and name not in found:
                    found.add(name)
                    waiting.append(of["types"][name]["fields"])
    return found


def _names(kind: Type) -> Iterator[str]:
    for form in kind:
        if isinstance(form, str):
            yield form
        else:
            for inner in form.values():
                yield from _names(inner)


def refused(old: Surface, new: Surface, changelog: str) -> list[str]:
    """Why the change from `old` to `new` may not be made as it is; empty when it may."""
    found = breaking(old, new)
    if not found:
        return []
    if new["protocol"] <= old["protocol"]:
        return [*found, f"a breaking change needs a PROTOCOL_VERSION above {old['protocol']}"]
    if not re.search(rf"(?im)^\s*[-*#].*\bprotocol {new['protocol']}\b", changelog):
        return [*found, f"CHANGELOG.md has no line about protocol {new['protocol']}"]
    return []


def _text(of: Surface) -> str:
    """JSON with a line for each field, so that a diff reads as what changed."""
    lines = [f' "{key}": {json.dumps(of[key])}' for key in ("protocol", "minClientProtocol")]
    for part in (*_SENT, *_ANSWERED, "types"):
        entries: list[str] = []
        for name, entry in sorted(of[part].items()):
            rest = {key: value for key, value in entry.items() if key != "fields"}
            head = "".join(f'"{key}": {json.dumps(value)}, ' for key, value in sorted(rest.items()))
            fields = ",\n".join(
                f'   "{n}": {json.dumps(f, sort_keys=True)}' for n, f in sorted(entry["fields"].items())
            )
            entries.append(f'  "{name}": {{{head}"fields": {{\n{fields}\n  }}}}')
        lines.append(f' "{part}": {{\n' + ",\n".join(entries) + "\n }")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _git(*arguments: str) -> str | None:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def _compare(ref: str) -> int:
    old = _git("show", f"{ref}:{FILE.relative_to(ROOT)}")
    if old is None:
        print(f"protocol check: skipped, {ref} has no {FILE.name}")
        return 0
    why = refused(json.loads(old), surface(), CHANGES.read_text("utf-8") if CHANGES.exists() else "")
    for line in why:
        print(line, file=sys.stderr)
    if not why:
        print(f"protocol check: nothing breaks against {ref}")
    return 1 if why else 0


def _main_ref() -> str:
    return "origin/main" if _git("rev-parse", "--verify", "--quiet", "refs/remotes/origin/main") else "main"


def main(arguments: list[str]) -> int:
    """Write the file; or with `--check` and `--against [REF]` (default: main) say what is wrong (exit code 1)."""
    text = _text(surface())
    if not arguments:
        FILE.write_text(text, "utf-8")
        return 0
    if "--check" in arguments and (not FILE.exists() or FILE.read_text("utf-8") != text):
        print(f"{FILE.relative_to(ROOT)} is not current: run `make surface`", file=sys.stderr)
        return 1
    if "--against" in arguments:
        after = arguments[arguments.index("--against") + 1 :]
        return _compare(after[0] if after else _main_ref())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
