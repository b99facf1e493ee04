-- edge_session_ensure - makes the rows of sessions that say hello for the
-- first time.
--
-- $1::uuid[]  session
-- $2::text[]  node
-- $3::uuid    writer
--
-- No rows. Sessions come once each, in bytewise order; those that exist are
-- passed over. edge_session_lock follows in the same transaction.
INSERT INTO meter.edge_session (
    session,
    node,
    writer,
    last_seq,
    created_at,
    updated_at
)
SELECT
    fresh.session,
    fresh.node,
    $3::uuid,
    0,
    clock_timestamp(),
    clock_timestamp()
FROM unnest($1::uuid[], $2::text[]) AS fresh (session, node)
ON CONFLICT DO NOTHING;
