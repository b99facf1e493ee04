-- series_recount_keys_delete - takes dimension sets out of the dictionary.
--
-- $1::text      tenant
-- $2::text[]    series
-- $3::bigint[]  version
-- $4::bytea[]   dimension_key
--
-- No rows.
DELETE FROM meter.series_key
USING unnest($2::text[], $3::bigint[], $4::bytea[])
    AS wrong (series, version, dimension_key)
WHERE series_key.tenant = $1::text
    AND series_key.series = wrong.series
    AND series_key.version = wrong.version
    AND series_key.dimension_key = wrong.dimension_key;
