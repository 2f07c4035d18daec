"""first tables"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "accepted_signatures",
        sa.Column("signature_hash", sa.LargeBinary(), nullable=False),
        sa.Column("account", sa.Text(collation="C"), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("signature_hash"),
    )
    op.create_index("accepted_signatures_due", "accepted_signatures", ["expires_at"], unique=False)
    op.create_table(
        "client_requests",
        sa.Column("account", sa.Text(collation="C"), nullable=False),
        sa.Column("client_request_id", sa.Text(collation="C"), nullable=False),
        sa.Column("request_hash", sa.LargeBinary(), nullable=False),
        sa.Column("trigger_id", sa.Text(collation="C"), nullable=False),
        sa.Column("created", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("account", "client_request_id"),
    )
    op.create_table(
        "cursors",
        sa.Column("feed", sa.Text(collation="C"), nullable=False),
        sa.Column("position", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("feed"),
    )
    op.create_table(
        "deletions",
        sa.Column("trigger_id", sa.Text(collation="C"), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=False),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("trigger_id"),
    )
    op.create_index("deletions_due", "deletions", ["next_at"], unique=False)
    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "triggers",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("account", sa.Text(collation="C"), nullable=False),
        sa.Column("agent_id", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("source", sa.LargeBinary(), nullable=False),
        sa.Column("prompt", sa.LargeBinary(), nullable=False),
        sa.Column("continuation", sa.LargeBinary(), nullable=True),
        sa.Column("merged_into", sa.Text(collation="C"), nullable=True),
        sa.Column("webhook_nonce", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("last_checked_at", sa.BigInteger(), nullable=True),
        sa.Column("last_fired_at", sa.BigInteger(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "triggers_by_account", "triggers", ["account", "created_at", "id"], unique=False, postgresql_where="enabled"
    )
    op.create_index("triggers_by_agent", "triggers", ["agent_id", "updated_at"], unique=False)
    op.create_index(
        "triggers_due", "triggers", ["due_at"], unique=False, postgresql_where=sa.text("enabled AND due_at IS NOT NULL")
    )
    op.create_table(
        "watermarks",
        sa.Column("account", sa.Text(collation="C"), nullable=False),
        sa.Column("seen", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("begun", sa.Boolean(), nullable=False),
        sa.Column("checked_at", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("account"),
    )
    op.create_index("watermarks_due", "watermarks", ["next_at"], unique=False)
    op.create_table(
        "claims",
        sa.Column("trigger_id", sa.Text(collation="C"), nullable=False),
        sa.Column("firing_key", sa.Text(collation="C"), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["trigger_id"], ["triggers.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("trigger_id", "firing_key"),
    )
    op.create_table(
        "trigger_firings",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("trigger_id", sa.Text(collation="C"), nullable=False),
        sa.Column("account", sa.Text(collation="C"), nullable=False),
        sa.Column("agent_id", sa.Text(collation="C"), nullable=False),
        sa.Column("firing_key", sa.Text(), nullable=False),
        sa.Column("activity_key", sa.Text(), nullable=True),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("matched", sa.LargeBinary(), nullable=True),
        sa.Column("session_id", sa.Text(collation="C"), nullable=True),
        sa.Column("cause_run_id", sa.Text(collation="C"), nullable=True),
        sa.Column("fired_at", sa.BigInteger(), nullable=False),
        sa.Column("context", sa.LargeBinary(), nullable=True),
        sa.Column("continuation", sa.LargeBinary(), nullable=True),
        sa.Column("next_at", sa.BigInteger(), nullable=True),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["trigger_id"], ["triggers.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("trigger_firings_by_trigger", "trigger_firings", ["trigger_id", "fired_at", "id"], unique=False)
    op.create_index(
        "trigger_firings_due",
        "trigger_firings",
        ["next_at"],
        unique=False,
        postgresql_where=sa.text("next_at IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("trigger_firings_due", table_name="trigger_firings", postgresql_where=sa.text("next_at IS NOT NULL"))
    op.drop_index("trigger_firings_by_trigger", table_name="trigger_firings")
    op.drop_table("trigger_firings")
    op.drop_table("claims")
    op.drop_index("watermarks_due", table_name="watermarks")
    op.drop_table("watermarks")
    op.drop_index("triggers_due", table_name="triggers", postgresql_where=sa.text("enabled AND due_at IS NOT NULL"))
    op.drop_index("triggers_by_agent", table_name="triggers")
    op.drop_index("triggers_by_account", table_name="triggers", postgresql_where="enabled")
    op.drop_table("triggers")
    op.drop_table("outbox")
    op.drop_index("deletions_due", table_name="deletions")
    op.drop_table("deletions")
    op.drop_table("cursors")
    op.drop_table("client_requests")
    op.drop_index("accepted_signatures_due", table_name="accepted_signatures")
    op.drop_table("accepted_signatures")
