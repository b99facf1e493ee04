-- retention_marks - buckets that are still to be computed from a level, or
-- from one below it, before an instant.
--
-- $1::integer      highest level of the marks: that above the one that goes
-- $2::timestamptz  instant
--
-- Row: marks bigint, at most 1000. Runs as meter_owner.
SELECT count(*) AS marks
FROM (
    SELECT
    FROM meter.series_dirty
    WHERE level <= $1::integer
        AND bucket < $2::timestamptz
    LIMIT 1000
) AS found;
