-- checkpoint_writers - up to where the ledger is in the projections.
--
-- Rows by writer: writer uuid, last bigint. Writers that recorded nothing
-- are none of them.
SELECT
    writer,
    last
FROM meter.writer_seq
WHERE last > 0
ORDER BY writer;
