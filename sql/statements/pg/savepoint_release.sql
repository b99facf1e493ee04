-- savepoint_release - what came behind the savepoint stays.
--
-- No parameters, no rows.
RELEASE SAVEPOINT piece;
