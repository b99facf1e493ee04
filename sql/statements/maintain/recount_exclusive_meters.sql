-- recount_exclusive_meters - no one else changes meters until the end.
--
-- No parameters, no rows. Behind recount_exclusive: manual adjustments
-- change meters without being events.
LOCK TABLE meter.meter_counter IN SHARE ROW EXCLUSIVE MODE;
