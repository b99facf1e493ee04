-- orphan_list - other writers with ledger rows that no flush has had, and
-- without a heartbeat for a while.
--
-- $1::uuid    the writer that asks
-- $2::bigint  microseconds
--
-- Rows by writer: writer uuid, heartbeat_at timestamptz.
SELECT
    writer.writer,
    writer_seq.heartbeat_at
FROM meter.writer
INNER JOIN meter.writer_seq ON writer.writer = writer_seq.writer
INNER JOIN meter.writer_flush ON writer.writer = writer_flush.writer
WHERE writer.writer <> $1::uuid
    AND writer.retired_at IS NULL
    AND writer_seq.last > writer_flush.upto
    AND writer_seq.heartbeat_at
    <= clock_timestamp() - $2::bigint * interval '1 microsecond'
ORDER BY writer.writer
LIMIT 64;
