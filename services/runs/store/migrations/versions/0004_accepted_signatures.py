"""accepted signatures"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "accepted_signatures",
        sa.Column("signature_hash", sa.LargeBinary(), nullable=False),
        sa.Column("account", sa.Text(collation="C"), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("signature_hash"),
    )
    op.create_index("accepted_signatures_due", "accepted_signatures", ["expires_at"])


def downgrade() -> None:
    op.drop_table("accepted_signatures")
