-- recount_uniques_insert - puts values of `unique` meters in.
--
-- $1::text           tenant
-- $2::text[]         metric
-- $3::timestamptz[]  period_start
-- $4::text[]         customer
-- $5::bytea[]        group_key
-- $6::text[]         value
-- $7::smallint[]     is_folded: 0 or 1
--
-- No rows.
INSERT INTO meter.meter_unique (
    tenant,
    metric,
    period_start,
    customer,
    group_key,
    value,
    is_folded
)
SELECT
    $1::text,
    made.metric,
    made.period_start,
    made.customer,
    made.group_key,
    made.value,
    made.is_folded <> 0
FROM unnest(
    $2::text[],
    $3::timestamptz[],
    $4::text[],
    $5::bytea[],
    $6::text[],
    $7::smallint[]
) AS made (metric, period_start, customer, group_key, value, is_folded);
