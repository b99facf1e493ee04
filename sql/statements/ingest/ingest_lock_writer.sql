-- ingest_lock_writer - the writer's epoch, locked against a newer instance.
--
-- $1::uuid  writer
--
-- Row: epoch bigint. No row: the writer does not exist.
SELECT epoch
FROM meter.writer
WHERE writer = $1::uuid
FOR SHARE;
