-- savepoint - what follows can be undone alone.
--
-- No parameters, no rows.
SAVEPOINT piece;
