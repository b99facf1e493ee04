-- schema_add - notes a migration in the transaction that applied it.
--
-- $1::integer  number
-- $2::text     name
-- $3::text     sha256, hexadecimal
--
-- No rows.
INSERT INTO meter.schema_migration (
    number,
    name,
    sha256,
    applied_at
)
VALUES (
    $1::integer,
    $2::text,
    $3::text,
    clock_timestamp()
);
