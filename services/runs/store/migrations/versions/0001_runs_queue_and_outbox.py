"""runs, queue and outbox"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("account", sa.Text(collation="C"), nullable=False),
        sa.Column("root_run_id", sa.Text(collation="C"), nullable=False),
        sa.Column("parent_run_id", sa.Text(collation="C"), nullable=True),
        sa.Column("parent_tool_call_id", sa.Text(), nullable=True),
        sa.Column("continued_from_run_id", sa.Text(collation="C"), nullable=True),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(collation="C"), nullable=True),
        sa.Column("session_id", sa.Text(collation="C"), nullable=True),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("step_label", sa.Text(), nullable=True),
        sa.Column("plan_step_id", sa.Text(), nullable=True),
        sa.Column("source_text", sa.Text(), nullable=True),
        sa.Column("queue", sa.SmallInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("wait", sa.LargeBinary(), nullable=True),
        sa.Column("plan", sa.LargeBinary(), nullable=True),
        sa.Column("error", sa.LargeBinary(), nullable=True),
        sa.Column("unmet_obligations", sa.LargeBinary(), nullable=True),
        sa.Column("usage", sa.LargeBinary(), nullable=True),
        sa.Column("attempt", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("max_failures", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.BigInteger(), nullable=False),
        sa.Column("lease_until", sa.BigInteger(), nullable=True),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("cancel_requested", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("notify", sa.Text(), nullable=False),
        sa.Column("assistant_event_id", sa.Text(), server_default="", nullable=False),
        sa.Column("error_status", sa.Integer(), server_default="0", nullable=False),
        sa.Column("gone", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("runs_by_agent", "runs", ["agent_id", "created_at"], unique=False)
    op.create_index(
        "runs_by_parent", "runs", ["parent_run_id"], unique=False, postgresql_where=sa.text("parent_run_id IS NOT NULL")
    )
    op.create_index("runs_by_root", "runs", ["root_run_id", "created_at"], unique=False)
    op.create_index("runs_by_session", "runs", ["session_id", "created_at"], unique=False)
    op.create_index(
        "runs_leases",
        "runs",
        ["lease_until"],
        unique=False,
        postgresql_where=sa.text("status IN ('claimed', 'running')"),
    )
    op.create_index(
        "runs_one_live_turn",
        "runs",
        ["session_id"],
        unique=True,
        postgresql_where=sa.text("kind = 'agent' AND status IN ('claimed', 'running')"),
    )
    op.create_index(
        "runs_queue", "runs", ["queue", "created_at", "id"], unique=False, postgresql_where=sa.text("status = 'queued'")
    )


def downgrade() -> None:
    op.drop_index("runs_queue", table_name="runs", postgresql_where=sa.text("status = 'queued'"))
    op.drop_index(
        "runs_one_live_turn",
        table_name="runs",
        postgresql_where=sa.text("kind = 'agent' AND status IN ('claimed', 'running')"),
    )
    op.drop_index("runs_leases", table_name="runs", postgresql_where=sa.text("status IN ('claimed', 'running')"))
    op.drop_index("runs_by_session", table_name="runs")
    op.drop_index("runs_by_root", table_name="runs")
    op.drop_index("runs_by_parent", table_name="runs", postgresql_where=sa.text("parent_run_id IS NOT NULL"))
    op.drop_index("runs_by_agent", table_name="runs")
    op.drop_table("runs")
    op.drop_table("outbox")
