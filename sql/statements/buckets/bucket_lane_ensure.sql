-- bucket_lane_ensure - the row of a connection that writes buckets.
--
-- $1::uuid     writer
-- $2::integer  lane
--
-- Row: batch bigint, as committed. Waits for a transaction of the connection
-- before this one that may still be committing: then the number tells whether
-- it has.
INSERT INTO meter.bucket_lane AS held (
    writer,
    lane,
    batch
)
VALUES (
    $1::uuid,
    $2::integer,
    0
)
ON CONFLICT (writer, lane) DO UPDATE
SET batch = held.batch
RETURNING batch;
