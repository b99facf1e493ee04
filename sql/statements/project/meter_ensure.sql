-- meter_ensure - makes the meter rows that do not exist yet, empty, and locks
-- all others.
--
-- $1::text[]         tenant
-- $2::text[]         metric
-- $3::timestamptz[]  period_start
-- $4::text[]         customer
-- $5::bytea[]        group_key
-- $6::text[]         groups
-- $7::timestamptz    updated_at: the clock
--
-- No rows. Keys come once each, in bytewise order of (tenant, metric,
-- period_start, customer, group_key), and are locked in it, whether they are
-- old or new: WHERE false locks a row that is there and does not change it.
-- The careful path calls meter_lock after it, in the same transaction, and
-- meter_write with what it decided.
INSERT INTO meter.meter_counter (
    tenant,
    metric,
    period_start,
    customer,
    group_key,
    groups,
    sum,
    count,
    uniques,
    updated_at
)
SELECT
    asked.tenant,
    asked.metric,
    asked.period_start,
    asked.customer,
    asked.group_key,
    asked.groups,
    0,
    0,
    0,
    $7::timestamptz
FROM unnest(
    $1::text[],
    $2::text[],
    $3::timestamptz[],
    $4::text[],
    $5::bytea[],
    $6::text[]
) AS asked (tenant, metric, period_start, customer, group_key, groups)
ON CONFLICT (tenant, metric, period_start, customer, group_key) DO UPDATE
SET updated_at = meter_counter.updated_at
WHERE false;
