-- meter_adjustment_insert - events that came too late, as corrections.
--
-- $1::text[]          tenant
-- $2::text[]          metric
-- $3::timestamptz[]   period_start
-- $4::text[]          customer
-- $5::bytea[]         group_key
-- $6::text[]          groups
-- $7::text[]          id: the event's
-- $8::numeric[]       amount: total after minus total before
-- $9::text[]          reason
-- $10::timestamptz[]  ts of the event
-- $11::numeric[]      value, as the next two what the event gave; NULL as
--                     is sum: a unique_value instead
-- $12::numeric[]      sum
-- $13::bigint[]       count
-- $14::text[]         unique_value, NULL: none
-- $15::bigint[]       writer_seq
-- $16::uuid           writer
-- $17::timestamptz    recorded_at: the clock
-- $18::timestamptz    stamped_at: recorded_at of the ledger, NULL: the same
--
-- No rows; as many inserted as given, unless an id has its correction
-- already, which the registry rules out.
INSERT INTO meter.meter_adjustment (
    tenant,
    metric,
    period_start,
    customer,
    group_key,
    groups,
    is_manual,
    id,
    amount,
    reason,
    ts,
    value,
    sum,
    count,
    unique_value,
    writer,
    writer_seq,
    recorded_at,
    stamped_at
)
SELECT
    late.tenant,
    late.metric,
    late.period_start,
    late.customer,
    late.group_key,
    late.groups,
    false,
    late.id,
    late.amount,
    late.reason,
    late.ts,
    late.value,
    late.sum,
    late.count,
    late.unique_value,
    $16::uuid,
    late.writer_seq,
    $17::timestamptz,
    $18::timestamptz
FROM unnest(
    $1::text[],
    $2::text[],
    $3::timestamptz[],
    $4::text[],
    $5::bytea[],
    $6::text[],
    $7::text[],
    $8::numeric[],
    $9::text[],
    $10::timestamptz[],
    $11::numeric[],
    $12::numeric[],
    $13::bigint[],
    $14::text[],
    $15::bigint[]
) AS late (
    tenant,
    metric,
    period_start,
    customer,
    group_key,
    groups,
    id,
    amount,
    reason,
    ts,
    value,
    sum,
    count,
    unique_value,
    writer_seq
)
ON CONFLICT DO NOTHING;
