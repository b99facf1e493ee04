-- begin - starts a transaction that writes.
--
-- No parameters, no rows.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
