-- series_recount_hold - keeps ledger, series and index as they are cut.
--
-- No parameters, no rows. Stops neither reads nor writes nor new partitions,
-- only the removal of old ones.
LOCK TABLE
    meter.event,
    meter.event_index,
    meter.series_5s,
    meter.series_1m,
    meter.series_1h,
    meter.series_1d,
    meter.series_7d
IN ACCESS SHARE MODE;
