-- meter_unique_write - keeps values that meter rows have counted now.
--
-- $1::text[]         tenant
-- $2::text[]         metric
-- $3::timestamptz[]  period_start
-- $4::text[]         customer
-- $5::bytea[]        group_key
-- $6::text[]         value
-- $7::boolean[]      is_folded
--
-- No rows; as many touched as given. Values come once each, in bytewise
-- order of the key. Only after meter_lock in the same transaction.
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
    decided.tenant,
    decided.metric,
    decided.period_start,
    decided.customer,
    decided.group_key,
    decided.value,
    decided.is_folded
FROM unnest(
    $1::text[],
    $2::text[],
    $3::timestamptz[],
    $4::text[],
    $5::bytea[],
    $6::text[],
    $7::boolean[]
) AS decided (
    tenant, metric, period_start, customer, group_key, value, is_folded
)
ON CONFLICT (tenant, metric, period_start, customer, group_key, value)
DO UPDATE
SET is_folded = excluded.is_folded;
