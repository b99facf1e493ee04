-- dead_letter_read - dead letters by their identity, in the order asked for.
--
-- $1::uuid[]    session
-- $2::bigint[]  seq
--
-- Rows: tenant text, session uuid, seq bigint, reason text, record bytea,
-- recorded_at timestamptz, node text: of the session, NULL when that is
-- gone. None for a letter that is gone.
SELECT
    letter.tenant,
    letter.session,
    letter.seq,
    letter.reason,
    letter.record,
    letter.recorded_at,
    edge_session.node
FROM unnest($1::uuid[], $2::bigint[]) WITH ORDINALITY
    AS wanted (session, seq, place)
INNER JOIN meter.dead_letter AS letter
    ON letter.session = wanted.session
    AND letter.seq = wanted.seq
LEFT JOIN meter.edge_session
    ON edge_session.session = wanted.session
ORDER BY wanted.place;
