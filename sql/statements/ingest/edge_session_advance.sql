-- edge_session_advance - how far sessions have come after this transaction.
--
-- $1::uuid[]       session
-- $2::text[]       node
-- $3::bigint[]     last_seq
-- $4::bigint[]     accepted, in requests, as all below
-- $5::bigint[]     duplicate
-- $6::bigint[]     conflict
-- $7::bigint[]     rejected
-- $8::bigint[]     lost
-- $9::uuid         writer
-- $10::timestamptz updated_at: the clock
--
-- No rows; as many updated as given. The rows are locked: the values are
-- those that edge_session_lock read, moved on.
UPDATE meter.edge_session
SET
    node = moved.node,
    writer = $9::uuid,
    last_seq = moved.last_seq,
    updated_at = $10::timestamptz,
    accepted = moved.accepted,
    duplicate = moved.duplicate,
    conflict = moved.conflict,
    rejected = moved.rejected,
    lost = moved.lost
FROM unnest(
    $1::uuid[],
    $2::text[],
    $3::bigint[],
    $4::bigint[],
    $5::bigint[],
    $6::bigint[],
    $7::bigint[],
    $8::bigint[]
) AS moved (
    session,
    node,
    last_seq,
    accepted,
    duplicate,
    conflict,
    rejected,
    lost
)
WHERE edge_session.session = moved.session;
