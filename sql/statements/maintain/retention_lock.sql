-- retention_lock - one retention at a time; until the connection ends.
--
-- Row: locked boolean, false when another one is at work.
SELECT
    pg_try_advisory_lock(hashtextextended('meter.retention', 0)) AS locked;
