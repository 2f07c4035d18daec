"""delegated runs"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("output", sa.LargeBinary(), nullable=True))
    op.add_column("runs", sa.Column("wait_calls", sa.ARRAY(sa.Text()), server_default="{}", nullable=False))
    op.add_column("runs", sa.Column("answered", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    op.add_column("runs", sa.Column("children_usage", sa.LargeBinary(), nullable=True))
    op.create_index(
        "runs_unanswered",
        "runs",
        ["finished_at"],
        unique=False,
        postgresql_where=sa.text("parent_tool_call_id IS NOT NULL AND NOT answered AND finished_at IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index(
        "runs_unanswered",
        table_name="runs",
        postgresql_where=sa.text("parent_tool_call_id IS NOT NULL AND NOT answered AND finished_at IS NOT NULL"),
    )
    op.drop_column("runs", "children_usage")
    op.drop_column("runs", "answered")
    op.drop_column("runs", "wait_calls")
    op.drop_column("runs", "output")
