-- registry_clock - the database's clock, for one who only looks.
--
-- Row: now timestamptz.
SELECT clock_timestamp() AS now;
