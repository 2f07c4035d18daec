"""answers of signed calls"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Keep what signed calls were answered."""
    op.add_column("accepted_signatures", sa.Column("answer", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    """Forget it."""
    op.drop_column("accepted_signatures", "answer")
