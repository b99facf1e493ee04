-- bucket_lane_advance - numbers this transaction; the last of its locks.
--
-- $1::uuid     writer
-- $2::integer  lane
--
-- Row: batch bigint, now timestamptz: the clock once everything is locked, by
-- which buckets have expired or not. No row: there is no such writer any more.
UPDATE meter.bucket_lane
SET batch = batch + 1
WHERE writer = $1::uuid
    AND lane = $2::integer
RETURNING
    batch,
    clock_timestamp() AS now;
