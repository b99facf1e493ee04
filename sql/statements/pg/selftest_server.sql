-- selftest_server - settings and roles on which every promise rests.
--
-- Row: version integer (150004 is 15.4), fsync text, full_page_writes text,
-- synchronous_commit text, in_recovery boolean, session_role text,
-- session_superuser boolean (or may become one), current_role_name text,
-- current_superuser boolean, current_bypassrls boolean, encoding text.
-- synchronous_commit is what the server, database or role sets: meterd
-- does not hide a bad default by overriding it.
SELECT
    current_setting('server_version_num')::integer AS version,
    current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    pg_is_in_recovery() AS in_recovery,
    session_user::text AS session_role,
    EXISTS (
        SELECT
        FROM pg_catalog.pg_roles
        WHERE rolsuper
            AND pg_has_role(session_user, oid, 'MEMBER')
    ) AS session_superuser,
    current_user::text AS current_role_name,
    actor.rolsuper AS current_superuser,
    actor.rolbypassrls AS current_bypassrls,
    current_setting('server_encoding') AS encoding
FROM pg_catalog.pg_roles AS actor
WHERE actor.rolname = current_user;
