"""Tables of the `sessions` schema. Times are Unix milliseconds; definitions DAG-CBOR, other documents JSON bytes."""

from __future__ import annotations

import sqlalchemy as sa

from libs.objects import loose_objects_table
from libs.store import accepted_signatures_table, outbox_table
from libs.store.audit import audit_table

metadata = sa.MetaData()


def _id(name: str, *foreign: sa.ForeignKey, key: bool = False, null: bool = False) -> sa.Column[str]:
    # Ids are compared and ordered by bytes, whatever the database's locale.
    return sa.Column(name, sa.Text(collation="C"), *foreign, primary_key=key, nullable=null)


def _ms(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _text(name: str, default: str = "") -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False, server_default=default)


agents = sa.Table(
    "agents",
    metadata,
    _id("id", key=True),
    _id("owner"),
    _text("name"),
    sa.Column("definition", sa.LargeBinary, nullable=False),
    _text("status", "idle"),
    sa.Column("public_read", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("public_chat", sa.Boolean, nullable=False, server_default=sa.false()),
    _ms("created_at"),
    _ms("updated_at"),
    sa.Column("version", sa.BigInteger, nullable=False, server_default="1"),
)
sa.Index("agents_by_owner", agents.c.owner)

agent_members = sa.Table(
    "agent_members",
    metadata,
    _id("agent_id", sa.ForeignKey("agents.id"), key=True),
    _id("account", key=True),
    _text("role"),
    # pending or accepted
    _text("status"),
    _ms("created_at"),
    _ms("updated_at"),
    sa.Column("accepted_at", sa.BigInteger, nullable=True),
)
sa.Index("agent_members_by_account", agent_members.c.account)

sessions = sa.Table(
    "sessions",
    metadata,
    _id("id", key=True),
    _id("agent_id", sa.ForeignKey("agents.id")),
    _id("owner"),
    sa.Column("title", sa.Text, nullable=True),
    # '' (nobody has named it), system, agent or user
    _text("title_source"),
    sa.Column("description", sa.Text, nullable=True),
    _text("status", "idle"),
    _id("parent_session_id", null=True),
    _id("run_id", null=True),
    sa.Column("plan", sa.LargeBinary, nullable=True),
    sa.Column("model_override", sa.LargeBinary, nullable=True),
    sa.Column("started_by_trigger", sa.LargeBinary, nullable=True),
    sa.Column("last_seq", sa.BigInteger, nullable=False, server_default="0"),
    # How many turns have been opened, and how many of them are live. Kept here because a locked row is counted exactly.
    sa.Column("turns", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("live_turns", sa.Integer, nullable=False, server_default="0"),
    # How many people's own uses of verbs are being executed: no turn opens meanwhile.
    sa.Column("user_actions", sa.Integer, nullable=False, server_default="0"),
    # JSON of the public links to the session before and to the newest one after, when it was continued.
    sa.Column("continued_from", sa.LargeBinary, nullable=True),
    sa.Column("continued_to", sa.LargeBinary, nullable=True),
    # How many automatic titles have been asked for.
    sa.Column("title_attempts", sa.Integer, nullable=False, server_default="0"),
    _ms("created_at"),
    _ms("updated_at"),
    sa.Column("version", sa.BigInteger, nullable=False, server_default="1"),
    sa.CheckConstraint("live_turns >= 0", name="sessions_live_turns"),
    sa.CheckConstraint("user_actions >= 0", name="sessions_user_actions"),
)
sa.Index("sessions_by_owner", sessions.c.owner, sessions.c.updated_at, sessions.c.id)
sa.Index("sessions_by_agent", sessions.c.agent_id, sessions.c.updated_at, sessions.c.id)
sa.Index(
    "sessions_by_parent",
    sessions.c.parent_session_id,
    sessions.c.updated_at,
    sessions.c.id,
    postgresql_where=sessions.c.parent_session_id.is_not(None),
)

session_events = sa.Table(
    "session_events",
    metadata,
    _id("session_id", sa.ForeignKey("sessions.id"), key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True),
    _id("id"),
    sa.Column("payload", sa.LargeBinary, nullable=False),
    # What a run wrote, by step: the same step is stored once, whatever the attempt.
    _id("run_id", null=True),
    sa.Column("step", sa.Text, nullable=True),
    _ms("created_at"),
)
sa.Index(
    "session_events_once",
    session_events.c.run_id,
    session_events.c.step,
    unique=True,
    postgresql_where=session_events.c.run_id.is_not(None),
)

session_turns = sa.Table(
    "session_turns",
    metadata,
    _id("run_id", key=True),
    # Without a foreign key: a live turn outlives its session for a while, to tell its run what is gone.
    _id("session_id"),
    _id("agent_id"),
    _id("owner"),
    # Counts the session's turns from 1.
    sa.Column("number", sa.BigInteger, nullable=False),
    # live, parked (its run waits for others), done or gone
    _text("state", "live"),
    # "Session" or "Agent" once it is gone.
    _text("gone"),
    sa.Column("attempt", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("begun", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("canceled", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("queued_behind", sa.Boolean, nullable=False),
    sa.Column("retry", sa.Boolean, nullable=False),
    _text("origin", "user"),
    _text("title"),
    sa.Column("event_ids", sa.ARRAY(sa.Text), nullable=False),
    # Who delegated it, and how; empty for turns that nobody did.
    _text("parent_run_id"),
    _text("parent_tool_call_id"),
    _text("root_run_id"),
    sa.Column("depth", sa.Integer, nullable=False, server_default="0"),
    sa.Column("spec", sa.LargeBinary, nullable=True),
    _text("plan_step_id"),
    _text("step_label"),
    # succeeded, failed or canceled once it is done
    _text("status"),
    _text("assistant_event_id"),
    _text("error_message"),
    sa.Column("error_status", sa.Integer, nullable=False, server_default="0"),
    # The session that answers in the place of this one, when the turn continued it.
    _id("continued_to", null=True),
    _ms("created_at"),
    sa.Column("finished_at", sa.BigInteger, nullable=True),
    # When the sweep announces the turn to runs again, and how often it has.
    _ms("next_start_at"),
    sa.Column("starts", sa.Integer, nullable=False, server_default="0"),
)
sa.Index("session_turns_by_session", session_turns.c.session_id, session_turns.c.number)
sa.Index("session_turns_due", session_turns.c.next_start_at, postgresql_where=session_turns.c.state != "done")

continuations = sa.Table(
    "continuations",
    metadata,
    _id("id", key=True),
    # Without foreign keys: a deletion takes out what it touches.
    _id("predecessor_id"),
    _id("successor_id"),
    # A run continues its session once at most.
    _id("run_id"),
    # The first event of the message that the successor answers.
    _id("initiating_event_id"),
    sa.Column("link", sa.LargeBinary, nullable=False),
    _ms("created_at"),
)
sa.Index("continuations_by_run", continuations.c.run_id, unique=True)
sa.Index("continuations_by_successor", continuations.c.successor_id, unique=True)
sa.Index(
    "continuations_by_message",
    continuations.c.predecessor_id,
    continuations.c.initiating_event_id,
    unique=True,
)

user_actions = sa.Table(
    "user_actions",
    metadata,
    # The tool call: user-<uuid>
    _id("id", key=True),
    _id("session_id", sa.ForeignKey("sessions.id")),
    _text("verb"),
    _ms("created_at"),
    # Given up then, unless it is renewed.
    _ms("expires_at"),
)
sa.Index("user_actions_by_session", user_actions.c.session_id)
sa.Index("user_actions_due", user_actions.c.expires_at)

attachments = sa.Table(
    "attachments",
    metadata,
    _id("session_id", sa.ForeignKey("sessions.id"), key=True),
    # SHA-256 of the bytes, lower-case hex
    _id("id", key=True),
    _text("name"),
    sa.Column("mime_type", sa.Text, nullable=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    _ms("created_at"),
    # Key of the object that holds the bytes; sessions that go on from each other share it.
    _text("blob"),
)
sa.Index("attachments_by_blob", attachments.c.blob)

uploads = sa.Table(
    "uploads",
    metadata,
    _id("id", key=True),
    _id("session_id", sa.ForeignKey("sessions.id")),
    # Whose open uploads it counts among: the owner of the agent.
    _id("account"),
    _text("name"),
    sa.Column("mime_type", sa.Text, nullable=True),
    # Declared bytes, and those that have come
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("received", sa.BigInteger, nullable=False, server_default="0"),
    _ms("created_at"),
    _ms("updated_at"),
)
sa.Index("uploads_by_account", uploads.c.account, uploads.c.updated_at)
sa.Index("uploads_by_session", uploads.c.session_id)
sa.Index("uploads_due", uploads.c.updated_at)

upload_chunks = sa.Table(
    "upload_chunks",
    metadata,
    _id("upload_id", sa.ForeignKey("uploads.id"), key=True),
    sa.Column("offset", sa.BigInteger, primary_key=True, autoincrement=False),
    _text("blob"),
)

loose_blobs = loose_objects_table(metadata)

idempotency = sa.Table(
    "idempotency",
    metadata,
    _id("account", key=True),
    sa.Column("action", sa.Text, primary_key=True),
    sa.Column("client_id", sa.Text(collation="C"), primary_key=True),
    sa.Column("request_hash", sa.LargeBinary, nullable=False),
    # What answers a repeat: the id of the created object, or the turn of a message.
    _id("created_id"),
    _ms("created_at"),
)

deletions = sa.Table(
    "deletions",
    metadata,
    _id("id", key=True),
    # session or agent
    _text("kind"),
    _id("owner"),
    _ms("created_at"),
    _ms("next_at"),
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
)
sa.Index("deletions_due", deletions.c.next_at)

outbox = outbox_table(metadata)

audit = audit_table(metadata)
accepted_signatures = accepted_signatures_table(metadata)

session_triggers = sa.Table(
    "session_triggers",
    metadata,
    # What started a session, apart from it: only one reader in many wants to know.
    _id("session_id", sa.ForeignKey("sessions.id", ondelete="CASCADE"), key=True),
    _id("trigger_id"),
    # The public AgentSessionTriggerContext as it was when the trigger fired
    sa.Column("context", sa.LargeBinary, nullable=False),
)
sa.Index("session_triggers_by_trigger", session_triggers.c.trigger_id)

newcomers = sa.Table(
    "newcomers",
    metadata,
    # A new agent whose first trigger is still to be made
    _id("agent_id", sa.ForeignKey("agents.id", ondelete="CASCADE"), key=True),
    _id("owner"),
    # Its name then, and the account it signs as
    _text("name"),
    _id("signing_account"),
    _ms("next_at"),
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
)
sa.Index("newcomers_due", newcomers.c.next_at)
