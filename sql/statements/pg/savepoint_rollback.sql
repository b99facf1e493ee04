-- savepoint_rollback - undoes what came behind the savepoint, which stays.
--
-- No parameters, no rows.
ROLLBACK TO SAVEPOINT piece;
