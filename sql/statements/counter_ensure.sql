-- counter_ensure - makes the counter rows that do not exist yet, at 0.
--
-- $1::text[]       tenant
-- $2::text[]       counter_name
-- $3::bytea[]      dimension_key
-- $4::text[]       dimensions
-- $5::timestamptz  updated_at
--
-- No rows. Keys come once each, in bytewise order of (tenant, counter_name,
-- dimension_key). The careful path calls counter_lock after it, in the
-- same transaction, and counter_write with what it decided.
INSERT INTO meter.counter (
    tenant,
    counter_name,
    dimension_key,
    dimensions,
    value,
    updated_at
)
SELECT
    folded.tenant,
    folded.counter_name,
    folded.dimension_key,
    folded.dimensions,
    0,
    $5::timestamptz
FROM unnest(
    $1::text[],
    $2::text[],
    $3::bytea[],
    $4::text[]
) AS folded (tenant, counter_name, dimension_key, dimensions)
ON CONFLICT DO NOTHING;
