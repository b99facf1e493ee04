-- orphan_retire - nothing is left of this writer; its next start undoes it.
--
-- $1::uuid  writer, fenced by orphan_claim
--
-- No rows; exactly one updated. In the transaction that flushes its tail.
UPDATE meter.writer
SET retired_at = clock_timestamp()
WHERE writer = $1::uuid;
