-- recount_meters_delete - takes meter rows away.
--
-- $1::text           tenant
-- $2::text[]         metric
-- $3::timestamptz[]  period_start
-- $4::text[]         customer
-- $5::bytea[]        group_key
--
-- No rows.
DELETE FROM meter.meter_counter
USING unnest($2::text[], $3::timestamptz[], $4::text[], $5::bytea[])
    AS wrong (metric, period_start, customer, group_key)
WHERE meter_counter.tenant = $1::text
    AND meter_counter.metric = wrong.metric
    AND meter_counter.period_start = wrong.period_start
    AND meter_counter.customer = wrong.customer
    AND meter_counter.group_key = wrong.group_key;
