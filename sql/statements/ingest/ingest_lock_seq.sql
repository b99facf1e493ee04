-- ingest_lock_seq - the writer's numbers, locked for this transaction.
--
-- $1::uuid  writer
--
-- Row: last bigint, batch bigint, stamp timestamptz, now timestamptz, floor
-- date or NULL. The clock is read after the lock is held, so it never runs
-- behind an earlier commit of the lane; where the clock itself was set back,
-- stamp still is later than that of every earlier transaction of this writer.
-- So is floor, the oldest live day of the ledger: who raised it and then had
-- the lock knows that nothing is written below any more.
WITH locked AS MATERIALIZED (
    SELECT
        last,
        batch,
        heartbeat_at
    FROM meter.writer_seq
    WHERE writer = $1::uuid
    FOR UPDATE
),
clock AS MATERIALIZED (
    SELECT
        last,
        batch,
        heartbeat_at,
        clock_timestamp() AS now,
        meter.partition_floor_now('event') AS floor
    FROM locked
)
SELECT
    last,
    batch,
    GREATEST(now, heartbeat_at + interval '1 microsecond') AS stamp,
    now,
    floor
FROM clock;
