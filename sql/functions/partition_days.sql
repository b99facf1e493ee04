-- meter.partition_days(parent) - first days of the partitions that exist of
-- a partitioned table.
CREATE OR REPLACE FUNCTION meter.partition_days(parent text)
RETURNS SETOF date
LANGUAGE plpgsql
STABLE
SECURITY INVOKER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM meter.partition_span(parent);
    RETURN QUERY
    SELECT to_date(right(child.relname, 8), 'YYYYMMDD')
    FROM pg_inherits AS link
    INNER JOIN pg_class AS child
        ON child.oid = link.inhrelid
    WHERE link.inhparent = format('meter.%I', parent)::regclass
        AND NOT link.inhdetachpending;
END
$$;

REVOKE ALL ON FUNCTION meter.partition_days(text) FROM PUBLIC;
