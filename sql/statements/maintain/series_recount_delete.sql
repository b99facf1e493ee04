-- levels: 5s 1m 1h 1d 7d
-- series_recount_delete - takes a tenant's rows of series_5s away.
--
-- $1::text           tenant
-- $2::text[]         series
-- $3::bigint[]       version
-- $4::bytea[]        dimension_key
-- $5::timestamptz[]  bucket
-- $6::timestamptz    the first of the buckets
-- $7::timestamptz    behind the last of them
--
-- No rows.
DELETE FROM meter.series_5s AS part
USING unnest($2::text[], $3::bigint[], $4::bytea[], $5::timestamptz[])
    AS wrong (series, version, dimension_key, bucket)
WHERE part.tenant = $1::text
    AND part.series = wrong.series
    AND part.version = wrong.version
    AND part.dimension_key = wrong.dimension_key
    AND part.bucket = wrong.bucket
    AND part.bucket >= $6::timestamptz
    AND part.bucket < $7::timestamptz;
