-- checkpoint_begin - starts the snapshot that a checkpoint is.
--
-- No parameters, no rows. Ledger, numbers and projections of a transaction
-- are in it together or not at all.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
