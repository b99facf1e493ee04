-- series_recount_strangers - a tenant's dimension sets of other series or
-- other versions of them.
--
-- $1::text      tenant
-- $2::text[]    series
-- $3::bigint[]  version
--
-- Row, always one: sets bigint.
SELECT count(*) AS sets
FROM meter.series_key AS stored
WHERE stored.tenant = $1::text
    AND NOT EXISTS (
        SELECT
        FROM unnest($2::text[], $3::bigint[]) AS known (series, version)
        WHERE known.series = stored.series
            AND known.version = stored.version
    );
