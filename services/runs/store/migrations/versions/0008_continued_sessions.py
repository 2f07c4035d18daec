"""Runs whose session went on in another one."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("continued_to", sa.Text(), server_default="", nullable=False))


def downgrade() -> None:
    op.drop_column("runs", "continued_to")
