-- close_begin - a period is closed from the moment this is committed.
--
-- $1::text         tenant
-- $2::text         metric
-- $3::timestamptz  period_start
-- $4::timestamptz  period_end
-- $5::text         actor
--
-- Row: now timestamptz. Before period_end nothing is made; nor where the
-- period is closed already. Ingest that took its writer_seq lock before may
-- still fold events into the period: close_freeze waits for it.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
made AS (
    INSERT INTO meter.meter_close (
        tenant,
        metric,
        period_start,
        actor,
        closed_at
    )
    SELECT
        $1::text,
        $2::text,
        $3::timestamptz,
        $5::text,
        clock.now
    FROM clock
    WHERE clock.now >= $4::timestamptz
    ON CONFLICT DO NOTHING
)
SELECT now
FROM clock;
