"""turns know who delegated them"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("session_turns", sa.Column("parent_run_id", sa.Text(), server_default="", nullable=False))
    op.add_column("session_turns", sa.Column("parent_tool_call_id", sa.Text(), server_default="", nullable=False))
    op.add_column("session_turns", sa.Column("root_run_id", sa.Text(), server_default="", nullable=False))
    op.add_column("session_turns", sa.Column("depth", sa.Integer(), server_default="0", nullable=False))
    op.add_column("session_turns", sa.Column("spec", sa.LargeBinary(), nullable=True))
    op.add_column("session_turns", sa.Column("plan_step_id", sa.Text(), server_default="", nullable=False))
    op.add_column("session_turns", sa.Column("step_label", sa.Text(), server_default="", nullable=False))


def downgrade() -> None:
    op.drop_column("session_turns", "step_label")
    op.drop_column("session_turns", "plan_step_id")
    op.drop_column("session_turns", "spec")
    op.drop_column("session_turns", "depth")
    op.drop_column("session_turns", "root_run_id")
    op.drop_column("session_turns", "parent_tool_call_id")
    op.drop_column("session_turns", "parent_run_id")
