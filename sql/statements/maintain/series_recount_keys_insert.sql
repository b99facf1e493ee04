-- series_recount_keys_insert - puts dimension sets into the dictionary.
--
-- $1::text      tenant
-- $2::text[]    series
-- $3::bigint[]  version
-- $4::bytea[]   dimension_key
-- $5::text[]    dimensions
--
-- No rows. One that is there stays as it is.
INSERT INTO meter.series_key (
    tenant,
    series,
    version,
    dimension_key,
    dimensions
)
SELECT
    $1::text,
    made.series,
    made.version,
    made.dimension_key,
    made.dimensions
FROM unnest($2::text[], $3::bigint[], $4::bytea[], $5::text[])
    AS made (series, version, dimension_key, dimensions)
ORDER BY
    made.series COLLATE "C",
    made.version,
    made.dimension_key
ON CONFLICT (tenant, series, version, dimension_key) DO NOTHING;
