-- series_dirty_mark - marks buckets of a level that was computed from.
--
-- $1::integer        level of the marked buckets: 1 to 4
-- $2::text[]         tenant
-- $3::text[]         series
-- $4::bigint[]       version
-- $5::bytea[]        dimension_key
-- $6::timestamptz[]  bucket
-- $7::timestamptz[]  marked_at: that of the oldest mark it comes from
--
-- No rows. A mark that is there already may be in the hands of another
-- transaction that has read too early: each one is a new row.
INSERT INTO meter.series_dirty (
    level,
    tenant,
    series,
    version,
    dimension_key,
    bucket,
    marked_at
)
SELECT
    $1::integer,
    asked.tenant,
    asked.series,
    asked.version,
    asked.dimension_key,
    asked.bucket,
    asked.marked_at
FROM unnest(
    $2::text[],
    $3::text[],
    $4::bigint[],
    $5::bytea[],
    $6::timestamptz[],
    $7::timestamptz[]
) AS asked (tenant, series, version, dimension_key, bucket, marked_at);
