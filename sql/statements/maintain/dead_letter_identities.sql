-- dead_letter_identities - which dead letters can be replayed, oldest first.
--
-- $1::text    tenant, NULL: all
-- $2::bigint  at most so many
--
-- Rows: session uuid, seq bigint, each once.
SELECT
    session,
    seq
FROM meter.dead_letter
WHERE ($1::text IS NULL OR tenant = $1::text)
    AND session IS NOT NULL
    AND seq IS NOT NULL
GROUP BY
    session,
    seq
ORDER BY
    min(recorded_at),
    session,
    seq
LIMIT $2::bigint;
