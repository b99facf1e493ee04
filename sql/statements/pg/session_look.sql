-- session_look - is this still the session that session_set has set?
--
-- Row: session text, the mark that it was given; NULL when it has none.
SELECT current_setting('meter.session', true) AS session;
