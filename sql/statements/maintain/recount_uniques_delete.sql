-- recount_uniques_delete - takes values of `unique` meters away.
--
-- $1::text           tenant
-- $2::text[]         metric
-- $3::timestamptz[]  period_start
-- $4::text[]         customer
-- $5::bytea[]        group_key
-- $6::text[]         value
--
-- No rows.
DELETE FROM meter.meter_unique
USING unnest($2::text[], $3::timestamptz[], $4::text[], $5::bytea[], $6::text[])
    AS wrong (metric, period_start, customer, group_key, value)
WHERE meter_unique.tenant = $1::text
    AND meter_unique.metric = wrong.metric
    AND meter_unique.period_start = wrong.period_start
    AND meter_unique.customer = wrong.customer
    AND meter_unique.group_key = wrong.group_key
    AND meter_unique.value = wrong.value;
