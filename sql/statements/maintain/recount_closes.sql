-- recount_closes - a tenant's periods that are closed, or about to be.
--
-- $1::text         tenant
-- $2::text         metric, NULL: all
-- $3::timestamptz  period_start at or after, NULL: any
--
-- Rows: metric text, period_start timestamptz.
SELECT
    metric,
    period_start
FROM meter.meter_close
WHERE tenant = $1::text
    AND ($2::text IS NULL OR metric = $2::text)
    AND ($3::timestamptz IS NULL OR period_start >= $3::timestamptz);
