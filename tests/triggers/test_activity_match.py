"""Which events are for which sources (triggers.md, section 3)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs import wire
from libs.protocol import json_bytes
from libs.protocol.triggers import AgentTriggerSource
from services.triggers.domain.activity.canonical import canonical_resource, is_below, names_resource
from services.triggers.domain.activity.keys import event_key, firing_key
from services.triggers.domain.activity.match import match, wait_matches
from services.triggers.domain.activity.shapes import Activity, bounded
from services.triggers.domain.activity.summary import summary_of
from services.triggers.domain.activity.times import event_time
from services.triggers.domain.firing import Activation, Fired, context, message
from tests.triggers.events import block, citation, comment, contact, doc_update, raw_blob, raw_mention, unpacked


def source(type_: str, **fields: Any) -> AgentTriggerSource:
    return msgspec.convert({"type": type_, **fields}, AgentTriggerSource)


def fires(given_source: AgentTriggerSource, event: Any) -> bool:
    return match(given_source, Activity(event)) is not None


def on(resource: str, **fields: Any) -> AgentTriggerSource:
    return source("document-comment", resource=resource, **fields)


def mention(*accounts: str, **fields: Any) -> AgentTriggerSource:
    return source("user-mention", mentionedAccounts=list(accounts), **fields)


def reply(*accounts: str, **fields: Any) -> AgentTriggerSource:
    return source("comment-reply", repliedToAccounts=list(accounts), **fields)


def authored(*accounts: str, **fields: Any) -> AgentTriggerSource:
    return source("document-author-comment", documentAuthors=list(accounts), **fields)


def site(prefix: str, *types: str) -> AgentTriggerSource:
    return source("site-update", resourcePrefix=prefix, **({"eventTypes": list(types)} if types else {}))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("hm://site/a/b", "hm://site/a/b"),
        (" hm://site/a/b/?v=bafy&l#block ", "hm://site/a/b"),
        ("HM://Site", "hm://Site"),
        ("hm://site/", "hm://site"),
        ("https://x.example/hm/site/a/:comments/b?v=1", "hm://site/a/b"),
        ("https://x.example/hm/site/a%20b", "hm://site/a b"),
        ("https://x.example/hm/", "https://x.example/hm"),
        ("https://x.example/a/?q#f", "https://x.example/a"),
        ("some text/", "some text"),
        ("", ""),
    ],
)
def test_canonical_addresses(text: str, canonical: str) -> None:
    assert canonical_resource(text) == canonical


@given(
    st.text() | st.text(alphabet="hm:/?#% \taA%2F").map("hm://".__add__) | st.text("hm:/%20?#").map("http://x/".__add__)
)
def test_canonical_addresses_stay_as_they_are(text: str) -> None:
    once = canonical_resource(text)
    assert canonical_resource(once) == once


def test_below_goes_by_whole_segments() -> None:
    assert is_below("hm://a/x", "hm://a/x")
    assert is_below("hm://a/x/y", "hm://a/x")
    assert not is_below("hm://a/xy", "hm://a/x")
    assert not is_below("hm://a", "")


@pytest.mark.parametrize(
    "text", ["hm://", "hm:///path", "hm://*", "hm://site/*", "https://x.example/a", "site", "hm://a b"]
)
def test_what_names_no_account_and_no_document(text: str) -> None:
    assert not names_resource(text)


def test_web_addresses_name_documents_too() -> None:
    assert names_resource("https://x.example/hm/site/a")
    assert names_resource("hm://site?v=1")


def test_comments_on_a_document_or_below_it() -> None:
    event = comment(on=("site", "notes", "today"))
    assert fires(on("hm://site/notes"), event)
    assert fires(on("hm://site/notes/today?v=bafy"), event)
    assert fires(on("https://x.example/hm/site/notes"), event)
    assert fires(on("hm://site"), event)
    assert not fires(on("hm://site/note"), event)
    assert not fires(on("hm://site/notes/today/late"), event)
    assert not fires(on("hm://site/notes"), doc_update(doc=("site", "notes")))
    assert not fires(on("hm://bob"), citation())


def test_the_target_of_a_comment_is_known_by_its_comment_too() -> None:
    event = comment(on=("site", "notes")) | {"target": None}
    assert fires(on("hm://site/notes"), event)
    assert not fires(on("hm://alice"), event)
    bare = {"type": "comment", "comment": {"id": "x"}, "link": "see hm://site/notes there"}
    assert fires(on("hm://site/notes"), bare)
    assert not fires(on("hm://site/other"), bare)


def test_the_author_of_a_comment_may_be_asked_for() -> None:
    assert fires(on("hm://site", author="alice"), comment(by="alice"))
    assert fires(on("hm://site", author="hm://alice"), comment(by="alice"))
    assert not fires(on("hm://site", author="bob"), comment(by="alice"))


def test_a_name_is_no_author() -> None:
    event = comment(by="mallory") | {"author": contact("mallory", name="alice")}
    assert not fires(on("hm://site", author="alice"), event)


@pytest.mark.parametrize("form", ["camel", "snake", "case"])
def test_raw_comments(form: str) -> None:
    event = raw_blob(by="alice", form=form)
    assert fires(on("hm://site/docs"), event)
    assert fires(on("hm://site/docs", author="alice"), event)
    assert not fires(on("hm://site/docs", author="ali"), event)
    assert not fires(on("hm://other"), event)
    assert not fires(on("hm://site/docs"), raw_blob(kind="Ref", form=form))


@pytest.mark.parametrize(
    "link", ["hm://bob", "hm://bob/:profile", "hm://bob/:profile?v=bafy&l", "hm://bob/:profile/x#y"]
)
def test_mentions_in_comments_are_embeds_at_any_depth(link: str) -> None:
    nested = block("a", children=[block("b", children=[block("c", link)])])
    assert fires(mention("carol", "bob"), comment(content=[block("first"), nested]))
    assert fires(mention("hm://bob"), comment(content=[block("x", link)]))


@pytest.mark.parametrize(
    "event",
    [
        comment(content=[block("x", "hm://bob/post")]),
        comment(content=[block("x", "hm://bobby")]),
        comment(content=[block("x", "https://x.example/hm/bob")]),
        comment(content=[{"block": {"annotations": [{"type": "Link", "link": "hm://bob"}]}}]),
        comment(by="bob"),
        comment(parent_by="bob"),
        comment(on=("bob", "post"), authors=("bob",)),
        doc_update(by="bob", doc=("bob", "post")),
        citation(target=("bob", "post")),
        citation(target=("alice", ":profile"), by="bob"),
    ],
)
def test_what_is_no_mention(event: dict[str, Any]) -> None:
    assert not fires(mention("bob"), event)


@pytest.mark.parametrize("kind", ["c", "d"])
def test_citations_of_an_account(kind: str) -> None:
    assert fires(mention("bob"), citation(kind=kind))
    assert fires(mention("bob"), citation(target=("bob",), kind=kind))


@pytest.mark.parametrize("form", ["camel", "snake", "case"])
@pytest.mark.parametrize("target", ["bob", "hm://bob", "hm://bob/anything", "hm://bob?v=1"])
def test_raw_mentions(form: str, target: str) -> None:
    assert fires(mention("bob"), raw_mention(target=target, form=form))
    assert not fires(mention("bo"), raw_mention(target=target, form=form))


def test_mentions_below_a_prefix() -> None:
    assert fires(mention("bob", resourcePrefix="hm://site"), citation())
    assert not fires(mention("bob", resourcePrefix="hm://elsewhere"), citation())
    assert fires(mention("bob", resourcePrefix="hm://site/docs?v=1"), raw_mention())
    assert fires(mention("bob", resourcePrefix="hm://else"), citation() | {"note": "as in hm://else/where"})


def test_replies_to_an_account() -> None:
    assert fires(reply("bob"), comment(by="alice", parent_by="bob"))
    assert fires(reply("bob"), comment(by="alice", parent_by="bob") | {"replyParentAuthor": None})
    assert not fires(reply("bob"), comment(by="alice"))
    assert not fires(reply("bob"), comment(by="alice", parent_by="carol"))
    assert not fires(reply("bob"), comment(by="bob", parent_by="bob"))
    assert fires(reply("bob", resourcePrefix="hm://site/notes"), comment(parent_by="bob"))
    assert not fires(reply("bob", resourcePrefix="hm://else"), comment(parent_by="bob"))


def test_a_reply_by_nobody_known_is_none() -> None:
    event = comment(parent_by="bob")
    event["author"] = None
    del event["comment"]["author"]
    assert not fires(reply("bob"), event)


def test_comments_on_what_an_account_authored() -> None:
    assert fires(authored("bob"), comment(by="alice", authors=("carol", "bob")))
    assert not fires(authored("bob"), comment(by="bob", authors=("bob",)))
    assert fires(authored("bob", "carol"), comment(by="bob", authors=("bob", "carol")))
    assert not fires(authored("bob"), comment(authors=()))
    assert not fires(authored("bob"), citation() | {"targetAuthorUids": ["bob"]})


@pytest.mark.parametrize(
    "types", [(), ("doc-update",), ("DOC-UPDATE",), ("change",), ("ref",), ("document-update",), ("comment", "ref")]
)
def test_updates_of_a_site(types: tuple[str, ...]) -> None:
    assert fires(site("hm://site/docs", *types), doc_update())
    assert fires(site("hm://site", *types), raw_blob(kind="Ref"))
    assert fires(site("hm://site", *types), raw_blob(kind="Ref", form="snake"))
    assert not fires(site("hm://site/doc", *types), doc_update())


def test_updates_of_other_types() -> None:
    assert not fires(site("hm://site", "comment"), doc_update())
    assert fires(site("hm://site", "comment"), comment())
    assert fires(site("hm://bob", "citation"), citation())
    assert fires(site("hm://site", "citation"), raw_mention())


def test_events_of_no_known_place_are_searched() -> None:
    capability = {
        "type": "capability",
        "id": "bafycap",
        "target": {"id": None, "metadata": None},
        "capability": {"accountUid": "site", "grantId": unpacked("site", "docs")},
    }
    assert fires(site("hm://site/docs", "capability"), capability)
    assert not fires(site("hm://else"), capability)
    by_document = {"type": "doc-update", "document": {"account": "site", "path": ["docs", "x"]}}
    assert fires(site("hm://site/docs"), by_document)


def test_a_compound_source_tells_all_that_matched() -> None:
    compound = source(
        "activity",
        conditions=[
            {"id": "m", "source": {"type": "user-mention", "mentionedAccounts": ["bob"]}},
            {"id": "r", "source": {"type": "comment-reply", "repliedToAccounts": ["bob"]}},
            {"id": "d", "source": {"type": "document-author-comment", "documentAuthors": ["bob"]}},
        ],
    )
    found = match(compound, Activity(comment(content=[block("", "hm://bob")], authors=("bob",))))
    assert found is not None
    assert [condition.id for condition in found.conditions] == ["m", "d"]
    assert match(compound, Activity(comment())) is None


@pytest.mark.parametrize(
    "given_source",
    [
        source("webhook"),
        source("schedule", schedule={"kind": "interval", "every": 1, "unit": "hours"}),
        source("run-completed"),
    ],
)
def test_other_sources_match_no_activity(given_source: AgentTriggerSource) -> None:
    assert not fires(given_source, comment())


@pytest.mark.parametrize(
    ("criteria", "expected"),
    [
        ({}, False),
        ({"eventType": "comment"}, True),
        ({"eventType": "citation"}, False),
        ({"author": "alice"}, True),
        ({"author": "bob"}, False),
        ({"resource": "hm://site/notes?v=3"}, True),
        ({"resource": "hm://site"}, False),
        ({"resource": "hm://site/notes", "author": "bob"}, False),
        ({"eventType": "comment", "resource": "hm://site/notes/", "author": "hm://alice"}, True),
        ({"eventType": "comment", "signal": "go"}, False),
    ],
)
def test_waits_for_an_event(criteria: dict[str, str], expected: bool) -> None:
    assert wait_matches(criteria, Activity(comment())) is expected


def test_waits_see_what_stands_at_the_top_too() -> None:
    event = Activity({"type": "Comment", "resource": "hm://site/spec?v=abc#b", "author": "alice"})
    assert wait_matches({"resource": "hm://site/spec", "author": "alice", "eventType": "Comment"}, event)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
# fmt: off
KNOWN = st.sampled_from(
    [
        "type", "id", "feedEventId", "eventAtMs", "time", "eventTime", "observeTime", "seconds", "nanos", "author",
        "target", "source", "comment", "commentId", "docId", "document", "uid", "path", "metadata", "name",
        "newBlob", "new_blob", "newMention", "new_mention", "data", "case", "value", "cid", "blobId", "blobType",
        "resource", "sourceBlob", "mentionType", "content", "block", "children", "annotations", "link",
        "replyParentAuthor", "replyingComment", "targetAuthorUids", "targetAccount", "targetPath",
    ]
)
# fmt: on
EVENTISH = st.recursive(
    JSON
    | st.sampled_from(
        ["comment", "citation", "newBlob", "newMention", "hm://bob", "Embed", "bob", "1e999", "undefined"]
    ),
    lambda inner: st.dictionaries(KNOWN, inner, max_size=6) | st.lists(inner, max_size=3),
    max_leaves=30,
)
ANY_SOURCE = st.sampled_from(
    [
        on("hm://bob", author="bob"),
        mention("bob", resourcePrefix="hm://bob"),
        reply("bob", resourcePrefix=""),
        authored("bob"),
        site("hm://bob", "citation"),
        source("activity", conditions=[{"id": "1", "source": {"type": "user-mention", "mentionedAccounts": ["bob"]}}]),
        source("webhook"),
    ]
)


@given(EVENTISH, ANY_SOURCE)
def test_no_event_raises(event: Any, given_source: AgentTriggerSource) -> None:
    activity = Activity(event)
    match(given_source, activity)
    wait_matches({"eventType": "comment", "resource": "hm://bob", "author": "bob"}, activity)
    at = event_time(activity)
    assert at is None or 0 <= at <= 8_640_000_000_000_000
    for text in (event_key(activity), firing_key(activity), summary_of(activity)):
        assert text is None or ("\x00" not in text and 0 < len(text.encode()) <= 2100)


@given(EVENTISH)
def test_every_event_can_be_kept_and_shown(event: Any) -> None:
    whole = {"type": "comment", "id": "x", "more": event}
    fired = Fired("t", "T", {"type": "webhook"}, [], "Do.")
    activation = Activation(key="k", event=bounded(whole), summary="s", activity_key="k")
    told = msgspec.json.decode(json_bytes(context(fired, "f", 1, activation)))
    assert wire.encode(told) and message(told, "k")
    assert told["activity"]["id"] == "x"


def test_blocks_may_nest_deeper_than_calls() -> None:
    content: list[Any] = [block("", "hm://bob")]
    for _ in range(5000):
        content = [block(children=content)]
    assert fires(mention("bob"), comment(content=content))
