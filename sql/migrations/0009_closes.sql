-- 0009 closes: what was billed at a close, and who put a closed period right.

-- Figures of a close, one row per customer and group, as they were when it
-- was made: never changed, never deleted. No value: a mean, minimum, maximum
-- or last value of no event.
CREATE TABLE meter.meter_billed (
    tenant       text           COLLATE "C" NOT NULL CHECK (tenant <> ''),
    metric       text           COLLATE "C" NOT NULL,
    period_start timestamptz    NOT NULL,
    customer     text           COLLATE "C" NOT NULL,
    group_key    bytea          NOT NULL,
    groups       text           NOT NULL, -- canonical JSON
    value        numeric(38, 9),
    total        numeric(38, 9),
    PRIMARY KEY (tenant, metric, period_start, customer, group_key)
);

-- Rebuilds that changed a closed period: never changed, never deleted.
CREATE TABLE meter.meter_reopen (
    tenant       text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    metric       text        COLLATE "C" NOT NULL,
    period_start timestamptz NOT NULL,
    reopened_at  timestamptz NOT NULL,
    actor        text        NOT NULL,
    reason       text        NOT NULL,
    figures      bigint      NOT NULL, -- rows that were changed
    PRIMARY KEY (tenant, metric, period_start, reopened_at)
);

-- period: as it was called when it was closed. figures: rows of meter_billed.
-- Both are NULL for a close that was made before there were any.
ALTER TABLE meter.meter_close
    ADD COLUMN period  text,
    ADD COLUMN figures bigint;

-- A close that is complete stays as it is.
CREATE FUNCTION meter.close_guard()
RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION 'the close of % for % is final', OLD.metric,
        OLD.period_start
        USING ERRCODE = 'object_not_in_prerequisite_state';
END
$$;

REVOKE ALL ON FUNCTION meter.close_guard() FROM PUBLIC;

CREATE TRIGGER close_guard
    BEFORE UPDATE ON meter.meter_close
    FOR EACH ROW
    WHEN (OLD.frozen_at IS NOT NULL AND OLD IS DISTINCT FROM NEW)
    EXECUTE FUNCTION meter.close_guard();


-- Row-level security: as in 0002.

ALTER TABLE meter.meter_billed ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.meter_billed FORCE ROW LEVEL SECURITY;
ALTER TABLE meter.meter_reopen ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.meter_reopen FORCE ROW LEVEL SECURITY;

CREATE POLICY reader_tenant ON meter.meter_billed
    FOR SELECT TO meter_reader
    USING (tenant = NULLIF(current_setting('app.current_tenant', true), ''));
CREATE POLICY reader_tenant ON meter.meter_reopen
    FOR SELECT TO meter_reader
    USING (tenant = NULLIF(current_setting('app.current_tenant', true), ''));
CREATE POLICY writer_any ON meter.meter_billed
    TO meter_writer USING (true) WITH CHECK (true);
CREATE POLICY writer_any ON meter.meter_reopen
    TO meter_writer USING (true) WITH CHECK (true);

GRANT SELECT ON meter.meter_billed, meter.meter_reopen TO meter_reader;
GRANT SELECT, INSERT ON meter.meter_billed, meter.meter_reopen
    TO meter_writer;
GRANT UPDATE (period, figures) ON meter.meter_close TO meter_writer;
