-- dead_letter_list - dead letters, newest first.
--
-- $1::text         tenant, NULL: all
-- $2::timestamptz  recorded at or after, NULL: any time
-- $3::bigint       at most so many
--
-- Rows: tenant text, session uuid or NULL, seq bigint or NULL, reason text,
-- record bytea, recorded_at timestamptz, node text: NULL, not looked up.
SELECT
    tenant,
    session,
    seq,
    reason,
    record,
    recorded_at,
    NULL::text AS node
FROM meter.dead_letter
WHERE ($1::text IS NULL OR tenant = $1::text)
    AND ($2::timestamptz IS NULL OR recorded_at >= $2::timestamptz)
ORDER BY
    recorded_at DESC,
    session DESC,
    seq DESC
LIMIT $3::bigint;
