-- commit - ends the transaction; its effects are durable after a clean end.
--
-- No parameters, no rows. In a failed transaction the server answers with
-- the command tag ROLLBACK.
COMMIT;
