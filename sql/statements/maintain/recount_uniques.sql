-- recount_uniques - values that a tenant's `unique` meters have counted.
--
-- $1::text         tenant
-- $2::text         metric, NULL: all
-- $3::timestamptz  period_start at or after, NULL: any
--
-- Rows: metric text, period_start timestamptz, customer text, group_key
-- bytea, value text, is_folded boolean.
SELECT
    metric,
    period_start,
    customer,
    group_key,
    value,
    is_folded
FROM meter.meter_unique
WHERE tenant = $1::text
    AND ($2::text IS NULL OR metric = $2::text)
    AND ($3::timestamptz IS NULL OR period_start >= $3::timestamptz);
