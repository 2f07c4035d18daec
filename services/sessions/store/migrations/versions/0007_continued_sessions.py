"""Sessions that go on in another one, and attempts at titles."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def _id(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(collation="C"), nullable=False)


def upgrade() -> None:
    op.add_column("sessions", sa.Column("continued_from", sa.LargeBinary(), nullable=True))
    op.add_column("sessions", sa.Column("continued_to", sa.LargeBinary(), nullable=True))
    op.add_column("sessions", sa.Column("title_attempts", sa.Integer(), server_default="0", nullable=False))
    op.add_column("session_turns", sa.Column("continued_to", sa.Text(collation="C"), nullable=True))
    op.create_table(
        "continuations",
        _id("id"),
        _id("predecessor_id"),
        _id("successor_id"),
        _id("run_id"),
        _id("initiating_event_id"),
        sa.Column("link", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("continuations_by_run", "continuations", ["run_id"], unique=True)
    op.create_index("continuations_by_successor", "continuations", ["successor_id"], unique=True)
    op.create_index("continuations_by_message", "continuations", ["predecessor_id", "initiating_event_id"], unique=True)
    op.create_index("attachments_by_blob", "attachments", ["blob"])


def downgrade() -> None:
    op.drop_index("attachments_by_blob", table_name="attachments")
    op.drop_table("continuations")
    op.drop_column("session_turns", "continued_to")
    for name in ("title_attempts", "continued_to", "continued_from"):
        op.drop_column("sessions", name)
