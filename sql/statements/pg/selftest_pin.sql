-- selftest_pin - keeps the checked synchronous_commit for the session, so
-- that a reload of the server's configuration cannot weaken it unseen.
--
-- Row: the value, text.
SELECT set_config(
    'synchronous_commit',
    current_setting('synchronous_commit'),
    false
);
