-- counter_write - sets locked counter rows to the values decided for them.
--
-- $1::text[]       tenant
-- $2::text[]       counter_name
-- $3::bytea[]      dimension_key
-- $4::bigint[]     value
-- $5::timestamptz  updated_at
--
-- No rows; as many updated as given. Only after counter_lock in the same
-- transaction.
UPDATE meter.counter
SET
    value = decided.value,
    updated_at = GREATEST(counter.updated_at, $5::timestamptz),
    step_add = NULL,
    step_floor = NULL
FROM unnest(
    $1::text[],
    $2::text[],
    $3::bytea[],
    $4::bigint[]
) AS decided (tenant, counter_name, dimension_key, value)
WHERE counter.tenant = decided.tenant
    AND counter.counter_name = decided.counter_name
    AND counter.dimension_key = decided.dimension_key;
