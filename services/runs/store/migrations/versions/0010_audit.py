"""What operators did to runs and workers."""

import sqlalchemy as sa
from alembic import op

from libs.store.audit import APPEND_ONLY

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        *(
            sa.Column(name, sa.Text(collation="C"), nullable=False)
            for name in ("account", "actor", "signer", "via", "action", "subject", "detail")
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("audit_account", "audit", ["account", "id"])
    for statement in APPEND_ONLY:
        op.execute(statement)


def downgrade() -> None:
    op.drop_table("audit")
    op.execute("DROP FUNCTION audit_is_append_only()")
