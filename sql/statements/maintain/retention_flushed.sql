-- retention_flushed - whether the series have a writer's events.
--
-- $1::uuid    writer
-- $2::bigint  number of the newest that has to be in
--
-- Row: flushed boolean. Runs as meter_owner.
SELECT
    EXISTS (
        SELECT
        FROM meter.writer_flush
        WHERE writer = $1::uuid
            AND upto >= $2::bigint
    ) AS flushed;
