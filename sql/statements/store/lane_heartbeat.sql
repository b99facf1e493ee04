-- lane_heartbeat - this writer is alive, and proves that it can commit.
--
-- $1::uuid  writer
--
-- No rows; exactly one updated. Inside a transaction that holds the rows.
UPDATE meter.writer_seq
SET heartbeat_at = GREATEST(heartbeat_at, clock_timestamp())
WHERE writer = $1::uuid;
