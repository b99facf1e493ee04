-- ingest_lock_seq - the writer's numbers, locked for this transaction.
--
-- $1::uuid  writer
--
-- Row: last bigint, batch bigint, now timestamptz. The clock is read after
-- the lock is held, so it never runs behind an earlier commit of the lane.
WITH locked AS MATERIALIZED (
    SELECT
        last,
        batch
    FROM meter.writer_seq
    WHERE writer = $1::uuid
    FOR UPDATE
)
SELECT
    last,
    batch,
    clock_timestamp() AS now
FROM locked;
