-- recount_meters - meter rows of a tenant as they are.
--
-- $1::text         tenant
-- $2::text         metric, NULL: all
-- $3::timestamptz  period_start at or after, NULL: any
--
-- Rows: metric text, period_start timestamptz, customer text, group_key
-- bytea, groups text, sum numeric, count bigint, min, max, last numeric or
-- NULL, last_ts, last_recorded_at timestamptz or NULL, last_writer uuid or
-- NULL, last_seq bigint or NULL, uniques bigint, watermark_ts timestamptz or
-- NULL, late_sum numeric, late_count bigint, late_min, late_max, late_last
-- numeric, late_last_ts, late_last_recorded_at timestamptz, late_last_writer
-- uuid, late_last_seq bigint, late_uniques bigint, manual_sum numeric, all or
-- NULL, updated_at timestamptz, made_at timestamptz or NULL.
SELECT
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
    late_sum,
    late_count,
    late_min,
    late_max,
    late_last,
    late_last_ts,
    late_last_recorded_at,
    late_last_writer,
    late_last_seq,
    late_uniques,
    manual_sum,
    updated_at,
    made_at
FROM meter.meter_counter
WHERE tenant = $1::text
    AND ($2::text IS NULL OR metric = $2::text)
    AND ($3::timestamptz IS NULL OR period_start >= $3::timestamptz);
