-- rollback - ends the transaction without effects.
--
-- No parameters, no rows.
ROLLBACK;
