"""First tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "agents",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("owner", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("definition", sa.LargeBinary(), nullable=False),
        sa.Column("status", sa.Text(), server_default="idle", nullable=False),
        sa.Column("public_read", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("public_chat", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), server_default="1", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("agents_by_owner", "agents", ["owner"], unique=False)
    op.create_table(
        "deletions",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("kind", sa.Text(), server_default="", nullable=False),
        sa.Column("owner", sa.Text(collation="C"), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=False),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("deletions_due", "deletions", ["next_at"], unique=False)
    op.create_table(
        "idempotency",
        sa.Column("account", sa.Text(collation="C"), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("client_id", sa.Text(collation="C"), nullable=False),
        sa.Column("request_hash", sa.LargeBinary(), nullable=False),
        sa.Column("created_id", sa.Text(collation="C"), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("account", "action", "client_id"),
    )
    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "session_turns",
        sa.Column("run_id", sa.Text(collation="C"), nullable=False),
        sa.Column("session_id", sa.Text(collation="C"), nullable=False),
        sa.Column("agent_id", sa.Text(collation="C"), nullable=False),
        sa.Column("owner", sa.Text(collation="C"), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), server_default="live", nullable=False),
        sa.Column("gone", sa.Text(), server_default="", nullable=False),
        sa.Column("attempt", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("begun", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("canceled", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("queued_behind", sa.Boolean(), nullable=False),
        sa.Column("retry", sa.Boolean(), nullable=False),
        sa.Column("origin", sa.Text(), server_default="user", nullable=False),
        sa.Column("title", sa.Text(), server_default="", nullable=False),
        sa.Column("event_ids", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("status", sa.Text(), server_default="", nullable=False),
        sa.Column("assistant_event_id", sa.Text(), server_default="", nullable=False),
        sa.Column("error_message", sa.Text(), server_default="", nullable=False),
        sa.Column("error_status", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("next_start_at", sa.BigInteger(), nullable=False),
        sa.Column("starts", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_index("session_turns_by_session", "session_turns", ["session_id", "number"], unique=False)
    op.create_index(
        "session_turns_due",
        "session_turns",
        ["next_start_at"],
        unique=False,
        postgresql_where=sa.text("state != 'done'"),
    )
    op.create_table(
        "agent_members",
        sa.Column("agent_id", sa.Text(collation="C"), nullable=False),
        sa.Column("account", sa.Text(collation="C"), nullable=False),
        sa.Column("role", sa.Text(), server_default="", nullable=False),
        sa.Column("status", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("accepted_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["agent_id"],
            ["agents.id"],
        ),
        sa.PrimaryKeyConstraint("agent_id", "account"),
    )
    op.create_index("agent_members_by_account", "agent_members", ["account"], unique=False)
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("agent_id", sa.Text(collation="C"), nullable=False),
        sa.Column("owner", sa.Text(collation="C"), nullable=False),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("title_source", sa.Text(), server_default="", nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), server_default="idle", nullable=False),
        sa.Column("parent_session_id", sa.Text(collation="C"), nullable=True),
        sa.Column("run_id", sa.Text(collation="C"), nullable=True),
        sa.Column("plan", sa.LargeBinary(), nullable=True),
        sa.Column("model_override", sa.LargeBinary(), nullable=True),
        sa.Column("started_by_trigger", sa.LargeBinary(), nullable=True),
        sa.Column("last_seq", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("turns", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("live_turns", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), server_default="1", nullable=False),
        sa.CheckConstraint("live_turns >= 0", name="sessions_live_turns"),
        sa.ForeignKeyConstraint(
            ["agent_id"],
            ["agents.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("sessions_by_agent", "sessions", ["agent_id", "updated_at", "id"], unique=False)
    op.create_index("sessions_by_owner", "sessions", ["owner", "updated_at", "id"], unique=False)
    op.create_index(
        "sessions_by_parent",
        "sessions",
        ["parent_session_id", "updated_at", "id"],
        unique=False,
        postgresql_where=sa.text("parent_session_id IS NOT NULL"),
    )
    op.create_table(
        "attachments",
        sa.Column("session_id", sa.Text(collation="C"), nullable=False),
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("mime_type", sa.Text(), nullable=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
        ),
        sa.PrimaryKeyConstraint("session_id", "id"),
    )
    op.create_table(
        "session_events",
        sa.Column("session_id", sa.Text(collation="C"), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("run_id", sa.Text(collation="C"), nullable=True),
        sa.Column("step", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
        ),
        sa.PrimaryKeyConstraint("session_id", "seq"),
    )
    op.create_index(
        "session_events_once",
        "session_events",
        ["run_id", "step"],
        unique=True,
        postgresql_where=sa.text("run_id IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("session_events_once", table_name="session_events", postgresql_where=sa.text("run_id IS NOT NULL"))
    op.drop_table("session_events")
    op.drop_table("attachments")
    op.drop_index(
        "sessions_by_parent", table_name="sessions", postgresql_where=sa.text("parent_session_id IS NOT NULL")
    )
    op.drop_index("sessions_by_owner", table_name="sessions")
    op.drop_index("sessions_by_agent", table_name="sessions")
    op.drop_table("sessions")
    op.drop_index("agent_members_by_account", table_name="agent_members")
    op.drop_table("agent_members")
    op.drop_index("session_turns_due", table_name="session_turns", postgresql_where=sa.text("state != 'done'"))
    op.drop_index("session_turns_by_session", table_name="session_turns")
    op.drop_table("session_turns")
    op.drop_table("outbox")
    op.drop_table("idempotency")
    op.drop_index("deletions_due", table_name="deletions")
    op.drop_table("deletions")
    op.drop_index("agents_by_owner", table_name="agents")
    op.drop_table("agents")
