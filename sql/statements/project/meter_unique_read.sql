-- meter_unique_read - which values these meter rows have counted.
--
-- $1::text[]         tenant
-- $2::text[]         metric
-- $3::timestamptz[]  period_start
-- $4::text[]         customer
-- $5::bytea[]        group_key
-- $6::text[]         value
-- $7::integer[]      the asker's number for it, given back
--
-- Rows, only for known values, in no order: number integer, is_folded
-- boolean (false: only late events had it). Only after meter_lock in the
-- same transaction, which keeps everyone else away from them. LATERAL: one
-- probe of the primary key for each.
SELECT
    asked.number,
    found.is_folded
FROM unnest(
    $1::text[],
    $2::text[],
    $3::timestamptz[],
    $4::text[],
    $5::bytea[],
    $6::text[],
    $7::integer[]
) AS asked (
    tenant, metric, period_start, customer, group_key, value, number
)
CROSS JOIN LATERAL (
    SELECT meter_unique.is_folded
    FROM meter.meter_unique
    WHERE meter_unique.tenant = asked.tenant
        AND meter_unique.metric = asked.metric
        AND meter_unique.period_start = asked.period_start
        AND meter_unique.customer = asked.customer
        AND meter_unique.group_key = asked.group_key
        AND meter_unique.value = asked.value
    LIMIT 1
) AS found;
