"""new agents whose first trigger is still to be made"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "newcomers",
        sa.Column("agent_id", sa.Text(collation="C"), nullable=False),
        sa.Column("owner", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("signing_account", sa.Text(collation="C"), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=False),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("agent_id"),
    )
    op.create_index("newcomers_due", "newcomers", ["next_at"], unique=False)


def downgrade() -> None:
    op.drop_index("newcomers_due", table_name="newcomers")
    op.drop_table("newcomers")
