-- checkpoint_usages_fetch - the next rows of checkpoint_usages.
--
-- No parameters. Rows: as there; none at the end.
FETCH FORWARD 1000 FROM checkpoint_usages;
