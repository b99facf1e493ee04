-- levels: 5s 1m 1h 1d
-- series_ensure - makes the buckets above series_5s that do not exist yet, of
-- no samples, and locks all others.
--
-- $1::text[]         tenant
-- $2::text[]         series
-- $3::bigint[]       version
-- $4::bytea[]        dimension_key
-- $5::timestamptz[]  bucket
--
-- No rows. Keys come once each, in bytewise order of (tenant, series,
-- version, dimension_key, bucket), and are locked in it, whether they are old
-- or new: WHERE false locks a row that is there and does not change it.
-- series_recompute follows in the same transaction.
INSERT INTO meter.series_1m (
    tenant,
    series,
    version,
    dimension_key,
    bucket,
    count
)
SELECT
    asked.tenant,
    asked.series,
    asked.version,
    asked.dimension_key,
    asked.bucket,
    0
FROM unnest(
    $1::text[],
    $2::text[],
    $3::bigint[],
    $4::bytea[],
    $5::timestamptz[]
) AS asked (tenant, series, version, dimension_key, bucket)
ON CONFLICT (tenant, series, version, dimension_key, bucket) DO UPDATE
SET count = series_1m.count
WHERE false;
