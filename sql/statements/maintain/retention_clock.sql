-- retention_clock - the clock, and the newest heartbeat that is not ahead of
-- it: one that is was left by a clock that ran ahead, and vouches for nothing.
--
-- Row: now timestamptz, heartbeat_at timestamptz or NULL. Runs as
-- meter_owner.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
)
SELECT
    clock.now,
    (
        SELECT max(writer_seq.heartbeat_at)
        FROM meter.writer_seq
        WHERE writer_seq.heartbeat_at <= clock.now
    ) AS heartbeat_at
FROM clock;
