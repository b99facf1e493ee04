-- retention_writers - all writers.
--
-- Rows: writer uuid. Runs as meter_owner.
SELECT writer
FROM meter.writer_seq
ORDER BY writer;
