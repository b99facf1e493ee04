-- lane_incarnation - which cluster this is, and on which timeline it writes.
--
-- Row: system_identifier bigint, timeline text. Another timeline means that
-- a standby was promoted or a backup restored: what was committed last may
-- be missing. The WAL file's name is read rather than the control file's
-- checkpoint, which follows a promotion late. Forbidden on some managed
-- services: 42501.
SELECT
    system_identifier,
    substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) AS timeline
FROM pg_control_system();
