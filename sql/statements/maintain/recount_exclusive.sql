-- recount_exclusive - no one ingests until the transaction ends.
--
-- No parameters, no rows. Every transaction that ingests locks its row of
-- writer_seq before it touches a projection: those that did are waited for,
-- the others wait, also those of a writer that is new.
LOCK TABLE meter.writer_seq IN EXCLUSIVE MODE;
