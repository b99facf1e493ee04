-- meter.mean(sum, count) - exact, nine digits, a half to the even one.
--
-- The twin of meter_decimal_divide in meterd. One expression and no settings
-- of its own, so that the planner puts it in place of the call.
CREATE OR REPLACE FUNCTION meter.mean(sum numeric, count bigint)
RETURNS numeric
LANGUAGE sql
IMMUTABLE
SECURITY INVOKER
AS $$
    SELECT pg_catalog.sign(sum) * 1e-9 * (
        pg_catalog.div(pg_catalog.abs(sum) * 1e9, count)
        + CASE
            WHEN 2 * pg_catalog.mod(pg_catalog.abs(sum) * 1e9, count) > count
                THEN 1
            WHEN 2 * pg_catalog.mod(pg_catalog.abs(sum) * 1e9, count) = count
                THEN pg_catalog.mod(
                    pg_catalog.div(pg_catalog.abs(sum) * 1e9, count), 2
                )
            ELSE 0
        END
    )
$$;

REVOKE ALL ON FUNCTION meter.mean(numeric, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION meter.mean(numeric, bigint) TO meter_writer;
