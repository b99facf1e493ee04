-- edge_session_settle - what became of requests of sessions, after some that
-- were rejected have another verdict now.
--
-- $1::uuid[]    session
-- $2::bigint[]  accepted, in requests, as all below
-- $3::bigint[]  duplicate
-- $4::bigint[]  conflict
-- $5::bigint[]  rejected
-- $6::bigint[]  lost
--
-- No rows; as many updated as given. The rows are locked: the values are
-- those that edge_session_lock read, moved on. Who moved the session last
-- and how far stays as it is.
UPDATE meter.edge_session
SET
    accepted = settled.accepted,
    duplicate = settled.duplicate,
    conflict = settled.conflict,
    rejected = settled.rejected,
    lost = settled.lost
FROM unnest(
    $1::uuid[],
    $2::bigint[],
    $3::bigint[],
    $4::bigint[],
    $5::bigint[],
    $6::bigint[]
) AS settled (session, accepted, duplicate, conflict, rejected, lost)
WHERE edge_session.session = settled.session;
