"""Tables of the `triggers` schema. Times are Unix milliseconds, documents JSON bytes of the public types."""

from __future__ import annotations

import sqlalchemy as sa

from libs.store import accepted_signatures_table, outbox_table

metadata = sa.MetaData()


def _id(name: str, *foreign: sa.ForeignKey, key: bool = False, null: bool = False) -> sa.Column[str]:
    # Ids are compared and ordered by bytes, whatever the database's locale.
    return sa.Column(name, sa.Text(collation="C"), *foreign, primary_key=key, nullable=null)


def _ms(name: str, *, null: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=null)


def _text(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=null)


def _document(name: str, *, null: bool = False) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary, nullable=null)


def _of_trigger(*, key: bool = False) -> sa.Column[str]:
    return _id("trigger_id", sa.ForeignKey("triggers.id", ondelete="CASCADE"), key=key)


triggers = sa.Table(
    "triggers",
    metadata,
    _id("id", key=True),
    _id("account"),
    _id("agent_id"),
    _text("name"),
    sa.Column("enabled", sa.Boolean, nullable=False),
    # `type` of the source
    _text("kind"),
    _document("source"),
    # Blocks
    _document("prompt"),
    _document("continuation", null=True),
    # The trigger that it was merged into; not a foreign key, for that one may be deleted.
    _id("merged_into", null=True),
    # What its webhook secret is made of, together with a key that is not in the database.
    sa.Column("webhook_nonce", sa.LargeBinary, nullable=True),
    _ms("created_at"),
    _ms("updated_at"),
    _ms("last_checked_at", null=True),
    _ms("last_fired_at", null=True),
    _text("last_error", null=True),
    # When a schedule is to be looked at; null for other sources, and when it never fires again as it is.
    _ms("due_at", null=True),
)
sa.Index("triggers_by_agent", triggers.c.agent_id, triggers.c.updated_at)
sa.Index(
    "triggers_by_account",
    triggers.c.account,
    triggers.c.created_at,
    triggers.c.id,
    postgresql_where=triggers.c.enabled,
)
sa.Index(
    "triggers_due",
    triggers.c.due_at,
    postgresql_where=sa.and_(triggers.c.enabled, triggers.c.due_at.is_not(None)),
)

trigger_firings = sa.Table(
    "trigger_firings",
    metadata,
    _id("id", key=True),
    _of_trigger(),
    _id("account"),
    _id("agent_id"),
    _text("firing_key"),
    # Key of the event; null for schedules and ended runs.
    _text("activity_key", null=True),
    _text("summary"),
    # created, delivered, no-listener or error
    _text("status"),
    _text("error", null=True),
    _document("matched", null=True),
    _id("session_id", null=True),
    # Root of the run whose end fired it
    _id("cause_run_id", null=True),
    _ms("fired_at"),
    # The AgentSessionTriggerContext as it was then, and the continuation; gone once it is carried out.
    _document("context", null=True),
    _document("continuation", null=True),
    # When the sweep carries it out, unless somebody has; null from then on.
    _ms("next_at", null=True),
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
)
sa.Index("trigger_firings_by_trigger", trigger_firings.c.trigger_id, trigger_firings.c.fired_at, trigger_firings.c.id)
sa.Index(
    "trigger_firings_due",
    trigger_firings.c.next_at,
    postgresql_where=trigger_firings.c.next_at.is_not(None),
)

claims = sa.Table(
    "claims",
    metadata,
    # Apart from the firings: a merged trigger's claims pass on to the surviving one.
    _of_trigger(key=True),
    sa.Column("firing_key", sa.Text(collation="C"), primary_key=True),
    # SHA-256 of what was delivered, for deliveries that carry a key of their own.
    sa.Column("digest", sa.LargeBinary, nullable=True),
    _ms("created_at"),
)

watermarks = sa.Table(
    "watermarks",
    metadata,
    _id("account", key=True),
    # False until a first poll has handled what it found.
    sa.Column("begun", sa.Boolean, nullable=False, server_default=sa.false()),
    # When a poll last succeeded; null before.
    _ms("checked_at", null=True),
    # When the feed is to be asked again.
    _ms("next_at"),
    # Why the last poll failed; null when it did not.
    _text("last_error", null=True),
    # Which poll has it, and until when it is left to it.
    _text("lease", null=True),
    _ms("leased_until", null=True),
)
sa.Index("watermarks_due", watermarks.c.next_at)

seen_events = sa.Table(
    "seen_events",
    metadata,
    # Rows and not a list in the watermark: each event adds one, and the list has hundreds.
    _id("account", sa.ForeignKey("watermarks.account", ondelete="CASCADE"), key=True),
    sa.Column("event_key", sa.Text(collation="C"), primary_key=True),
    # Grows: the newest are kept.
    sa.Column("position", sa.BigInteger, sa.Identity(), nullable=False),
)
sa.Index("seen_events_by_position", seen_events.c.account, seen_events.c.position)

cursors = sa.Table(
    "cursors",
    metadata,
    # Name of a feed that is read to the end again and again.
    _id("feed", key=True),
    # The feed's own token of where reading goes on.
    _text("position"),
)

deletions = sa.Table(
    "deletions",
    metadata,
    # A deleted trigger that sessions is still to forget.
    _id("trigger_id", key=True),
    _ms("next_at"),
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
)
sa.Index("deletions_due", deletions.c.next_at)

client_requests = sa.Table(
    "client_requests",
    metadata,
    _id("account", key=True),
    sa.Column("client_request_id", sa.Text(collation="C"), primary_key=True),
    # SHA-256 of what was asked for.
    sa.Column("request_hash", sa.LargeBinary, nullable=False),
    _id("trigger_id"),
    # The trigger as the first request made it.
    sa.Column("created", sa.LargeBinary, nullable=False),
    _ms("created_at"),
)

outbox = outbox_table(metadata)

accepted_signatures = accepted_signatures_table(metadata)
