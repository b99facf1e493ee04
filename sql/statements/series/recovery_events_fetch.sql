-- recovery_events_fetch - the next rows of recovery_events.
--
-- No parameters. Rows: as there; none at the end.
FETCH FORWARD 1000 FROM recovery_events;
