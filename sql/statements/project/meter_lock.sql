-- meter_lock - one tenant's meter rows, locked in key order.
--
-- $1::text           tenant
-- $2::text[]         metric
-- $3::timestamptz[]  period_start
-- $4::text[]         customer
-- $5::bytea[]        group_key
-- $6::integer[]      the asker's number for it, given back
--
-- Rows: number integer, groups text; of the folded events sum numeric,
-- count bigint, min, max, last numeric, last_ts, last_recorded_at
-- timestamptz, last_writer uuid, last_seq bigint (min to last_seq NULL: no
-- value), uniques bigint; watermark_ts timestamptz, NULL: nothing folded;
-- the same ten of the late ones, late_sum NULL: there is none; manual_sum
-- numeric or NULL. One tenant per statement, tenants in bytewise order, keys
-- of a tenant in bytewise order; rows exist after meter_ensure. LATERAL: one
-- probe of the primary key for each.
SELECT
    asked.number,
    locked.groups,
    locked.sum,
    locked.count,
    locked.min,
    locked.max,
    locked.last,
    locked.last_ts,
    locked.last_recorded_at,
    locked.last_writer,
    locked.last_seq,
    locked.uniques,
    locked.watermark_ts,
    locked.late_sum,
    locked.late_count,
    locked.late_min,
    locked.late_max,
    locked.late_last,
    locked.late_last_ts,
    locked.late_last_recorded_at,
    locked.late_last_writer,
    locked.late_last_seq,
    locked.late_uniques,
    locked.manual_sum
FROM unnest(
    $2::text[],
    $3::timestamptz[],
    $4::text[],
    $5::bytea[],
    $6::integer[]
) AS asked (metric, period_start, customer, group_key, number)
CROSS JOIN LATERAL (
    SELECT meter_counter.*
    FROM meter.meter_counter
    WHERE meter_counter.tenant = $1::text
        AND meter_counter.metric = asked.metric
        AND meter_counter.period_start = asked.period_start
        AND meter_counter.customer = asked.customer
        AND meter_counter.group_key = asked.group_key
    FOR UPDATE
) AS locked;
