"""ended runs and delivered signals"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ended_runs",
        sa.Column("xid", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("n", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("run_id", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("xid", "n"),
    )
    op.create_table(
        "signal_deliveries",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("run_id", sa.Text(collation="C"), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("signal_deliveries_by_time", "signal_deliveries", ["created_at"])
    # Whoever ends a run and however, it is noted.
    op.execute(
        """
        create function note_ended_run() returns trigger language plpgsql as $$
        begin
            insert into ended_runs (xid, run_id) values (pg_current_xact_id()::text::bigint, new.id);
            return null;
        end $$
        """
    )
    op.execute(
        """
        create trigger runs_end after update of status on runs for each row
        when (new.status in ('succeeded', 'failed', 'canceled')
              and old.status not in ('succeeded', 'failed', 'canceled'))
        execute function note_ended_run()
        """
    )


def downgrade() -> None:
    op.execute("drop trigger runs_end on runs")
    op.execute("drop function note_ended_run")
    op.drop_table("signal_deliveries")
    op.drop_table("ended_runs")
