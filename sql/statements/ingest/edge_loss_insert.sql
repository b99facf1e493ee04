-- edge_loss_insert - requests that the edge could not record, and records
-- that no ring has any more.
--
-- $1::uuid[]         session
-- $2::bigint[]       seq
-- $3::text[]         node
-- $4::bigint[]       count
-- $5::integer[]      reasons
-- $6::timestamptz[]  first_at, NULL where not known
-- $7::timestamptz[]  last_at, NULL where not known
-- $8::timestamptz    recorded_at: the clock
--
-- No rows. One that is there stays as it is: the session's row went back,
-- the loss was told before.
INSERT INTO meter.edge_loss (
    session,
    seq,
    node,
    count,
    reasons,
    first_at,
    last_at,
    recorded_at
)
SELECT
    told.session,
    told.seq,
    told.node,
    told.count,
    told.reasons,
    told.first_at,
    told.last_at,
    $8::timestamptz
FROM unnest(
    $1::uuid[],
    $2::bigint[],
    $3::text[],
    $4::bigint[],
    $5::integer[],
    $6::timestamptz[],
    $7::timestamptz[]
) AS told (session, seq, node, count, reasons, first_at, last_at)
ON CONFLICT DO NOTHING;
