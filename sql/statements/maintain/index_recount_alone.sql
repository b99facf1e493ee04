-- index_recount_alone - is this the only one who recomputes the index?
--
-- No parameters. Row, always one: is_alone boolean. True: until the
-- connection ends.
SELECT pg_try_advisory_lock(
    hashtextextended('meter.event_index recount', 0)
) AS is_alone;
