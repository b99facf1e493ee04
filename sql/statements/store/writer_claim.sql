-- writer_claim - takes the writer row; a new epoch fences older instances.
--
-- $1::uuid  writer
-- $2::text  node
--
-- Row: epoch bigint, the new one. Waits for transactions of the instance
-- before, which hold the row FOR SHARE.
INSERT INTO meter.writer (
    writer,
    node,
    epoch,
    started_at
)
VALUES (
    $1::uuid,
    $2::text,
    1,
    clock_timestamp()
)
ON CONFLICT (writer) DO UPDATE
SET
    node = excluded.node,
    epoch = writer.epoch + 1,
    started_at = excluded.started_at,
    retired_at = NULL
RETURNING epoch;
