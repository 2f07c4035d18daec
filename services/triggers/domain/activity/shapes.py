"""What is known of an event of the activity feed, whatever its shape (triggers.md §3).

Events come resolved (`type`, `target`, `comment` …) or raw (`newBlob`, `newMention`), with camelCase or snake_case
keys, raw ones also as `data {case, value}`. Nothing here raises: what is missing or of another type is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

from services.triggers.domain.activity.canonical import account_of, canonical_resource

_CAPITAL: Final = re.compile(r"(?<!^)([A-Z])")
LEVELS: Final = 96
"""How deep an event may nest where it is kept: somebody may nest blocks without end, and readers cannot follow."""
_NOWHERE: Final = frozenset(["undefined", "null"])


class Activity:
    """A view of one event. `event` is the event itself, an empty map when it is none."""

    def __init__(self, event: Any) -> None:
        self.event: dict[str, Any] = event if isinstance(event, dict) else {}

    # -- what happened ---------------------------------------------------------------------------------------------

    @cached_property
    def type(self) -> str:
        """`comment`, `citation`, `doc-update`, `capability`, `contact` of a resolved event; `""` for a raw one."""
        return text(self.event, "type")

    @cached_property
    def blob(self) -> dict[str, Any]:
        """The raw new blob; empty when the event is none."""
        return self._raw("newBlob")

    @cached_property
    def mention(self) -> dict[str, Any]:
        """The raw new mention; empty when the event is none."""
        return self._raw("newMention")

    @cached_property
    def kinds(self) -> frozenset[str]:
        """Every name the event's type goes by, lower case: its `type`, `data.case`, `blobType`."""
        names = {self.type, text(record(self.event, "data"), "case"), text(self.blob, "blobType")}
        if self.mention:
            names.add("citation")
        return frozenset(name.lower() for name in names if name)

    @property
    def is_comment(self) -> bool:
        """Whether it is a resolved comment."""
        return self.type.lower() == "comment"

    @property
    def is_citation(self) -> bool:
        """Whether it is a resolved citation."""
        return self.type.lower() == "citation"

    # -- who -------------------------------------------------------------------------------------------------------

    @cached_property
    def author(self) -> str:
        """The account that caused the event; `""` when not known."""
        return (
            person(field(self.event, "author"))
            or person(field(self.comment, "author"))
            or person(field(self.blob, "author"))
            or person(field(record(self.mention, "sourceBlob"), "author"))
        )

    @cached_property
    def parent_author(self) -> str:
        """The author of the comment that a comment directly replies to; `""` when it replies to none."""
        return person(field(self.event, "replyParentAuthor")) or person(
            field(record(self.event, "replyingComment"), "author")
        )

    @cached_property
    def target_authors(self) -> frozenset[str]:
        """The accounts that authored the document a comment is on."""
        found = field(self.event, "targetAuthorUids")
        return (
            frozenset(account_of(uid) for uid in found if isinstance(uid, str)) if isinstance(found, list) else _NO_ONE
        )

    # -- where -----------------------------------------------------------------------------------------------------

    @cached_property
    def comment(self) -> dict[str, Any]:
        """The comment of a resolved event, also of a citation in one; empty when there is none."""
        return record(self.event, "comment")

    @cached_property
    def target(self) -> str:
        """The canonical address of the resolved target; `""` when not known."""
        return canonical_resource(address(field(self.event, "target")))

    @cached_property
    def comment_target(self) -> str:
        """The canonical address of the document a comment is on; `""` when not known."""
        return self.target or self._document_of("targetAccount", "targetPath", self.comment)

    @cached_property
    def resource(self) -> str:
        """The canonical address the event is about, as `site-update` sees it; `""` when not known."""
        return (
            canonical_resource(text(self.blob, "resource"))
            or canonical_resource(address(field(self.event, "docId")))
            or self.comment_target
            or self._document_of("account", "path", record(self.event, "document"))
        )

    @cached_property
    def places(self) -> tuple[str, ...]:
        """Canonical addresses of source, target and comment: where a mention or reply happened."""
        candidates = [
            address(field(self.event, "source")),
            address(field(self.event, "target")),
            address(field(self.event, "commentId")),
            text(self.mention, "source"),
            text(self.mention, "sourceDocument"),
            text(self.mention, "target"),
        ]
        return tuple(dict.fromkeys(canonical_resource(each) for each in candidates if each))

    # -- what is in it ---------------------------------------------------------------------------------------------

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Every text in the event, at any depth."""
        return tuple(texts_of(self.event))

    def contains(self, part: str) -> bool:
        """Whether `part` occurs in any text of the event. An empty one never does."""
        return bool(part) and any(part in each for each in self.texts)

    @cached_property
    def embeds(self) -> frozenset[str]:
        """`hm://` links of `Embed` annotations in a comment's blocks, without query, fragment and trailing slashes."""
        return frozenset(_embeds(field(self.comment, "content")))

    def _raw(self, name: str) -> dict[str, Any]:
        found = record(self.event, name)
        if found:
            return found
        data = record(self.event, "data")
        return record(data, "value") if text(data, "case") in (name, _snake(name)) else {}

    @staticmethod
    def _document_of(account_name: str, path_name: str, of: dict[str, Any]) -> str:
        account = text(of, account_name)
        if not account:
            return ""
        path = field(of, path_name)
        if isinstance(path, list):
            path = "/".join(part for part in path if isinstance(part, str))
        return canonical_resource(f"hm://{account_of(account)}/{path if isinstance(path, str) else ''}")


_NO_ONE: Final[frozenset[str]] = frozenset()


def field(of: Any, name: str) -> Any:
    """The value under `name` (camelCase) or its snake_case form; None when `of` is no map or has neither."""
    if not isinstance(of, dict):
        return None
    value = of.get(name)
    return value if value is not None else of.get(_snake(name))


def record(of: Any, name: str) -> dict[str, Any]:
    """The map under `name`; empty when there is none."""
    value = field(of, name)
    return value if isinstance(value, dict) else {}


def text(of: Any, name: str) -> str:
    """The text under `name`, without blanks around it; `""` when there is none. `undefined` and `null` are none."""
    value = field(of, name)
    stripped = value.strip() if isinstance(value, str) else ""
    return "" if stripped in _NOWHERE else stripped


def person(of: Any) -> str:
    """The account id of an author: a text, a map with `uid`, or one with `id {uid, id}`."""
    if isinstance(of, str):
        return account_of(of)
    inner = field(of, "id")
    if isinstance(inner, dict):
        return text(inner, "uid") or account_of(text(inner, "id"))
    return text(of, "uid") or account_of(text(of, "id"))


def address(of: Any) -> str:
    """The address in a text, an unpacked id `{id, uid, path[]}`, or a map that has one under `id`."""
    if isinstance(of, str):
        return of.strip()
    inner = field(of, "id")
    if isinstance(inner, dict):
        return address(inner)
    uid = text(of, "uid")
    if not text(of, "id") and uid:
        return "/".join([f"hm://{uid}", *path_of(of)])
    return text(of, "id")


def path_of(unpacked: Any) -> list[str]:
    """The path segments of an unpacked id."""
    path = field(unpacked, "path")
    if isinstance(path, str):
        return [segment for segment in path.split("/") if segment]
    return [segment for segment in path if isinstance(segment, str) and segment] if isinstance(path, list) else []


def bounded(value: Any, levels: int = LEVELS) -> Any:
    """A JSON value as it can be kept: what is nested deeper than `levels` is left out (null)."""
    if isinstance(value, dict):
        return {key: bounded(each, levels - 1) for key, each in value.items()} if levels else None
    if isinstance(value, list):
        return [bounded(each, levels - 1) for each in value] if levels else None
    return value


def texts_of(value: Any) -> Iterator[str]:
    """Every text in a JSON value, at any depth; keys are none."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)


def _embeds(content: Any) -> Iterator[str]:
    # A stack of its own: blocks may nest deeper than calls may.
    waiting = [content]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(node)
        if not isinstance(node, dict):
            continue
        waiting += [node.get("block"), node.get("children")]
        annotations = node.get("annotations")
        for annotation in annotations if isinstance(annotations, list) else ():
            link = text(annotation, "link")
            if text(annotation, "type") == "Embed" and link.startswith("hm://"):
                yield canonical_resource(link)


def _snake(name: str) -> str:
    return _CAPITAL.sub(r"_\1", name).lower()
