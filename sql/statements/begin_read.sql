-- begin_read - starts a transaction that serves a client's read.
--
-- No parameters, no rows.
BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY;
