-- 0004 projections: counters completed, the usage row, billing meters.
-- Every tenant key starts with the tenant; text in keys is compared bytewise.

-- How many keys a tenant has in a counter: moves with the rows themselves.
CREATE TABLE meter.counter_keys (
    tenant       text   COLLATE "C" NOT NULL CHECK (tenant <> ''),
    counter_name text   COLLATE "C" NOT NULL,
    keys         bigint NOT NULL,
    PRIMARY KEY (tenant, counter_name)
) WITH (fillfactor = 75);

INSERT INTO meter.counter_keys (tenant, counter_name, keys)
SELECT
    tenant,
    counter_name,
    count(*)
FROM meter.counter
GROUP BY tenant, counter_name;

-- Updates of counters with `audit`: one row per counter row and
-- transaction. id is drawn while the counter row is locked, so by id the
-- updates of a row stand in the order in which they were made:
-- value = max(value before + step_add, step_floor).
CREATE TABLE meter.counter_audit (
    id            bigint      GENERATED ALWAYS AS IDENTITY,
    tenant        text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    counter_name  text        COLLATE "C" NOT NULL,
    dimension_key bytea       NOT NULL,
    dimensions    text        NOT NULL,
    step_add      bigint,     -- NULL: decided one by one
    step_floor    bigint,     -- NULL: no clamp
    value         bigint      NOT NULL, -- behind the update
    writer        uuid        NOT NULL,
    seq_first     bigint      NOT NULL, -- writer_seq of the first event
    seq_last      bigint      NOT NULL, -- and of the last one
    recorded_at   timestamptz NOT NULL,
    PRIMARY KEY (tenant, counter_name, dimension_key, id)
);

-- Transition mode: where an entity is counted now. owner is the name of the
-- counter. No dimension_key: known, and not counted anywhere.
CREATE TABLE meter.entity_state (
    tenant        text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    owner         text        COLLATE "C" NOT NULL,
    entity        text        COLLATE "C" NOT NULL, -- canonical JSON scalar
    dimension_key bytea,
    dimensions    text,
    updated_at    timestamptz NOT NULL,
    PRIMARY KEY (tenant, owner, entity)
) WITH (fillfactor = 75);

-- One row per tenant: what it has now and whether it is active.
CREATE TABLE meter.tenant_usage_metrics (
    tenant_id       varchar(255) COLLATE "C" PRIMARY KEY,
    entry_count     bigint       NOT NULL DEFAULT 0,
    storage_bytes   bigint       NOT NULL DEFAULT 0,
    api_call_count  bigint       NOT NULL DEFAULT 0,
    status          varchar(20)  NOT NULL DEFAULT 'active',
    last_updated_at timestamptz  NOT NULL DEFAULT now(),
    CHECK (tenant_id <> ''),
    CHECK (entry_count >= 0 AND storage_bytes >= 0 AND api_call_count >= 0),
    CHECK (status IN ('active', 'decommissioned'))
) WITH (fillfactor = 75);

CREATE INDEX idx_tenant_usage_metrics_status
    ON meter.tenant_usage_metrics (status, tenant_id);

-- Billing meters, one row per (metric, period, customer, group). sum to
-- uniques: events that were folded. late_*: events that came too late or
-- after the close, NULL when there is none; late_uniques: values that no
-- folded event has. manual_sum: amounts of manual adjustments. customer is
-- '' for events without one. step_limit carries to DO UPDATE up to where
-- the watermark may stand; no one else reads it.
CREATE TABLE meter.meter_counter (
    tenant                text           COLLATE "C" NOT NULL
                                         CHECK (tenant <> ''),
    metric                text           COLLATE "C" NOT NULL,
    period_start          timestamptz    NOT NULL,
    customer              text           COLLATE "C" NOT NULL,
    group_key             bytea          NOT NULL,
    groups                text           NOT NULL, -- canonical JSON
    sum                   numeric(38, 9) NOT NULL,
    count                 bigint         NOT NULL,
    min                   numeric(38, 9),
    max                   numeric(38, 9),
    last                  numeric(38, 9),
    last_ts               timestamptz,
    last_recorded_at      timestamptz,
    last_writer           uuid,
    last_seq              bigint,
    uniques               bigint         NOT NULL,
    watermark_ts          timestamptz,   -- NULL: nothing folded yet
    late_sum              numeric(38, 9),
    late_count            bigint,
    late_min              numeric(38, 9),
    late_max              numeric(38, 9),
    late_last             numeric(38, 9),
    late_last_ts          timestamptz,
    late_last_recorded_at timestamptz,
    late_last_writer      uuid,
    late_last_seq         bigint,
    late_uniques          bigint,
    manual_sum            numeric(38, 9),
    updated_at            timestamptz    NOT NULL,
    step_limit            timestamptz,
    PRIMARY KEY (tenant, metric, period_start, customer, group_key)
) WITH (fillfactor = 75);

-- The values that a `unique` meter has counted.
CREATE TABLE meter.meter_unique (
    tenant       text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    metric       text        COLLATE "C" NOT NULL,
    period_start timestamptz NOT NULL,
    customer     text        COLLATE "C" NOT NULL,
    group_key    bytea       NOT NULL,
    value        text        COLLATE "C" NOT NULL, -- canonical JSON scalar
    is_folded    boolean     NOT NULL, -- false: only events that were late
    PRIMARY KEY (tenant, metric, period_start, customer, group_key, value)
);

-- Corrections of a period: never changed, never deleted. Of an event: id is
-- its event_id, and what it gave to the meter; a recomputation leaves it out
-- of the folded ones. Manual: id is the client's.
CREATE TABLE meter.meter_adjustment (
    tenant       text           COLLATE "C" NOT NULL CHECK (tenant <> ''),
    metric       text           COLLATE "C" NOT NULL,
    period_start timestamptz    NOT NULL,
    customer     text           COLLATE "C" NOT NULL,
    group_key    bytea          NOT NULL,
    groups       text           NOT NULL,
    is_manual    boolean        NOT NULL,
    id           text           COLLATE "C" NOT NULL,
    amount       numeric(38, 9) NOT NULL, -- total after minus total before
    reason       text           NOT NULL,
    actor        text,          -- manual: who
    ts           timestamptz    NOT NULL, -- the event's; manual: recorded_at
    value        numeric(38, 9), -- of an event, as the rest
    sum          numeric(38, 9),
    count        bigint,
    unique_value text,
    writer       uuid,
    writer_seq   bigint,
    recorded_at  timestamptz    NOT NULL,
    PRIMARY KEY (tenant, metric, is_manual, id)
);

CREATE INDEX meter_adjustment_period
    ON meter.meter_adjustment
    (tenant, metric, period_start, customer, recorded_at, id);
CREATE UNIQUE INDEX meter_adjustment_manual
    ON meter.meter_adjustment (tenant, id)
    WHERE is_manual;

-- Closed periods. frozen_at: by then every transaction that did not know of
-- the close had ended, so the folded figures stand for ever.
CREATE TABLE meter.meter_close (
    tenant       text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    metric       text        COLLATE "C" NOT NULL,
    period_start timestamptz NOT NULL,
    actor        text        NOT NULL,
    closed_at    timestamptz NOT NULL,
    frozen_at    timestamptz,
    PRIMARY KEY (tenant, metric, period_start)
);


-- Row-level security: as in 0002.

ALTER TABLE meter.counter_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.counter_keys FORCE ROW LEVEL SECURITY;
ALTER TABLE meter.counter_audit ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.counter_audit FORCE ROW LEVEL SECURITY;
ALTER TABLE meter.entity_state ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.entity_state FORCE ROW LEVEL SECURITY;
ALTER TABLE meter.tenant_usage_metrics ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.tenant_usage_metrics FORCE ROW LEVEL SECURITY;
ALTER TABLE meter.meter_counter ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.meter_counter FORCE ROW LEVEL SECURITY;
ALTER TABLE meter.meter_unique ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.meter_unique FORCE ROW LEVEL SECURITY;
ALTER TABLE meter.meter_adjustment ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.meter_adjustment FORCE ROW LEVEL SECURITY;
ALTER TABLE meter.meter_close ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.meter_close FORCE ROW LEVEL SECURITY;

CREATE POLICY reader_tenant ON meter.counter_audit
    FOR SELECT TO meter_reader
    USING (tenant = NULLIF(current_setting('app.current_tenant', true), ''));
CREATE POLICY tenant_isolation_policy ON meter.tenant_usage_metrics
    FOR SELECT TO meter_reader
    USING (
        tenant_id = NULLIF(current_setting('app.current_tenant', true), '')
    );
CREATE POLICY reader_tenant ON meter.meter_counter
    FOR SELECT TO meter_reader
    USING (tenant = NULLIF(current_setting('app.current_tenant', true), ''));
CREATE POLICY reader_tenant ON meter.meter_unique
    FOR SELECT TO meter_reader
    USING (tenant = NULLIF(current_setting('app.current_tenant', true), ''));
CREATE POLICY reader_tenant ON meter.meter_adjustment
    FOR SELECT TO meter_reader
    USING (tenant = NULLIF(current_setting('app.current_tenant', true), ''));
CREATE POLICY reader_tenant ON meter.meter_close
    FOR SELECT TO meter_reader
    USING (tenant = NULLIF(current_setting('app.current_tenant', true), ''));

GRANT SELECT
    ON meter.counter_audit, meter.tenant_usage_metrics,
       meter.meter_counter, meter.meter_unique, meter.meter_adjustment,
       meter.meter_close
    TO meter_reader;

CREATE POLICY writer_any ON meter.counter_keys
    TO meter_writer USING (true) WITH CHECK (true);
CREATE POLICY writer_any ON meter.counter_audit
    TO meter_writer USING (true) WITH CHECK (true);
CREATE POLICY writer_any ON meter.entity_state
    TO meter_writer USING (true) WITH CHECK (true);
CREATE POLICY writer_any ON meter.tenant_usage_metrics
    TO meter_writer USING (true) WITH CHECK (true);
CREATE POLICY writer_any ON meter.meter_counter
    TO meter_writer USING (true) WITH CHECK (true);
CREATE POLICY writer_any ON meter.meter_unique
    TO meter_writer USING (true) WITH CHECK (true);
CREATE POLICY writer_any ON meter.meter_adjustment
    TO meter_writer USING (true) WITH CHECK (true);
CREATE POLICY writer_any ON meter.meter_close
    TO meter_writer USING (true) WITH CHECK (true);

-- What is derived from the ledger may be made again from it.
GRANT SELECT ON meter.event TO meter_writer;
GRANT DELETE ON meter.counter TO meter_writer;
GRANT SELECT, INSERT, UPDATE, DELETE
    ON meter.counter_keys, meter.entity_state, meter.tenant_usage_metrics,
       meter.meter_counter, meter.meter_unique
    TO meter_writer;
GRANT SELECT, INSERT
    ON meter.counter_audit, meter.meter_adjustment, meter.meter_close
    TO meter_writer;
GRANT UPDATE (frozen_at) ON meter.meter_close TO meter_writer;

-- All tenants of the installation: listed for administrators by
-- meter.tenant_list, which runs as the owner.
CREATE POLICY owner_any ON meter.tenant_usage_metrics
    FOR SELECT TO meter_owner USING (true);

-- Made again behind the migrations, now with a result that the planner can
-- put in place of the call.
DROP FUNCTION IF EXISTS meter.set_tenant(text);
