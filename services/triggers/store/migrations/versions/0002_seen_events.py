"""Seen events as rows, and leases of feeds."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_column("watermarks", "seen")
    op.alter_column("watermarks", "begun", server_default=sa.false())
    op.alter_column("watermarks", "checked_at", nullable=True)
    op.add_column("watermarks", sa.Column("lease", sa.Text(), nullable=True))
    op.add_column("watermarks", sa.Column("leased_until", sa.BigInteger(), nullable=True))
    op.create_table(
        "seen_events",
        sa.Column("account", sa.Text(collation="C"), nullable=False),
        sa.Column("event_key", sa.Text(collation="C"), nullable=False),
        sa.Column("position", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.ForeignKeyConstraint(["account"], ["watermarks.account"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("account", "event_key"),
    )
    op.create_index("seen_events_by_position", "seen_events", ["account", "position"], unique=False)


def downgrade() -> None:
    op.drop_index("seen_events_by_position", table_name="seen_events")
    op.drop_table("seen_events")
    op.drop_column("watermarks", "leased_until")
    op.drop_column("watermarks", "lease")
    op.alter_column("watermarks", "checked_at", nullable=False)
    op.alter_column("watermarks", "begun", server_default=None)
    op.add_column("watermarks", sa.Column("seen", sa.ARRAY(sa.Text()), nullable=False))
