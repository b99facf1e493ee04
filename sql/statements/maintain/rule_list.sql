-- rule_list - until when figures may have been counted by other rules.
--
-- $1::text[]   kind
-- $2::text[]   name
-- $3::bytea[]  digest
--
-- Rows, in no order, for each rule given: kind text, name text, is_mixed
-- boolean: someone counts by another one, changed_at timestamptz: when the
-- last one began to count by this one, or ended with another one; NULL: never,
-- or all was made again since; now timestamptz. A writer that has not been
-- heard of for a minute has ended. One that has noted no rules at all counts
-- for nothing: these are what all is compared with.
WITH users AS MATERIALIZED (
    SELECT
        seq.writer,
        seq.last,
        seq.heartbeat_at,
        seq.heartbeat_at > clock_timestamp() - interval '1 minute' AS is_live
    FROM meter.writer_seq AS seq
    WHERE EXISTS (
        SELECT 1
        FROM meter.rule_use AS noted
        WHERE noted.writer = seq.writer
    )
),
judged AS (
    SELECT
        given.kind,
        given.name,
        given.digest,
        COALESCE(
            bool_or(users.is_live AND noted.digest IS DISTINCT FROM given.digest),
            false
        ) AS is_mixed,
        max(
            CASE
                WHEN noted.digest = given.digest THEN noted.since
                WHEN users.last > 0 THEN users.heartbeat_at
            END
        ) AS changed_at
    FROM unnest($1::text[], $2::text[], $3::bytea[])
        AS given (kind, name, digest)
    LEFT JOIN users ON true
    LEFT JOIN meter.rule_use AS noted
        ON noted.writer = users.writer
        AND noted.kind = given.kind
        AND noted.name = given.name
    GROUP BY
        given.kind,
        given.name,
        given.digest
)
SELECT
    judged.kind,
    judged.name,
    judged.is_mixed,
    CASE
        WHEN rebuilt.rebuilt_at IS NULL THEN judged.changed_at
        WHEN judged.changed_at > rebuilt.rebuilt_at THEN judged.changed_at
    END AS changed_at,
    clock_timestamp() AS now
FROM judged
LEFT JOIN meter.rule_rebuilt AS rebuilt
    ON rebuilt.kind = judged.kind
    AND rebuilt.name = judged.name
    AND rebuilt.digest = judged.digest;
