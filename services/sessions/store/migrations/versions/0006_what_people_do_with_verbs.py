"""What people do with the verbs of agents."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sessions", sa.Column("user_actions", sa.Integer(), server_default="0", nullable=False))
    op.create_check_constraint("sessions_user_actions", "sessions", "user_actions >= 0")
    op.create_table(
        "user_actions",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("session_id", sa.Text(collation="C"), nullable=False),
        sa.Column("verb", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("user_actions_by_session", "user_actions", ["session_id"])
    op.create_index("user_actions_due", "user_actions", ["expires_at"])


def downgrade() -> None:
    op.drop_table("user_actions")
    op.drop_constraint("sessions_user_actions", "sessions")
    op.drop_column("sessions", "user_actions")
