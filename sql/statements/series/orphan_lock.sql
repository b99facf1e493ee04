-- orphan_lock - a writer's row, unless some transaction has it.
--
-- $1::uuid  writer
--
-- Row: epoch bigint. None: the writer lives, or another one adopts it.
SELECT epoch
FROM meter.writer
WHERE writer = $1::uuid
    AND retired_at IS NULL
FOR UPDATE SKIP LOCKED;
