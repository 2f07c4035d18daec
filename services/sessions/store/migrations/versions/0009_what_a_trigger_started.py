"""what a trigger started"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "session_triggers",
        sa.Column("session_id", sa.Text(collation="C"), nullable=False),
        sa.Column("trigger_id", sa.Text(collation="C"), nullable=False),
        sa.Column("context", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("session_id"),
    )
    op.create_index("session_triggers_by_trigger", "session_triggers", ["trigger_id"])


def downgrade() -> None:
    op.drop_table("session_triggers")
