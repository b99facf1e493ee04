-- orphan_claim - fences a writer that is gone, to flush what it left behind.
--
-- $1::uuid         writer, its row locked by orphan_lock
-- $2::timestamptz  heartbeat_at that did not move
--
-- Row: epoch bigint, the new one, last bigint, upto bigint, recorded_at
-- timestamptz or NULL, flushed_at timestamptz or NULL. None: it lives, or
-- nothing is left to flush.
UPDATE meter.writer
SET epoch = writer.epoch + 1
FROM
    meter.writer_seq,
    meter.writer_flush
WHERE writer.writer = $1::uuid
    AND writer_seq.writer = $1::uuid
    AND writer_flush.writer = $1::uuid
    AND writer_seq.heartbeat_at = $2::timestamptz
    AND writer_seq.last > writer_flush.upto
RETURNING
    writer.epoch,
    writer_seq.last,
    writer_flush.upto,
    writer_flush.recorded_at,
    writer_flush.flushed_at;
