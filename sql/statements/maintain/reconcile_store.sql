-- reconcile_store - what a comparison with the ledger has found.
--
-- $1::text[]     projections
-- $2::integer[]  exit status that each alone would give
-- $3::bigint[]   differences of each
--
-- No rows. In key order, as by all others.
INSERT INTO meter.reconcile_result AS old (
    projection,
    status,
    differences,
    finished_at
)
SELECT
    given.projection,
    given.status,
    given.differences,
    clock_timestamp()
FROM unnest($1::text [], $2::integer [], $3::bigint [])
    AS given (projection, status, differences)
ORDER BY given.projection COLLATE "C"
ON CONFLICT (projection) DO UPDATE
SET
    status = excluded.status,
    differences = excluded.differences,
    finished_at = excluded.finished_at;
