-- edge_session_lock - how far sessions have come, locked for this
-- transaction.
--
-- $1::uuid[]  session
--
-- Rows, in bytewise order, none for a session without a row: session uuid,
-- last_seq bigint, and in requests accepted, duplicate, conflict, rejected
-- and lost bigint. The lock waits for a transaction that may still be
-- committing.
SELECT
    session,
    last_seq,
    accepted,
    duplicate,
    conflict,
    rejected,
    lost
FROM meter.edge_session
WHERE session = ANY($1::uuid[])
ORDER BY session
FOR UPDATE;
