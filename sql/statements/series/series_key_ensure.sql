-- series_key_ensure - the dictionary gets the dimension sets it lacks.
--
-- $1::text[]    tenant
-- $2::text[]    series
-- $3::bigint[]  version
-- $4::bytea[]   dimension_key
-- $5::text[]    dimensions
--
-- No rows. Keys come once each, in bytewise order of (tenant, series,
-- version, dimension_key), which is the order of locking.
INSERT INTO meter.series_key (
    tenant,
    series,
    version,
    dimension_key,
    dimensions
)
SELECT
    seen.tenant,
    seen.series,
    seen.version,
    seen.dimension_key,
    seen.dimensions
FROM unnest(
    $1::text[],
    $2::text[],
    $3::bigint[],
    $4::bytea[],
    $5::text[]
) AS seen (tenant, series, version, dimension_key, dimensions)
ON CONFLICT DO NOTHING;
