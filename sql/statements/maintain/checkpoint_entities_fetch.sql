-- checkpoint_entities_fetch - the next rows of checkpoint_entities.
--
-- No parameters. Rows: as there; none at the end.
FETCH FORWARD 1000 FROM checkpoint_entities;
