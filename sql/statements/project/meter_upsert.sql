-- meter_upsert - adds the folded events of a transaction to meter rows.
--
-- $1::text[]          tenant
-- $2::text[]          metric
-- $3::timestamptz[]   period_start
-- $4::text[]          customer
-- $5::bytea[]         group_key
-- $6::text[]          groups
-- $7::numeric[]       sum
-- $8::bigint[]        count
-- $9::numeric[]       min, NULL as are max to last_seq: no value is kept
-- $10::numeric[]      max
-- $11::numeric[]      last
-- $12::timestamptz[]  last_ts
-- $13::bigint[]       last_seq
-- $14::timestamptz[]  watermark_ts: greatest min(ts, clock)
-- $15::timestamptz[]  step_limit: least ts + lateness
-- $16::uuid           last_writer
-- $17::timestamptz    recorded_at
-- $18::timestamptz    clock
--
-- No rows. Fewer touched than given: a row was passed over, and the careful
-- path decides. That is: its watermark stands behind step_limit, so that
-- some event is too late (one that a clock ahead has left counts as now); two sets of groups share a key; or it is so large
-- (10^28, 2^61) that a figure or total could leave 38 digits, or a count 64
-- bits. Keys come once each, in bytewise order of (tenant, metric,
-- period_start, customer, group_key), which is the order of locking.
-- step_limit only carries to DO UPDATE. What `unique` meters count comes
-- with meter_unique_fold.
INSERT INTO meter.meter_counter (
    tenant,
    metric,
    period_start,
    customer,
    group_key,
    groups,
    sum,
    count,
    min,
    max,
    last,
    last_ts,
    last_recorded_at,
    last_writer,
    last_seq,
    uniques,
    watermark_ts,
    updated_at,
    step_limit
)
SELECT
    folded.tenant,
    folded.metric,
    folded.period_start,
    folded.customer,
    folded.group_key,
    folded.groups,
    folded.sum,
    folded.count,
    folded.min,
    folded.max,
    folded.last,
    folded.last_ts,
    CASE WHEN folded.last_ts IS NOT NULL THEN $17::timestamptz END,
    CASE WHEN folded.last_ts IS NOT NULL THEN $16::uuid END,
    folded.last_seq,
    0,
    folded.watermark_ts,
    $18::timestamptz,
    folded.step_limit
FROM unnest(
    $1::text[],
    $2::text[],
    $3::timestamptz[],
    $4::text[],
    $5::bytea[],
    $6::text[],
    $7::numeric[],
    $8::bigint[],
    $9::numeric[],
    $10::numeric[],
    $11::numeric[],
    $12::timestamptz[],
    $13::bigint[],
    $14::timestamptz[],
    $15::timestamptz[]
) AS folded (
    tenant,
    metric,
    period_start,
    customer,
    group_key,
    groups,
    sum,
    count,
    min,
    max,
    last,
    last_ts,
    last_seq,
    watermark_ts,
    step_limit
)
ON CONFLICT (tenant, metric, period_start, customer, group_key) DO UPDATE
SET
    sum = meter_counter.sum + excluded.sum,
    count = meter_counter.count + excluded.count,
    min = LEAST(meter_counter.min, excluded.min),
    max = GREATEST(meter_counter.max, excluded.max),
    last = CASE
        WHEN (
            meter_counter.last_ts,
            meter_counter.last_recorded_at,
            meter_counter.last_writer,
            meter_counter.last_seq
        ) >= (
            excluded.last_ts,
            excluded.last_recorded_at,
            excluded.last_writer,
            excluded.last_seq
        ) THEN meter_counter.last
        ELSE COALESCE(excluded.last, meter_counter.last)
    END,
    last_ts = CASE
        WHEN (
            meter_counter.last_ts,
            meter_counter.last_recorded_at,
            meter_counter.last_writer,
            meter_counter.last_seq
        ) >= (
            excluded.last_ts,
            excluded.last_recorded_at,
            excluded.last_writer,
            excluded.last_seq
        ) THEN meter_counter.last_ts
        ELSE COALESCE(excluded.last_ts, meter_counter.last_ts)
    END,
    last_recorded_at = CASE
        WHEN (
            meter_counter.last_ts,
            meter_counter.last_recorded_at,
            meter_counter.last_writer,
            meter_counter.last_seq
        ) >= (
            excluded.last_ts,
            excluded.last_recorded_at,
            excluded.last_writer,
            excluded.last_seq
        ) THEN meter_counter.last_recorded_at
        ELSE COALESCE(
            excluded.last_recorded_at, meter_counter.last_recorded_at
        )
    END,
    last_writer = CASE
        WHEN (
            meter_counter.last_ts,
            meter_counter.last_recorded_at,
            meter_counter.last_writer,
            meter_counter.last_seq
        ) >= (
            excluded.last_ts,
            excluded.last_recorded_at,
            excluded.last_writer,
            excluded.last_seq
        ) THEN meter_counter.last_writer
        ELSE COALESCE(excluded.last_writer, meter_counter.last_writer)
    END,
    last_seq = CASE
        WHEN (
            meter_counter.last_ts,
            meter_counter.last_recorded_at,
            meter_counter.last_writer,
            meter_counter.last_seq
        ) >= (
            excluded.last_ts,
            excluded.last_recorded_at,
            excluded.last_writer,
            excluded.last_seq
        ) THEN meter_counter.last_seq
        ELSE COALESCE(excluded.last_seq, meter_counter.last_seq)
    END,
    watermark_ts = GREATEST(meter_counter.watermark_ts, excluded.watermark_ts),
    updated_at = GREATEST(meter_counter.updated_at, excluded.updated_at),
    step_limit = NULL
WHERE (
        meter_counter.watermark_ts IS NULL
        OR LEAST(meter_counter.watermark_ts, $18::timestamptz)
        <= excluded.step_limit
    )
    AND meter_counter.groups = excluded.groups
    AND meter_counter.sum BETWEEN -1e28 AND 1e28
    AND COALESCE(meter_counter.min, 0) >= -1e28
    AND COALESCE(meter_counter.max, 0) <= 1e28
    AND meter_counter.count <= 2305843009213693952
    AND (
        meter_counter.late_sum IS NULL
        OR (
            meter_counter.late_sum BETWEEN -1e28 AND 1e28
            AND COALESCE(meter_counter.late_min, 0) >= -1e28
            AND COALESCE(meter_counter.late_max, 0) <= 1e28
            AND meter_counter.late_count <= 2305843009213693952
        )
    )
    AND COALESCE(meter_counter.manual_sum, 0) BETWEEN -1e28 AND 1e28;
