-- counter_read - a persistent counter, by one of the keys it may have.
--
-- $1::text     tenant
-- $2::text     counter_name
-- $3::bytea[]  dimension_keys: the readings of the dimensions asked for
--
-- At most two rows, since a second one is ambiguous already: dimensions
-- text (canonical JSON), value bigint, updated_at timestamptz: of the order,
-- where that is ahead of the clock, now. Runs as meter_reader with the tenant
-- set. LATERAL: one probe of the primary key
-- for each reading, never a scan of the counter's rows.
SELECT
    found.dimensions,
    found.value,
    LEAST(found.updated_at, statement_timestamp()) AS updated_at
FROM unnest($3::bytea[]) AS asked (dimension_key)
CROSS JOIN LATERAL (
    SELECT
        counter.dimensions,
        counter.value,
        counter.updated_at
    FROM meter.counter
    WHERE counter.tenant = $1::text
        AND counter.counter_name = $2::text
        AND counter.dimension_key = asked.dimension_key
    LIMIT 1
) AS found
LIMIT 2;
