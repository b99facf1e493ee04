-- meter.mean(sum, count) - exact, nine digits, a half to the even one.
--
-- The twin of meter_decimal_divide in meterd.
CREATE OR REPLACE FUNCTION meter.mean(sum numeric, count bigint)
RETURNS numeric
LANGUAGE sql
IMMUTABLE
SECURITY INVOKER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT sign(sum) * 1e-9 * (
        whole + CASE
            WHEN 2 * rest > count OR (2 * rest = count AND mod(whole, 2) = 1)
                THEN 1
            ELSE 0
        END
    )
    FROM (
        SELECT
            div(abs(sum) * 1e9, count) AS whole,
            mod(abs(sum) * 1e9, count) AS rest
    ) AS parts
$$;

REVOKE ALL ON FUNCTION meter.mean(numeric, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION meter.mean(numeric, bigint) TO meter_writer;
