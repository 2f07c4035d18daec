"""Runs that were queued behind others of their session are not looked at by claims."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_OPEN = "status IN ('queued', 'claimed', 'running', 'waiting')"

# As in 0003, but for the runs that are passed over.
DUE = """
CREATE OR REPLACE FUNCTION runs_due(
  p_accounts text[], p_now bigint, p_most bigint, p_running bigint, p_background bigint, p_hourly bigint
) RETURNS TABLE (id text, load bigint, served bigint, created_at bigint)
LANGUAGE sql STABLE AS $$
  WITH shares AS MATERIALIZED (
    SELECT a.account, l.live, l.background,
      (SELECT s.started_at FROM runs s
        WHERE s.account = a.account AND s.started_at IS NOT NULL ORDER BY s.started_at DESC LIMIT 1) AS served,
      CASE WHEN p_hourly > 0 THEN p_hourly - (
        SELECT count(*) FROM (
          SELECT FROM runs h WHERE h.account = a.account AND h.started_at > p_now - 3600000 LIMIT p_hourly
        ) started
      ) ELSE p_most END AS fresh
    FROM unnest(p_accounts) a (account) CROSS JOIN LATERAL (
      SELECT count(*) AS live, count(*) FILTER (WHERE v.queue = 1) AS background
      FROM runs v WHERE v.status IN ('claimed', 'running') AND v.account = a.account
    ) l
  ),
  ranked AS (
    SELECT c.id, c.created_at, c.started_at, s.served, s.fresh,
      s.live + row_number() OVER (PARTITION BY s.account ORDER BY c.queue, c.created_at, c.id) AS load,
      row_number() OVER (PARTITION BY s.account, c.started_at IS NULL ORDER BY c.queue, c.created_at, c.id) AS place
    FROM shares s
    CROSS JOIN (VALUES (0), (1)) AS kinds (queue)
    CROSS JOIN LATERAL (
      SELECT q.id, q.queue, q.created_at, q.started_at
      FROM runs q
      WHERE q.status = 'queued' AND q.account = s.account AND q.queue = kinds.queue
        AND {passed_over}q.not_before <= p_now
        AND (s.fresh > 0 OR q.started_at IS NOT NULL)
        -- Scalar subqueries: as joins they would be planned for whatever number of live runs there was at that time.
        AND (
          SELECT true FROM runs o
          WHERE o.session_id = q.session_id AND o.kind = 'agent' AND o.status IN ('claimed', 'running') LIMIT 1
        ) IS NULL
        AND (
          SELECT true FROM runs e
          WHERE e.session_id = q.session_id AND e.status = 'queued' AND (e.created_at, e.id) < (q.created_at, q.id)
          LIMIT 1
        ) IS NULL
      ORDER BY q.created_at, q.id
      LIMIT greatest(0, least(
        p_most, p_running - s.live, CASE kinds.queue WHEN 1 THEN p_background - s.background ELSE p_most END
      ))
    ) c
    WHERE s.live < p_running
  )
  SELECT d.id, d.load, coalesce(d.served, 0), d.created_at
  FROM ranked d
  WHERE d.load <= p_running AND (d.started_at IS NOT NULL OR d.place <= d.fresh)
$$
"""


def _index(*between: str) -> None:
    op.drop_index("runs_open", table_name="runs")
    columns = ["status", "account", *between, "queue", "created_at", "id"]
    op.create_index("runs_open", "runs", columns, postgresql_where=sa.text(_OPEN))


def upgrade() -> None:
    for name in ("behind", "followed"):
        op.add_column("runs", sa.Column(name, sa.Boolean(), server_default=sa.false(), nullable=False))
    _index("behind")
    op.drop_index("runs_by_account", table_name="runs")
    op.create_index("runs_by_account", "runs", [sa.text("(account || '')"), "created_at", "id"])
    op.execute(DUE.format(passed_over="NOT q.behind AND "))


def downgrade() -> None:
    op.execute(DUE.format(passed_over=""))
    op.drop_index("runs_by_account", table_name="runs")
    op.create_index("runs_by_account", "runs", ["account", "created_at", "id"])
    _index()
    for name in ("followed", "behind"):
        op.drop_column("runs", name)
