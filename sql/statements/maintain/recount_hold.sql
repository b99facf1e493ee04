-- recount_hold - keeps the days of the ledger until the transaction ends.
--
-- No parameters, no rows. Stops neither reads nor writes nor new days, only
-- the removal of old ones.
LOCK TABLE meter.event IN ACCESS SHARE MODE;
