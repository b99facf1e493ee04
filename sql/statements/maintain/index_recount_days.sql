-- index_recount_days - days that ledger or index have a partition for.
--
-- $1::date  this day and later, NULL: all
--
-- Rows, ascending: day date.
SELECT DISTINCT to_date(right(part.relname, 8), 'YYYYMMDD') AS day
FROM pg_catalog.pg_inherits AS made
JOIN pg_catalog.pg_class AS part ON part.oid = made.inhrelid
WHERE made.inhparent IN (
        'meter.event'::regclass,
        'meter.event_index'::regclass
    )
    AND (
        $1::date IS NULL
        OR to_date(right(part.relname, 8), 'YYYYMMDD') >= $1::date
    )
ORDER BY 1;
