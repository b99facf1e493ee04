-- close_pass - waits for all who may not know that a period is closed.
--
-- Row: writers bigint. In a transaction behind that of close_begin: passes
-- through the writer_seq lock of every writer. Whoever held one may have
-- missed the close, whoever takes one later sees it. Rows of writers that
-- are gone are held by no one. 55P03: one is held for too long.
WITH passed AS MATERIALIZED (
    SELECT writer
    FROM meter.writer_seq
    ORDER BY writer
    FOR UPDATE
)
SELECT count(*) AS writers
FROM passed;
