"""Which triggers and which waits an event is for (triggers.md §3). Total: no event and no source raises."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from msgspec import UNSET, UnsetType

from libs.protocol.triggers import (
    ActivityConditionsSource,
    AgentActivityCondition,
    AgentTriggerSource,
    CommentReplySource,
    DocumentAuthorCommentSource,
    DocumentCommentSource,
    SiteUpdateSource,
    UserMentionSource,
)
from services.triggers.domain.activity.canonical import account_of, canonical_resource, is_below
from services.triggers.domain.activity.shapes import Activity, field, path_of, person, record, text, texts_of

_UPDATE_NAMES: Final = frozenset(["doc-update", "document-update", "change", "ref"])


@dataclass(frozen=True, slots=True)
class Match:
    """An event is for a trigger. `conditions` are all that matched of a compound source, none of another."""

    conditions: tuple[AgentActivityCondition, ...] = ()


def match(source: AgentTriggerSource, activity: Activity) -> Match | None:
    """Whether an event is for a trigger with this source. Sources that are not of activity never match."""
    if isinstance(source, ActivityConditionsSource):
        found = tuple(condition for condition in source.conditions if _matches(condition.source, activity))
        return Match(found) if found else None
    return Match() if _matches(source, activity) else None


def wait_matches(criteria: dict[str, Any], activity: Activity) -> bool:
    """Whether an event ends a wait for `{eventType?, resource?, author?}`: all given fields match, at least one given.

    A wait that names a `signal` waits for that and no event. Authors and resources are looked for in resolved events
    as well as at the top level.
    """
    kind, resource, author = (text(criteria, name) for name in ("eventType", "resource", "author"))
    if text(criteria, "signal") or not (kind or resource or author):
        return False
    if kind and kind.lower() not in activity.kinds:
        return False
    if author and account_of(author) != activity.author:
        return False
    return not resource or canonical_resource(resource) in _wait_resources(activity)


def _wait_resources(activity: Activity) -> set[str]:
    known = [text(activity.event, "resource"), text(activity.event, "id"), activity.resource]
    return {canonical_resource(each) for each in known if each}


def _matches(source: AgentTriggerSource, activity: Activity) -> bool:
    match source:
        case DocumentCommentSource():
            return _document_comment(source, activity)
        case UserMentionSource():
            accounts = [account_of(account) for account in source.mentioned_accounts]
            mentioned = any(_mentions(account, activity) for account in accounts if account)
            return mentioned and _within(source.resource_prefix, activity)
        case CommentReplySource():
            return _reply(source, activity) and _within(source.resource_prefix, activity)
        case DocumentAuthorCommentSource():
            return _author_comment(source, activity) and _within(source.resource_prefix, activity)
        case SiteUpdateSource():
            return _below_prefix(source.resource_prefix, activity) and _of_types(source.event_types, activity)
        case _:
            return False


def _document_comment(source: DocumentCommentSource, activity: Activity) -> bool:
    resource = canonical_resource(source.resource)
    author = "" if source.author is UNSET else account_of(source.author)
    if activity.is_comment:
        target = activity.comment_target
        # Without a target all that can be said is whether the document is spoken of.
        if not (is_below(target, resource) if target else activity.contains(resource)):
            return False
        return not author or _in_author_record(author, activity)
    if text(activity.blob, "blobType").lower() == "comment":
        below = is_below(canonical_resource(text(activity.blob, "resource")), resource)
        return below and (not author or person(field(activity.blob, "author")) == author)
    return False


def _in_author_record(author: str, activity: Activity) -> bool:
    found = field(activity.event, "author") or field(activity.comment, "author")
    if isinstance(found, dict):
        # An account chooses its own name: what is in it says nothing about who it is.
        found = {name: value for name, value in found.items() if name != "metadata"}
    return any(author in each for each in texts_of(found))


def _mentions(account: str, activity: Activity) -> bool:
    profile = f"hm://{account}"
    if activity.is_comment:
        return any(link == profile or link.startswith(f"{profile}/:profile") for link in activity.embeds)
    if activity.is_citation:
        target = record(record(activity.event, "target"), "id")
        path = path_of(target)
        return text(target, "uid") == account and (not path or path[0].startswith(":profile"))
    target = text(activity.mention, "target")
    return bool(target) and (target == account or is_below(canonical_resource(target), profile))


def _reply(source: CommentReplySource, activity: Activity) -> bool:
    parent, author = activity.parent_author, activity.author
    # Who is not known may be the account itself, and answering oneself never ends.
    if not activity.is_comment or not parent or not author or parent == author:
        return False
    return parent in _accounts(source.replied_to_accounts)


def _author_comment(source: DocumentAuthorCommentSource, activity: Activity) -> bool:
    if not activity.is_comment or not activity.author:
        return False
    return bool((activity.target_authors & _accounts(source.document_authors)) - {activity.author})


def _within(prefix: str | UnsetType, activity: Activity) -> bool:
    if prefix is UNSET or not prefix.strip():
        return True
    wanted = canonical_resource(prefix)
    return any(is_below(place, wanted) for place in activity.places) or activity.contains(wanted)


def _below_prefix(prefix: str, activity: Activity) -> bool:
    wanted = canonical_resource(prefix)
    return is_below(activity.resource, wanted) if activity.resource else activity.contains(wanted)


def _of_types(wanted: list[str] | UnsetType, activity: Activity) -> bool:
    if wanted is UNSET or not wanted:
        return True
    names = frozenset(name.strip().lower() for name in wanted)
    if names & activity.kinds:
        return True
    return bool(names & _UPDATE_NAMES and activity.kinds & _UPDATE_NAMES)


def _accounts(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(account for account in map(account_of, texts) if account)
