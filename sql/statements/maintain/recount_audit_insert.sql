-- recount_audit_insert - updates of counters by a rebuild, in their log.
--
-- $1::text           tenant
-- $2::text[]         counter_name
-- $3::bytea[]        dimension_key
-- $4::text[]         dimensions
-- $5::bigint[]       value
-- $6::timestamptz[]  recorded_at
--
-- No rows. writer is the nil UUID and the numbers are 0: not of events.
INSERT INTO meter.counter_audit (
    tenant,
    counter_name,
    dimension_key,
    dimensions,
    value,
    writer,
    seq_first,
    seq_last,
    recorded_at
)
SELECT
    $1::text,
    made.counter_name,
    made.dimension_key,
    made.dimensions,
    made.value,
    '00000000-0000-0000-0000-000000000000'::uuid,
    0,
    0,
    LEAST(made.recorded_at, statement_timestamp())
FROM unnest(
    $2::text[],
    $3::bytea[],
    $4::text[],
    $5::bigint[],
    $6::timestamptz[]
) AS made (counter_name, dimension_key, dimensions, value, recorded_at);
