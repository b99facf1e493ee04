-- recount_seqs - up to where the ledger goes, by writer.
--
-- Rows by writer: writer uuid, last bigint, stamped_at timestamptz: what
-- the writer records behind last has a later recorded_at.
SELECT
    writer,
    last,
    stamped_at
FROM meter.writer_seq
ORDER BY writer;
