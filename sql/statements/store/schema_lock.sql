-- schema_lock - waits until no other migration runs; ends with the session.
--
-- One row without meaning.
SELECT pg_advisory_lock(hashtextextended('edgemeter schema', 0));
