-- counter_read - a persistent counter, by one of the keys it may have.
--
-- $1::text     tenant
-- $2::text     counter_name
-- $3::bytea[]  dimension_keys: the readings of the dimensions asked for
--
-- At most two rows, since a second one is ambiguous already: dimensions
-- text (canonical JSON), value bigint, updated_at timestamptz. Runs as
-- meter_reader with the tenant set.
SELECT
    dimensions,
    value,
    updated_at
FROM meter.counter
WHERE tenant = $1::text
    AND counter_name = $2::text
    AND dimension_key = ANY ($3::bytea[])
LIMIT 2
