-- recount_meters_insert - puts meter rows in.
--
-- $1::text            tenant
-- $2::text[]          metric
-- $3::timestamptz[]   period_start
-- $4::text[]          customer
-- $5::bytea[]         group_key
-- $6::text[]          groups
-- $7::numeric[]       sum
-- $8::bigint[]        count
-- $9::numeric[]       min
-- $10::numeric[]      max
-- $11::numeric[]      last
-- $12::timestamptz[]  last_ts
-- $13::timestamptz[]  last_recorded_at
-- $14::uuid[]         last_writer
-- $15::bigint[]       last_seq
-- $16::bigint[]       uniques
-- $17::timestamptz[]  watermark_ts
-- $18::numeric[]      late_sum
-- $19::bigint[]       late_count
-- $20::numeric[]      late_min
-- $21::numeric[]      late_max
-- $22::numeric[]      late_last
-- $23::timestamptz[]  late_last_ts
-- $24::timestamptz[]  late_last_recorded_at
-- $25::uuid[]         late_last_writer
-- $26::bigint[]       late_last_seq
-- $27::bigint[]       late_uniques
-- $28::numeric[]      manual_sum
-- $29::timestamptz[]  updated_at
--
-- No rows. NULL elements where the table allows them.
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
    updated_at
)
SELECT
    $1::text,
    made.metric,
    made.period_start,
    made.customer,
    made.group_key,
    made.groups,
    made.sum,
    made.count,
    made.min,
    made.max,
    made.last,
    made.last_ts,
    made.last_recorded_at,
    made.last_writer,
    made.last_seq,
    made.uniques,
    made.watermark_ts,
    made.late_sum,
    made.late_count,
    made.late_min,
    made.late_max,
    made.late_last,
    made.late_last_ts,
    made.late_last_recorded_at,
    made.late_last_writer,
    made.late_last_seq,
    made.late_uniques,
    made.manual_sum,
    made.updated_at
FROM unnest(
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
    $13::timestamptz[],
    $14::uuid[],
    $15::bigint[],
    $16::bigint[],
    $17::timestamptz[],
    $18::numeric[],
    $19::bigint[],
    $20::numeric[],
    $21::numeric[],
    $22::numeric[],
    $23::timestamptz[],
    $24::timestamptz[],
    $25::uuid[],
    $26::bigint[],
    $27::bigint[],
    $28::numeric[],
    $29::timestamptz[]
) AS made (
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
    updated_at
);
