-- bucket_sweep - deletes buckets that have expired, some pages at a time.
--
-- $1::bigint   first page, of each partition
-- $2::bigint   first page behind
-- $3::bigint   seconds since they expired
-- $4::bigint   limit
--
-- One row: deleted bigint, pages bigint (of the largest partition), met bigint.
-- As many met as the limit: there may be more in these pages. No index helps,
-- so that none is to be kept up by writes. A bucket that a write holds is
-- passed over: one that has just been given more time is not deleted. Locked
-- in key order, as by all others: SKIP LOCKED does wait where one write has
-- ended this very moment and the next one has the new version already.
WITH met AS MATERIALIZED (
    SELECT
        old.tenant,
        old.name,
        old.duration_seconds,
        old.time_start
    FROM meter.bucket_counter AS old
    WHERE old.ctid >= ('(' || $1::bigint || ',0)')::tid
        AND old.ctid < ('(' || $2::bigint || ',0)')::tid
        AND old.expires_at
        < clock_timestamp() - make_interval(secs => $3::bigint)
    LIMIT $4::bigint
),
expired AS MATERIALIZED (
    SELECT
        old.tenant,
        old.name,
        old.duration_seconds,
        old.time_start
    FROM met
    INNER JOIN meter.bucket_counter AS old
        ON old.tenant = met.tenant
        AND old.name = met.name
        AND old.duration_seconds = met.duration_seconds
        AND old.time_start = met.time_start
    WHERE old.expires_at
        < clock_timestamp() - make_interval(secs => $3::bigint)
    ORDER BY
        old.tenant,
        old.name,
        old.duration_seconds,
        old.time_start
    FOR UPDATE OF old SKIP LOCKED
),
deleted AS (
    DELETE FROM meter.bucket_counter AS held
    USING expired
    WHERE held.tenant = expired.tenant
        AND held.name = expired.name
        AND held.duration_seconds = expired.duration_seconds
        AND held.time_start = expired.time_start
    RETURNING 1
)
SELECT
    (SELECT count(*) FROM deleted) AS deleted,
    (
        SELECT max(pg_relation_size(tree.relid))
        FROM pg_partition_tree('meter.bucket_counter') AS tree
        WHERE tree.isleaf
    ) / current_setting('block_size')::bigint AS pages,
    (SELECT count(*) FROM met) AS met;
