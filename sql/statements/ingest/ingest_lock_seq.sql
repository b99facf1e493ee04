-- ingest_lock_seq - the writer's numbers, locked for this transaction.
--
-- $1::uuid  writer
--
-- Row: last bigint, batch bigint, stamp timestamptz, now timestamptz, floor
-- date or NULL. now is the clock, read after the lock is held. stamp is the
-- order: the same time, or the least one that is later than that of every
-- earlier transaction of this writer, where the clock was set back. floor is
-- the oldest live day of the ledger, read behind the lock, too: who raised it
-- and then had the lock knows that nothing is written below any more.
WITH locked AS MATERIALIZED (
    SELECT
        last,
        batch,
        stamped_at
    FROM meter.writer_seq
    WHERE writer = $1::uuid
    FOR UPDATE
),
clock AS MATERIALIZED (
    SELECT
        last,
        batch,
        stamped_at,
        clock_timestamp() AS now,
        meter.partition_floor_now('event') AS floor
    FROM locked
)
SELECT
    last,
    batch,
    GREATEST(now, stamped_at + interval '1 microsecond') AS stamp,
    now,
    floor
FROM clock;
