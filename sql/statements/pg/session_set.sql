-- session_set - what meterd depends on, for the life of a connection.
--
-- $1::text[]  names of settings
-- $2::text[]  their values
--
-- Row: how many, bigint. Not start-up options: a pooler would not pass them
-- on, and libpq takes a session that is read-only by default for a standby's.
SELECT pg_catalog.count(
    pg_catalog.set_config(setting.name, setting.value, false)
)
FROM ROWS FROM (
    pg_catalog.unnest($1::text[]),
    pg_catalog.unnest($2::text[])
) AS setting (name, value);
