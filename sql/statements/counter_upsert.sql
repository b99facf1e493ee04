-- counter_upsert - applies one fold to each counter row: max(value + a, b).
--
-- $1::text[]       tenant
-- $2::text[]       counter_name
-- $3::bytea[]      dimension_key
-- $4::text[]       dimensions
-- $5::bigint[]     a
-- $6::bigint[]     b, NULL: no clamp
-- $7::timestamptz  updated_at
--
-- Rows, in no order: value bigint, as it is now; whether a step on the way
-- has left 64 bits is seen from it. A row that does not exist counts as 0.
-- Fewer touched than given:
-- two dimension sets share a key (the careful path finds which). 22003: a
-- value would leave 64 bits. Keys come once each, in bytewise order of
-- (tenant, counter_name, dimension_key), which is the order of locking.
-- step_add and step_floor only carry a and b to DO UPDATE.
INSERT INTO meter.counter (
    tenant,
    counter_name,
    dimension_key,
    dimensions,
    value,
    updated_at,
    step_add,
    step_floor
)
SELECT
    folded.tenant,
    folded.counter_name,
    folded.dimension_key,
    folded.dimensions,
    GREATEST(folded.a, folded.b),
    $7::timestamptz,
    folded.a,
    folded.b
FROM unnest(
    $1::text[],
    $2::text[],
    $3::bytea[],
    $4::text[],
    $5::bigint[],
    $6::bigint[]
) AS folded (tenant, counter_name, dimension_key, dimensions, a, b)
ON CONFLICT (tenant, counter_name, dimension_key) DO UPDATE
SET
    value = GREATEST(counter.value + excluded.step_add, excluded.step_floor),
    updated_at = GREATEST(counter.updated_at, excluded.updated_at),
    step_add = NULL,
    step_floor = NULL
WHERE counter.dimensions = excluded.dimensions
RETURNING value;
