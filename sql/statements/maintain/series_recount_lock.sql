-- series_recount_lock - no one flushes until the transaction ends.
--
-- No parameters, no rows. Every flush changes its row of writer_flush before
-- it touches a series: those that did are waited for, the others wait, also
-- those of a writer that is new.
LOCK TABLE meter.writer_flush IN EXCLUSIVE MODE;
