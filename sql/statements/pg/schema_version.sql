-- schema_version - number of the newest migration.
--
-- Row: version integer, 0 before the first one.
SELECT COALESCE(max(number), 0)::integer AS version
FROM meter.schema_migration;
