-- meter_write - sets locked meter rows to what was decided for them.
--
-- $1::text[]          tenant
-- $2::text[]          metric
-- $3::timestamptz[]   period_start
-- $4::text[]          customer
-- $5::bytea[]         group_key
-- $6::numeric[]       sum
-- $7::bigint[]        count
-- $8::numeric[]       min, NULL as are max to last_seq: no value
-- $9::numeric[]       max
-- $10::numeric[]      last
-- $11::timestamptz[]  last_ts
-- $12::timestamptz[]  last_recorded_at
-- $13::uuid[]         last_writer
-- $14::bigint[]       last_seq
-- $15::bigint[]       uniques
-- $16::timestamptz[]  watermark_ts, NULL: nothing folded
-- $17..$26            late_sum to late_uniques, as $6 to $15; late_sum,
--                     late_count and late_uniques NULL: none is late
-- $27::timestamptz    updated_at: the clock
--
-- No rows; as many updated as given. Only after meter_lock in the same
-- transaction.
UPDATE meter.meter_counter
SET
    sum = decided.sum,
    count = decided.count,
    min = decided.min,
    max = decided.max,
    last = decided.last,
    last_ts = decided.last_ts,
    last_recorded_at = decided.last_recorded_at,
    last_writer = decided.last_writer,
    last_seq = decided.last_seq,
    uniques = decided.uniques,
    watermark_ts = decided.watermark_ts,
    late_sum = decided.late_sum,
    late_count = decided.late_count,
    late_min = decided.late_min,
    late_max = decided.late_max,
    late_last = decided.late_last,
    late_last_ts = decided.late_last_ts,
    late_last_recorded_at = decided.late_last_recorded_at,
    late_last_writer = decided.late_last_writer,
    late_last_seq = decided.late_last_seq,
    late_uniques = decided.late_uniques,
    updated_at = GREATEST(meter_counter.updated_at, $27::timestamptz),
    step_limit = NULL
FROM unnest(
    $1::text[],
    $2::text[],
    $3::timestamptz[],
    $4::text[],
    $5::bytea[],
    $6::numeric[],
    $7::bigint[],
    $8::numeric[],
    $9::numeric[],
    $10::numeric[],
    $11::timestamptz[],
    $12::timestamptz[],
    $13::uuid[],
    $14::bigint[],
    $15::bigint[],
    $16::timestamptz[],
    $17::numeric[],
    $18::bigint[],
    $19::numeric[],
    $20::numeric[],
    $21::numeric[],
    $22::timestamptz[],
    $23::timestamptz[],
    $24::uuid[],
    $25::bigint[],
    $26::bigint[]
) AS decided (
    tenant,
    metric,
    period_start,
    customer,
    group_key,
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
    late_uniques
)
WHERE meter_counter.tenant = decided.tenant
    AND meter_counter.metric = decided.metric
    AND meter_counter.period_start = decided.period_start
    AND meter_counter.customer = decided.customer
    AND meter_counter.group_key = decided.group_key;
