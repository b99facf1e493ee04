-- meter_closed - which of these billing periods are closed.
--
-- $1::text[]         tenant
-- $2::text[]         metric
-- $3::timestamptz[]  period_start
-- $4::integer[]      the asker's number for it, given back
--
-- Rows, only for closed periods, in no order: number integer. Asked behind
-- the lock of writer_seq, which a close passes through before it freezes a
-- period: whoever does not see the close here has ended by then. LATERAL:
-- one probe of the primary key for each.
SELECT asked.number
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::integer[])
    AS asked (tenant, metric, period_start, number)
CROSS JOIN LATERAL (
    SELECT meter_close.tenant
    FROM meter.meter_close
    WHERE meter_close.tenant = asked.tenant
        AND meter_close.metric = asked.metric
        AND meter_close.period_start = asked.period_start
    LIMIT 1
) AS closed;
