-- orphan_list - other writers with ledger rows that no flush has had, and
-- without a heartbeat for a while.
--
-- $1::uuid    the writer that asks
-- $2::bigint  microseconds
--
-- Rows by writer: writer uuid, heartbeat_at timestamptz. One that is as far
-- ahead of the clock counts as none, too: the clock ran ahead when the writer
-- ended. A writer that lives has the clock again with its next heartbeat.
SELECT
    writer.writer,
    writer_seq.heartbeat_at
FROM meter.writer
INNER JOIN meter.writer_seq ON writer.writer = writer_seq.writer
INNER JOIN meter.writer_flush ON writer.writer = writer_flush.writer
WHERE writer.writer <> $1::uuid
    AND writer.retired_at IS NULL
    AND writer_seq.last > writer_flush.upto
    AND writer_seq.heartbeat_at NOT BETWEEN
        clock_timestamp() - $2::bigint * interval '1 microsecond'
        AND clock_timestamp() + $2::bigint * interval '1 microsecond'
ORDER BY writer.writer
LIMIT 64;
