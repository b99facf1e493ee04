-- recount_seqs - up to where the ledger goes, by writer.
--
-- Rows by writer: writer uuid, last bigint, heartbeat_at timestamptz: what
-- the writer records behind last has a later recorded_at.
SELECT
    writer,
    last,
    heartbeat_at
FROM meter.writer_seq
ORDER BY writer;
