-- writer_flush_read - how far a writer's ledger rows are in the series.
--
-- $1::uuid  writer
--
-- Row: upto bigint, recorded_at timestamptz or NULL, flushed_at timestamptz
-- or NULL. Waits for a flush of this writer that may still be committing.
SELECT
    upto,
    recorded_at,
    flushed_at
FROM meter.writer_flush
WHERE writer = $1::uuid
FOR UPDATE;
