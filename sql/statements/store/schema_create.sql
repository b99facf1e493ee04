-- schema_create - the list of applied migrations.
--
-- No parameters, no rows. Runs as meter_owner.
CREATE TABLE IF NOT EXISTS meter.schema_migration (
    number     integer     PRIMARY KEY,
    name       text        NOT NULL,
    sha256     text        NOT NULL,
    applied_at timestamptz NOT NULL
);
