-- retention_clock - the clock, and the newest that any writer has seen of it.
--
-- Row: now timestamptz, heartbeat_at timestamptz or NULL. Runs as
-- meter_owner.
SELECT
    clock_timestamp() AS now,
    max(heartbeat_at) AS heartbeat_at
FROM meter.writer_seq;
