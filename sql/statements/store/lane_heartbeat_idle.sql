-- lane_heartbeat_idle - this writer is alive though nothing is ingested.
--
-- $1::uuid    writer
-- $2::bigint  epoch of this instance
--
-- Row: now timestamptz. None: another instance took the writer. Times are
-- those of lane_heartbeat.
UPDATE meter.writer_seq
SET
    heartbeat_at = clock_timestamp(),
    stamped_at = GREATEST(stamped_at, clock_timestamp())
WHERE writer = $1::uuid
    AND EXISTS (
        SELECT
        FROM meter.writer
        WHERE writer.writer = $1::uuid
            AND writer.epoch = $2::bigint
    )
RETURNING clock_timestamp() AS now;
