-- writer_flush_ensure - nothing of a new writer has been flushed yet.
--
-- $1::uuid  writer
--
-- No rows. Nothing happens when the row exists.
INSERT INTO meter.writer_flush (
    writer,
    upto
)
VALUES (
    $1::uuid,
    0
)
ON CONFLICT DO NOTHING;
