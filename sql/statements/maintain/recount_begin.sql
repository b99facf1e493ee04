-- recount_begin - starts a snapshot of ledger and projections.
--
-- No parameters, no rows. The snapshot is taken by the first statement that
-- reads, behind recount_hold.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
