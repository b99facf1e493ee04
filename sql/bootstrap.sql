-- bootstrap.sql - roles, database and schema, made once by an administrator.
--
--   psql -v database=edgemeter -f sql/bootstrap.sql postgresql://admin@host/postgres
--
-- The only step that needs a superuser (or, on a managed service, the
-- administrator it gives you); meterd never connects as one. May be run
-- again at any time. Give Edgemeter a database of its own: PUBLIC, which is
-- every role of the server, loses what it has there: CONNECT, temporary tables,
-- the schema "public". Only the database "postgres" can still be connected to,
-- because other programs rely on it. Who else may connect gets
-- GRANT CONNECT ON DATABASE ... TO ....
--
--   meter_owner    owns the schema; migrations and partitions (adminDatabase:)
--   meter_writer   writes for all tenants; COPY into tables under row-level
--                  security needs BYPASSRLS
--   meter_reader   every client read; subject to row-level security
--   meterd         what the daemon logs in as (database:); may become writer
--                  or reader, has no rights by itself
--
-- Variables: database = its name. The environment variables METERD_PASSWORD
-- and METER_OWNER_PASSWORD, when set, become the two roles' passwords.

\set ON_ERROR_STOP on
\set QUIET on
SET client_min_messages = notice;

\if :{?database}
\else
    \set database edgemeter
\endif
\getenv meterd_password METERD_PASSWORD
\getenv meter_owner_password METER_OWNER_PASSWORD


-- Two nodes may bootstrap one server at the same time; the lock goes with
-- the connection.

SELECT pg_advisory_lock(hashtext('edgemeter bootstrap')) \g /dev/null


-- Roles.

BEGIN;

SELECT format('CREATE ROLE %I', name)
FROM unnest(ARRAY['meter_owner', 'meter_writer', 'meter_reader', 'meterd'])
    AS name
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name)
\gexec

ALTER ROLE meter_owner LOGIN INHERIT NOCREATEDB NOCREATEROLE;
ALTER ROLE meter_writer NOLOGIN NOCREATEDB NOCREATEROLE;
ALTER ROLE meter_reader NOLOGIN NOCREATEDB NOCREATEROLE;
ALTER ROLE meterd LOGIN NOINHERIT NOCREATEDB NOCREATEROLE;

-- Only a superuser may say NOSUPERUSER; for anyone else it cannot be needed,
-- because roles they made are none. The same goes for BYPASSRLS, except that
-- without it ingest takes a slower path.
DO $$
BEGIN
    ALTER ROLE meter_owner NOSUPERUSER NOREPLICATION NOBYPASSRLS;
    ALTER ROLE meter_reader NOSUPERUSER NOREPLICATION NOBYPASSRLS;
    ALTER ROLE meterd NOSUPERUSER NOREPLICATION NOBYPASSRLS;
    ALTER ROLE meter_writer NOSUPERUSER NOREPLICATION BYPASSRLS;
EXCEPTION WHEN insufficient_privilege THEN
    IF EXISTS (
        SELECT
        FROM pg_roles
        WHERE rolname IN ('meter_owner', 'meter_writer', 'meter_reader',
                          'meterd')
            AND (rolsuper OR rolreplication)
    ) THEN
        RAISE EXCEPTION 'an Edgemeter role is a superuser or may replicate';
    END IF;
    BEGIN
        ALTER ROLE meter_writer BYPASSRLS;
    EXCEPTION WHEN insufficient_privilege THEN
        RAISE NOTICE 'meter_writer cannot get BYPASSRLS from %: ingest'
            ' works without COPY, slower', current_user;
    END;
END
$$;

GRANT meter_writer, meter_reader TO meterd;

\if :{?meterd_password}
    ALTER ROLE meterd PASSWORD :'meterd_password';
\endif
\if :{?meter_owner_password}
    ALTER ROLE meter_owner PASSWORD :'meter_owner_password';
\endif
COMMIT;


-- The database. CREATE DATABASE runs outside any transaction. An
-- administrator who is no superuser must be a member of the new owner.

SELECT format('GRANT meter_owner TO %I', current_user)
WHERE NOT pg_has_role(current_user, 'meter_owner', 'MEMBER')
\gexec

SELECT format('CREATE DATABASE %I OWNER meter_owner', :'database')
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = :'database')
\gexec

\connect :"database"
SET client_min_messages = notice;

SELECT format('GRANT CONNECT ON DATABASE %I TO meter_owner, meterd',
              current_database())
\gexec

BEGIN;
SELECT pg_advisory_xact_lock(hashtext('edgemeter bootstrap')) \g /dev/null

SELECT 'CREATE SCHEMA meter AUTHORIZATION meter_owner'
WHERE NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'meter')
\gexec

-- Nothing for PUBLIC, now or when meter_owner makes something later.
SELECT format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database())
WHERE current_database() <> 'postgres'
\gexec
REVOKE ALL ON SCHEMA public FROM PUBLIC;
ALTER DEFAULT PRIVILEGES FOR ROLE meter_owner
    REVOKE ALL ON FUNCTIONS FROM PUBLIC;
ALTER DEFAULT PRIVILEGES FOR ROLE meter_owner
    REVOKE ALL ON TYPES FROM PUBLIC;
COMMIT;
