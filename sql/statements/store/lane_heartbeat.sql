-- lane_heartbeat - this writer is alive, and proves that it can commit.
--
-- $1::uuid  writer
--
-- No rows; exactly one updated. Inside a transaction that holds the rows.
-- heartbeat_at goes back with the clock, stamped_at never does.
UPDATE meter.writer_seq
SET
    heartbeat_at = clock_timestamp(),
    stamped_at = GREATEST(stamped_at, clock_timestamp())
WHERE writer = $1::uuid;
