-- ingest_seq_advance - the writer's numbers after this transaction.
--
-- $1::uuid         writer
-- $2::bigint       last: newest ledger row of this writer
-- $3::bigint       batch: one more than was read
-- $4::timestamptz  heartbeat_at: the clock that ingest_lock_seq read
-- $5::timestamptz  stamped_at: recorded_at of this transaction
--
-- No rows; exactly one updated.
UPDATE meter.writer_seq
SET
    last = $2::bigint,
    batch = $3::bigint,
    heartbeat_at = $4::timestamptz,
    stamped_at = $5::timestamptz
WHERE writer = $1::uuid;
