-- counter_upsert - applies one fold to each counter row: max(value + a, b).
--
-- $1::text[]       tenant
-- $2::text[]       counter_name
-- $3::bytea[]      dimension_key
-- $4::text[]       dimensions
-- $5::bigint[]     a
-- $6::bigint[]     b, NULL: no clamp
-- $7::timestamptz  recorded_at: the order
--
-- One row with tenant and counter_name NULL: touched bigint, value_min
-- bigint, value_max bigint, of all rows touched, as they are now; whether a
-- step on the way has left 64 bits is seen from them. Then, in no order, one
-- for each (tenant text, counter_name text) that got new keys: keys bigint,
-- as many as there are now, in the place of touched, and two NULLs.
-- A row that does not exist counts as 0. Fewer touched than given: two
-- dimension sets share a key, or a clamped row was changed by a transaction
-- that is not earlier than this one; the careful path finds which. 22003: a
-- value would leave 64 bits. Keys come once each, in bytewise order of
-- (tenant, counter_name, dimension_key), which is the order of locking; then
-- those of counter_keys, likewise. step_add and step_floor only carry a and b
-- to DO UPDATE.
WITH touched AS (
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
        value = GREATEST(
            counter.value + excluded.step_add,
            excluded.step_floor
        ),
        updated_at = GREATEST(counter.updated_at, excluded.updated_at),
        step_add = NULL,
        step_floor = NULL
    WHERE counter.dimensions = excluded.dimensions
        AND (
            excluded.step_floor IS NULL
            OR counter.updated_at < excluded.updated_at
        )
    RETURNING tenant, counter_name, value, xmax = 0 AS is_new
),
counted AS (
    INSERT INTO meter.counter_keys (tenant, counter_name, keys)
    SELECT
        touched.tenant,
        touched.counter_name,
        count(*)
    FROM touched
    WHERE touched.is_new
    GROUP BY touched.tenant, touched.counter_name
    ORDER BY touched.tenant, touched.counter_name
    ON CONFLICT (tenant, counter_name) DO UPDATE
    SET keys = counter_keys.keys + excluded.keys
    RETURNING tenant, counter_name, keys
)
SELECT
    NULL COLLATE "C" AS tenant,
    NULL COLLATE "C" AS counter_name,
    count(*) AS touched,
    COALESCE(min(touched.value), 0) AS value_min,
    COALESCE(max(touched.value), 0) AS value_max
FROM touched
UNION ALL
SELECT
    counted.tenant,
    counted.counter_name,
    counted.keys,
    NULL,
    NULL
FROM counted;
