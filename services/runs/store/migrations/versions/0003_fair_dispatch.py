"""fair dispatch, workers"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# Accounts with queued runs, in the order of their ids, from the one after p_after on and round to it again.
# A step of the recursion is one look into the index: what it costs is the number of accounts, not of runs.
ACCOUNTS = """
CREATE FUNCTION runs_accounts(p_after text, p_most bigint) RETURNS SETOF text
LANGUAGE sql STABLE AS $$
  WITH RECURSIVE later AS (
    (SELECT r.account FROM runs r WHERE r.status = 'queued' AND r.account > p_after ORDER BY r.account LIMIT 1)
    UNION ALL
    SELECT (
      SELECT r.account FROM runs r WHERE r.status = 'queued' AND r.account > l.account ORDER BY r.account LIMIT 1
    ) FROM later l WHERE l.account IS NOT NULL
  ),
  earlier AS (
    (SELECT r.account FROM runs r WHERE r.status = 'queued' AND r.account <= p_after ORDER BY r.account LIMIT 1)
    UNION ALL
    SELECT (
      SELECT r.account FROM runs r
      WHERE r.status = 'queued' AND r.account > e.account AND r.account <= p_after ORDER BY r.account LIMIT 1
    ) FROM earlier e WHERE e.account IS NOT NULL
  )
  SELECT ring.account
  FROM (SELECT l.account FROM later l UNION ALL SELECT e.account FROM earlier e) ring
  WHERE ring.account IS NOT NULL
  LIMIT p_most
$$
"""

# Runs of these accounts that could be claimed now, within the accounts' limits; store/dispatch.py says in which order.
# It reads no more than p_most of an account's runs, but for those that wait for their own session.
DUE = """
CREATE FUNCTION runs_due(
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
        AND q.not_before <= p_now
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

# In a function, so that what it counts is read after the lock is held, and no client can stall while holding it.
# The settings keep a plan made on an empty table from reading the whole of a full one.
CLAIM = """
CREATE FUNCTION claim_runs(
  p_worker text, p_slots bigint, p_now bigint, p_lease_until bigint, p_accounts bigint,
  p_running bigint, p_background bigint, p_hourly bigint
) RETURNS SETOF runs
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  -- Some more than wanted, in place of those that a cancel holds in this moment.
  v_wanted CONSTANT bigint := p_slots + 8;
  v_accounts text[];
  v_most bigint;
  v_ids text[];
BEGIN
  -- With nothing queued nobody has to wait for the others.
  IF NOT EXISTS (SELECT FROM runs r WHERE r.status = 'queued') THEN
    RETURN;
  END IF;
  PERFORM pg_advisory_xact_lock('runs'::regclass::oid::bigint);
  -- The lock ends with the commit, and nobody is to wait behind the disk. The claimer does, before it begins.
  PERFORM set_config('synchronous_commit', 'off', true);
  v_accounts := ARRAY(SELECT runs_accounts((SELECT r.after FROM dispatch_ring r), p_accounts));
  IF cardinality(v_accounts) = 0 THEN
    RETURN;
  ELSIF cardinality(v_accounts) = p_accounts THEN
    UPDATE dispatch_ring SET after = v_accounts[p_accounts];
  END IF;
  -- Of many accounts few runs each are enough; unless few of the accounts have any that are due.
  v_most := least(v_wanted, 2 * v_wanted / cardinality(v_accounts) + 1);
  LOOP
    v_ids := ARRAY(
      SELECT d.id FROM runs_due(v_accounts, p_now, v_most, p_running, p_background, p_hourly) d
      ORDER BY d.load, d.served, d.created_at, d.id LIMIT v_wanted
    );
    EXIT WHEN v_most >= v_wanted OR cardinality(v_ids) >= p_slots OR cardinality(v_ids) < v_most;
    v_most := v_wanted;
  END LOOP;
  RETURN QUERY
  WITH pick AS (
    SELECT r.id
    FROM unnest(v_ids) WITH ORDINALITY d (id, place) JOIN runs r ON r.id = d.id
    WHERE r.status = 'queued'
    ORDER BY d.place
    LIMIT p_slots
    FOR UPDATE OF r SKIP LOCKED
  )
  UPDATE runs t SET
    status = 'running',
    attempt = t.attempt + 1,
    worker = p_worker,
    lease_until = p_lease_until,
    started_at = coalesce(t.started_at, greatest(t.created_at, p_now)),
    updated_at = greatest(t.updated_at, p_now),
    version = t.version + 1
  FROM pick WHERE t.id = pick.id
  RETURNING t.*;
END
$$
"""

_OPEN = "status IN ('queued', 'claimed', 'running', 'waiting')"


def upgrade() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("held", sa.Integer(), nullable=False),
        sa.Column("draining", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "runs_open", "runs", ["status", "account", "queue", "created_at", "id"], postgresql_where=sa.text(_OPEN)
    )
    op.create_index(
        "runs_queued_by_session",
        "runs",
        ["session_id", "created_at", "id"],
        postgresql_where=sa.text("status = 'queued'"),
    )
    op.create_index(
        "runs_started", "runs", ["account", "started_at"], postgresql_where=sa.text("started_at IS NOT NULL")
    )
    op.create_index("runs_by_account", "runs", ["account", "created_at", "id"])
    op.create_index("runs_by_time", "runs", ["created_at", "id"])
    op.create_index(
        "runs_without_success",
        "runs",
        ["status", "created_at", "id"],
        postgresql_where=sa.text("status IN ('failed', 'canceled')"),
    )
    op.drop_index("runs_queue", table_name="runs")
    op.drop_index("runs_leases", table_name="runs")
    op.create_table("dispatch_ring", sa.Column("after", sa.Text(collation="C"), nullable=False))
    op.execute("INSERT INTO dispatch_ring VALUES ('')")
    op.execute(ACCOUNTS)
    op.execute(DUE)
    op.execute(CLAIM)


def downgrade() -> None:
    op.execute("DROP FUNCTION claim_runs")
    op.execute("DROP FUNCTION runs_due")
    op.execute("DROP FUNCTION runs_accounts")
    op.drop_table("dispatch_ring")
    op.create_index(
        "runs_leases", "runs", ["lease_until"], postgresql_where=sa.text("status IN ('claimed', 'running')")
    )
    op.create_index("runs_queue", "runs", ["queue", "created_at", "id"], postgresql_where=sa.text("status = 'queued'"))
    made = ("without_success", "by_time", "by_account", "started", "queued_by_session", "open")
    for name in (f"runs_{index}" for index in made):
        op.drop_index(name, table_name="runs")
    op.drop_table("workers")
