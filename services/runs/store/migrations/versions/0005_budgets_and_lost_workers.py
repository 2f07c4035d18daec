"""budgets, and leases that ran out"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("expiries", sa.Integer(), server_default="0", nullable=False))
    op.add_column("runs", sa.Column("budget_ms", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("runs", "budget_ms")
    op.drop_column("runs", "expiries")
