-- schema_list - applied migrations, in their order.
--
-- Rows: number integer, name text, sha256 text (hexadecimal).
SELECT
    number,
    name,
    sha256
FROM meter.schema_migration
ORDER BY number;
