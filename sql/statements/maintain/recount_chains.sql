-- recount_chains - counter rows that are not what their last update left.
--
-- $1::text    tenant
-- $2::text[]  counter_name of counters with an audit log
--
-- Rows: counter_name text, dimension_key bytea, dimensions text, value
-- bigint, logged bigint. Rows without a log are none of them.
SELECT
    counter.counter_name,
    counter.dimension_key,
    counter.dimensions,
    counter.value,
    newest.value AS logged
FROM unnest($2::text[]) AS audited (counter_name)
INNER JOIN meter.counter AS counter
    ON counter.tenant = $1::text
        AND counter.counter_name = audited.counter_name
CROSS JOIN LATERAL (
    SELECT counter_audit.value
    FROM meter.counter_audit AS counter_audit
    WHERE counter_audit.tenant = counter.tenant
        AND counter_audit.counter_name = counter.counter_name
        AND counter_audit.dimension_key = counter.dimension_key
    ORDER BY counter_audit.id DESC
    LIMIT 1
) AS newest
WHERE newest.value <> counter.value;
