-- rule_note - the rules that a writer counts by from now on.
--
-- $1::uuid     writer
-- $2::text[]   kind
-- $3::text[]   name
-- $4::bytea[]  digest
-- $5::text[]   kind, a space and name of those that it had otherwise until
--              now, whatever is noted
--
-- No rows. A writer that notes its rules for the first time has had no other
-- ones: it is new, or has counted before rules were noted, and then these are
-- what all is compared with.
WITH gone AS (
    UPDATE meter.rule_use AS had
    SET
        digest = '',
        since = clock_timestamp()
    WHERE had.writer = $1::uuid
        AND had.digest <> ''
        AND NOT EXISTS (
            SELECT 1
            FROM unnest($2::text[], $3::text[]) AS kept (kind, name)
            WHERE kept.kind = had.kind
                AND kept.name = had.name
        )
),
known AS MATERIALIZED (
    SELECT EXISTS (
        SELECT 1
        FROM meter.rule_use
        WHERE writer = $1::uuid
    ) AS is_known
)
INSERT INTO meter.rule_use AS had (
    writer,
    kind,
    name,
    digest,
    since
)
SELECT
    $1::uuid,
    given.kind,
    given.name,
    given.digest,
    CASE WHEN known.is_known THEN clock_timestamp() END
FROM unnest($2::text[], $3::text[], $4::bytea[])
    AS given (kind, name, digest)
CROSS JOIN known
ON CONFLICT (writer, kind, name) DO UPDATE
SET
    digest = excluded.digest,
    since = clock_timestamp()
WHERE had.digest <> excluded.digest
    OR had.kind || ' ' || had.name = ANY ($5::text[]);
