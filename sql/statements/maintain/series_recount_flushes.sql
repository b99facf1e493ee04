-- series_recount_flushes - up to where the ledger is in the series.
--
-- No parameters. Rows by writer: writer uuid, upto bigint.
SELECT
    writer,
    upto
FROM meter.writer_flush
ORDER BY writer;
