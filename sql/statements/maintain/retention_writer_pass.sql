-- retention_writer_pass - waits for the transaction that a writer has under
-- way; the next one sees what is committed now.
--
-- $1::uuid  writer
--
-- Row: last bigint. Runs as meter_owner.
SELECT last
FROM meter.writer_seq
WHERE writer = $1::uuid
FOR UPDATE;
