-- rule_rebuilt - all rows of these rules were made again by them.
--
-- $1::text[]       kind
-- $2::text[]       name
-- $3::bytea[]      digest
-- $4::timestamptz  before the ledger was read
--
-- No rows. Who changes a rule later is later than this. In key order, as by
-- all others.
INSERT INTO meter.rule_rebuilt AS had (
    kind,
    name,
    digest,
    rebuilt_at
)
SELECT
    given.kind,
    given.name,
    given.digest,
    $4::timestamptz
FROM unnest($1::text[], $2::text[], $3::bytea[])
    AS given (kind, name, digest)
ORDER BY
    given.kind COLLATE "C",
    given.name COLLATE "C"
ON CONFLICT (kind, name) DO UPDATE
SET
    digest = excluded.digest,
    rebuilt_at = excluded.rebuilt_at
WHERE had.digest <> excluded.digest
    OR had.rebuilt_at < excluded.rebuilt_at;
