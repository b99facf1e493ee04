-- lane_role - whether COPY passes row-level security for the current role.
--
-- Row: may_copy boolean. Without BYPASSRLS the server refuses COPY into
-- tables under row-level security; the INSERT statements serve instead.
SELECT rolbypassrls AS may_copy
FROM pg_catalog.pg_roles
WHERE rolname = current_user;
