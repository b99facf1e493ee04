-- close_read - whether a period is closed for good.
--
-- $1::text         tenant
-- $2::text         metric
-- $3::timestamptz  period_start
--
-- A row when it is, else none. Runs as meter_reader with the tenant set.
SELECT frozen_at
FROM meter.meter_close
WHERE tenant = $1::text
    AND metric = $2::text
    AND period_start = $3::timestamptz
    AND frozen_at IS NOT NULL;
