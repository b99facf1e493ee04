-- close_freeze - no one folds into a closed period any more.
--
-- $1::text         tenant
-- $2::text         metric
-- $3::timestamptz  period_start
--
-- Row: closed_at timestamptz. In a transaction behind that of close_begin:
-- passes through the writer_seq lock of every writer. Whoever held one may
-- have missed the close, whoever takes one later sees it. Rows of writers
-- that are gone are held by no one. 55P03: one is held for too long.
WITH passed AS MATERIALIZED (
    SELECT writer
    FROM meter.writer_seq
    ORDER BY writer
    FOR UPDATE
)
UPDATE meter.meter_close
SET frozen_at = COALESCE(frozen_at, clock_timestamp())
WHERE tenant = $1::text
    AND metric = $2::text
    AND period_start = $3::timestamptz
    AND (SELECT count(*) FROM passed) >= 0
RETURNING closed_at;
