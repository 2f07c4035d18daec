"""Detached runs resolve their plan steps."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_AWAITED = "parent_tool_call_id IS NOT NULL"
_BOTH = "(parent_tool_call_id IS NOT NULL OR plan_step_id IS NOT NULL)"


def _index(tells: str) -> None:
    op.drop_index("runs_unanswered", table_name="runs")
    where = sa.text(f"{tells} AND NOT answered AND finished_at IS NOT NULL")
    op.create_index("runs_unanswered", "runs", ["finished_at"], postgresql_where=where)


def upgrade() -> None:
    # What has ended before is history.
    op.execute(
        "UPDATE runs SET answered = true WHERE parent_tool_call_id IS NULL AND plan_step_id IS NOT NULL"
        " AND finished_at IS NOT NULL"
    )
    _index(_BOTH)


def downgrade() -> None:
    _index(_AWAITED)
