-- meter.adjust(...) - a manual correction of a billing period, once per id.
--
-- outcome: 0 made now; 1 was made before with the same content; 2 the id is
-- taken by another content; 3 the period has not begun. For 0 and 1 the
-- other columns are the stored adjustment. said_actor is who the client says
-- it is; where it says none (NULL) default_actor is kept and not compared.
-- Two callers with one id: the second one waits and finds what the first one
-- made. The row of the meter is locked in either case: a commit that writes
-- waits for a synchronous standby, so the answer to a retry is worth as much
-- as that to the first try. 22003: the amounts of the row would pass 10^28,
-- which leaves its events room within 38 digits, or its total would pass
-- those, whatever the metric makes of the events: then no one could read it.
-- Runs as its caller, meter_writer.
CREATE OR REPLACE FUNCTION meter.adjust(
    of_tenant     text,
    of_metric     text,
    of_period     timestamptz,
    of_customer   text,
    of_group_key  bytea,
    of_groups     text,
    of_id         text,
    of_amount     numeric,
    of_reason     text,
    said_actor    text,
    default_actor text
)
RETURNS TABLE (
    outcome      integer,
    metric       text,
    period_start timestamptz,
    customer     text,
    groups       text,
    amount       numeric,
    reason       text,
    actor        text,
    recorded_at  timestamptz
)
LANGUAGE plpgsql
VOLATILE
SECURITY INVOKER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    stamp   timestamptz := clock_timestamp();
    made    boolean;
    amounts numeric;
    most    numeric;
    stored  meter.meter_adjustment;
BEGIN
    IF of_period > stamp THEN
        outcome := 3;
        RETURN NEXT;
        RETURN;
    END IF;

    INSERT INTO meter.meter_adjustment (
        tenant, metric, period_start, customer, group_key, groups,
        is_manual, id, amount, reason, actor, ts, recorded_at
    )
    VALUES (
        of_tenant, of_metric, of_period, of_customer, of_group_key, of_groups,
        true, of_id, of_amount, of_reason,
        COALESCE(said_actor, default_actor), stamp, stamp
    )
    ON CONFLICT DO NOTHING;
    made := FOUND;

    SELECT adjustment.*
    INTO STRICT stored
    FROM meter.meter_adjustment AS adjustment
    WHERE adjustment.tenant = of_tenant
        AND adjustment.is_manual
        AND adjustment.id = of_id;

    IF made THEN
        INSERT INTO meter.meter_counter (
            tenant, metric, period_start, customer, group_key, groups,
            sum, count, uniques, updated_at
        )
        VALUES (
            of_tenant, of_metric, of_period, of_customer, of_group_key,
            of_groups, 0, 0, 0, stamp
        )
        ON CONFLICT DO NOTHING;
    END IF;

    UPDATE meter.meter_counter AS counter
    SET
        manual_sum = COALESCE(counter.manual_sum, 0)
            + CASE WHEN made THEN of_amount ELSE 0 END,
        updated_at = GREATEST(
            counter.updated_at,
            CASE WHEN made THEN stamp END
        )
    WHERE counter.tenant = stored.tenant
        AND counter.metric = stored.metric
        AND counter.period_start = stored.period_start
        AND counter.customer = stored.customer
        AND counter.group_key = stored.group_key
        AND counter.groups = stored.groups
    RETURNING
        counter.manual_sum,
        GREATEST(
            abs(counter.sum + COALESCE(counter.late_sum, 0)
                + counter.manual_sum),
            abs(LEAST(counter.min, counter.late_min) + counter.manual_sum),
            abs(GREATEST(counter.max, counter.late_max) + counter.manual_sum)
        )
    INTO amounts, most;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the group % is not that of its key', stored.groups;
    END IF;
    IF made AND abs(amounts) > 1e28 THEN
        RAISE EXCEPTION 'the amounts of this row would pass 10^28'
            USING ERRCODE = 'numeric_value_out_of_range';
    END IF;
    IF made AND most >= 1e29 THEN
        RAISE EXCEPTION 'the total of this row would pass 38 digits'
            USING ERRCODE = 'numeric_value_out_of_range';
    END IF;

    outcome := CASE
        WHEN made THEN 0
        WHEN stored.metric = of_metric
            AND stored.period_start = of_period
            AND stored.customer = of_customer
            AND stored.group_key = of_group_key
            AND stored.amount = of_amount
            AND stored.reason = of_reason
            AND (said_actor IS NULL OR stored.actor = said_actor)
            THEN 1
        ELSE 2
    END;
    metric := stored.metric;
    period_start := stored.period_start;
    customer := stored.customer;
    groups := stored.groups;
    amount := stored.amount;
    reason := stored.reason;
    actor := stored.actor;
    recorded_at := stored.recorded_at;
    RETURN NEXT;
END
$$;

REVOKE ALL ON FUNCTION meter.adjust(
    text, text, timestamptz, text, bytea, text, text, numeric, text, text,
    text
) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION meter.adjust(
    text, text, timestamptz, text, bytea, text, text, numeric, text, text,
    text
) TO meter_writer;
