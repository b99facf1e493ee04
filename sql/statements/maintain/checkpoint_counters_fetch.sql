-- checkpoint_counters_fetch - the next rows of checkpoint_counters.
--
-- No parameters. Rows: as there; none at the end.
FETCH FORWARD 1000 FROM checkpoint_counters;
