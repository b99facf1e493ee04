-- 0001 schema: all tables of the first version, and who may do what with
-- them. Runs as meter_owner in a schema that the bootstrap made.
--
--   writers, registry and ledger      who counts, who was counted, and what
--   meters, counters, usage, series   what is derived from the ledger
--   buckets, edge, tokens             the counters API, rings, clients
--   maintenance                       what operators' commands keep
--   rights                            grants and row-level security
--
-- Every tenant key starts with the tenant. Text in keys is compared bytewise
-- (COLLATE "C"): the order in which rows are locked, and the cheapest one. A
-- column that only carries a number to DO UPDATE, which can read table
-- columns only, is called step_*: no one else reads it, and an update clears
-- it.
--
-- Every transaction has a stamp that is later than all it must follow, also
-- when the clock was set back; that is the order. Where it runs ahead of the
-- clock, the clock is kept beside it, for everything that shows or compares a
-- time of day.


-- Writers.

-- The salt of ids and fingerprints: drawn once, never rotated.
CREATE TABLE meter.secret (
    name  text  PRIMARY KEY,
    value bytea NOT NULL
);

INSERT INTO meter.secret (name, value)
VALUES ('salt', uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));

-- One row per lane. A new instance bumps the epoch; every transaction of a
-- lane reads it FOR SHARE, so a fenced instance can commit nothing more.
CREATE TABLE meter.writer (
    writer       uuid        PRIMARY KEY,
    node         text        NOT NULL,
    epoch        bigint      NOT NULL,
    started_at   timestamptz NOT NULL,
    retired_at   timestamptz
);

-- last: sequence number of the newest ledger row, dense, assigned under
-- this row's lock. batch: one more per ingest transaction; it decides an
-- unknown COMMIT. heartbeat_at is the clock, and goes back with it.
-- stamped_at is the order: what the writer records next is later.
CREATE TABLE meter.writer_seq (
    writer       uuid        PRIMARY KEY REFERENCES meter.writer,
    last         bigint      NOT NULL,
    batch        bigint      NOT NULL,
    heartbeat_at timestamptz NOT NULL,
    stamped_at   timestamptz NOT NULL
) WITH (fillfactor = 50);

-- upto: ledger rows of this writer up to here are in the series tables.
-- recorded_at: that of ledger row upto; later rows are no older. flushed_at:
-- everything that the writer had committed by then is in the series tables.
CREATE TABLE meter.writer_flush (
    writer      uuid   PRIMARY KEY REFERENCES meter.writer,
    upto        bigint NOT NULL,
    recorded_at timestamptz,
    flushed_at  timestamptz
) WITH (fillfactor = 50);


-- Registry and ledger.

-- Who was counted. scope is the tenant, or '' where ids are unique over
-- all tenants. Kept for ever; no effect of an event without its row.
CREATE TABLE meter.event_registry (
    scope         text        COLLATE "C" NOT NULL,
    key           uuid        NOT NULL,
    tenant        text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    head          bigint      NOT NULL,
    body          bigint,
    ts            timestamptz NOT NULL,
    part_day      date        NOT NULL,
    first_seen_at timestamptz NOT NULL,
    PRIMARY KEY (key, scope) -- time-ordered ids of all tenants: one edge
);

-- What was counted: immutable, in full. recorded_at is the order. clock_at:
-- the database's clock where recorded_at was ahead of it, else NULL, which
-- takes no room.
CREATE TABLE meter.event (
    tenant      text           COLLATE "C" NOT NULL CHECK (tenant <> ''),
    event_id    text           COLLATE "C" NOT NULL,
    type        text           NOT NULL,
    ts          timestamptz    NOT NULL,
    part_day    date           NOT NULL,
    customer    text,
    resource    text,
    quantity    numeric(38, 9) NOT NULL,
    count       bigint         NOT NULL,
    attributes  text           NOT NULL,
    source      text,
    flags       integer        NOT NULL,
    session     uuid,
    seq         bigint,
    writer      uuid           NOT NULL,
    writer_seq  bigint         NOT NULL,
    recorded_at timestamptz    NOT NULL,
    disposition smallint       NOT NULL, -- 0 folded, 1 adjusted
    from_state  text,
    clock_at    timestamptz
) PARTITION BY RANGE (part_day);

CREATE INDEX event_tenant_ts ON meter.event (tenant, ts)
    WITH (deduplicate_items = off);
CREATE INDEX event_recorded_at ON meter.event USING brin (recorded_at);

-- One row per observation of a known id. What came is kept where it differs
-- from the stored event or could not be compared; else it is that event.
CREATE TABLE meter.duplicate_audit (
    tenant            text        COLLATE "C" NOT NULL,
    event_id          text        COLLATE "C" NOT NULL,
    key               uuid        NOT NULL,
    verdict           smallint    NOT NULL, -- 1 duplicate, 2 conflict
    first_seen_at     timestamptz NOT NULL,
    duplicate_seen_at timestamptz NOT NULL,
    part_day          date        NOT NULL,
    item              integer     NOT NULL, -- place in its batch
    type              text,
    ts                timestamptz,
    payload           text -- canonical JSON
) PARTITION BY RANGE (part_day);

-- Written a thousand times for each time it is read: a bloom filter over 32
-- pages each costs an insert next to nothing, a look-up some milliseconds.
CREATE INDEX duplicate_audit_key ON meter.duplicate_audit
    USING brin (key uuid_bloom_ops (n_distinct_per_range = 2048))
    WITH (pages_per_range = 32, autosummarize = on);

-- Declared attributes of accepted events: prunes, never decides. value is
-- canonical JSON, cut to 256 bytes. part_day is that of the ledger row.
CREATE TABLE meter.event_index (
    tenant     text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    type       text        COLLATE "C" NOT NULL,
    attribute  text        COLLATE "C" NOT NULL,
    value      text        COLLATE "C" NOT NULL,
    ts         timestamptz NOT NULL,
    part_day   date        NOT NULL,
    writer     uuid        NOT NULL,
    writer_seq bigint      NOT NULL
) PARTITION BY RANGE (part_day);

CREATE INDEX event_index_value
    ON meter.event_index (tenant, type, attribute, value, ts)
    WITH (deduplicate_items = off);


-- Meters.

-- Billing meters, one row per (metric, period, customer, group). sum to
-- uniques: events that were folded. late_*: events that came too late or
-- after the close, NULL when there is none; late_uniques: values that no
-- folded event has. manual_sum: amounts of manual adjustments. customer is
-- '' for events without one. step_limit: up to where the watermark may stand.
-- made_at, here and elsewhere, is when the row was made: one that was made
-- after a change of its rule has nothing in it of the rule before.
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
    made_at               timestamptz    DEFAULT now(),
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
-- of the folded ones. Manual: id is the client's. recorded_at is the clock,
-- since people list these by their time. stamped_at: the order where it was
-- ahead of it, else NULL.
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
    stamped_at   timestamptz,
    PRIMARY KEY (tenant, metric, is_manual, id)
);

CREATE INDEX meter_adjustment_period
    ON meter.meter_adjustment
    (tenant, metric, period_start, customer, recorded_at, id);
CREATE UNIQUE INDEX meter_adjustment_manual
    ON meter.meter_adjustment (tenant, id)
    WHERE is_manual;

-- Closed periods. frozen_at: by then every transaction that did not know of
-- the close had ended, so the folded figures stand for ever. period: as it
-- was called when it was closed. figures: rows of meter_billed; NULL: none
-- were kept.
CREATE TABLE meter.meter_close (
    tenant       text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    metric       text        COLLATE "C" NOT NULL,
    period_start timestamptz NOT NULL,
    actor        text        NOT NULL,
    closed_at    timestamptz NOT NULL,
    frozen_at    timestamptz,
    period       text,
    figures      bigint,
    PRIMARY KEY (tenant, metric, period_start)
);

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


-- Counters.

-- Persistent dimension counters: all-time totals, never expire. step_add and
-- step_floor are the two numbers of a fold.
CREATE TABLE meter.counter (
    tenant        text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    counter_name  text        COLLATE "C" NOT NULL,
    dimension_key bytea       NOT NULL,
    dimensions    text        NOT NULL, -- canonical JSON
    value         bigint      NOT NULL,
    updated_at    timestamptz NOT NULL,
    step_add      bigint,
    step_floor    bigint,
    made_at       timestamptz DEFAULT now(),
    PRIMARY KEY (tenant, counter_name, dimension_key)
) WITH (fillfactor = 75);

-- How many keys a tenant has in a counter: moves with the rows themselves.
CREATE TABLE meter.counter_keys (
    tenant       text   COLLATE "C" NOT NULL CHECK (tenant <> ''),
    counter_name text   COLLATE "C" NOT NULL,
    keys         bigint NOT NULL,
    PRIMARY KEY (tenant, counter_name)
) WITH (fillfactor = 75);

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
    value         bigint      NOT NULL, -- after the update
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
    made_at       timestamptz DEFAULT now(),
    PRIMARY KEY (tenant, owner, entity)
) WITH (fillfactor = 75);


-- Usage.

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


-- Series.

-- The dimension sets of a series, each once. version says which definition
-- (kind, policy, dimensions, buckets) it belongs to.
CREATE TABLE meter.series_key (
    tenant        text   COLLATE "C" NOT NULL CHECK (tenant <> ''),
    series        text   COLLATE "C" NOT NULL,
    version       bigint NOT NULL,
    dimension_key bytea  NOT NULL,
    dimensions    text   NOT NULL, -- canonical JSON
    PRIMARY KEY (tenant, series, version, dimension_key)
);

-- One row per dimension set and bucket. count: samples. sum: of values times
-- count; 2^63 samples of 38 digits make 57. min, max, last: gauges. labels,
-- counts: tallies of a histogram (upper bounds, "inf") or of a state series
-- (JSON ["from","to"]), by label, bytewise. A level above the first is
-- recomputed from the one below.
CREATE TABLE meter.series_5s (
    tenant           text           COLLATE "C" NOT NULL CHECK (tenant <> ''),
    series           text           COLLATE "C" NOT NULL,
    version          bigint         NOT NULL,
    dimension_key    bytea          NOT NULL,
    bucket           timestamptz    NOT NULL,
    count            bigint         NOT NULL,
    sum              numeric(57, 9),
    min              numeric(38, 9),
    max              numeric(38, 9),
    last             numeric(38, 9),
    last_at          timestamptz,
    last_recorded_at timestamptz,
    last_writer      uuid,
    last_seq         bigint,
    labels           text[]         COLLATE "C",
    counts           bigint[],
    PRIMARY KEY (tenant, series, version, dimension_key, bucket)
) PARTITION BY RANGE (bucket);

CREATE TABLE meter.series_1m (
    tenant           text           COLLATE "C" NOT NULL CHECK (tenant <> ''),
    series           text           COLLATE "C" NOT NULL,
    version          bigint         NOT NULL,
    dimension_key    bytea          NOT NULL,
    bucket           timestamptz    NOT NULL,
    count            bigint         NOT NULL,
    sum              numeric(57, 9),
    min              numeric(38, 9),
    max              numeric(38, 9),
    last             numeric(38, 9),
    last_at          timestamptz,
    last_recorded_at timestamptz,
    last_writer      uuid,
    last_seq         bigint,
    labels           text[]         COLLATE "C",
    counts           bigint[],
    PRIMARY KEY (tenant, series, version, dimension_key, bucket)
) PARTITION BY RANGE (bucket);

CREATE TABLE meter.series_1h (
    tenant           text           COLLATE "C" NOT NULL CHECK (tenant <> ''),
    series           text           COLLATE "C" NOT NULL,
    version          bigint         NOT NULL,
    dimension_key    bytea          NOT NULL,
    bucket           timestamptz    NOT NULL,
    count            bigint         NOT NULL,
    sum              numeric(57, 9),
    min              numeric(38, 9),
    max              numeric(38, 9),
    last             numeric(38, 9),
    last_at          timestamptz,
    last_recorded_at timestamptz,
    last_writer      uuid,
    last_seq         bigint,
    labels           text[]         COLLATE "C",
    counts           bigint[],
    PRIMARY KEY (tenant, series, version, dimension_key, bucket)
) PARTITION BY RANGE (bucket);

CREATE TABLE meter.series_1d (
    tenant           text           COLLATE "C" NOT NULL CHECK (tenant <> ''),
    series           text           COLLATE "C" NOT NULL,
    version          bigint         NOT NULL,
    dimension_key    bytea          NOT NULL,
    bucket           timestamptz    NOT NULL,
    count            bigint         NOT NULL,
    sum              numeric(57, 9),
    min              numeric(38, 9),
    max              numeric(38, 9),
    last             numeric(38, 9),
    last_at          timestamptz,
    last_recorded_at timestamptz,
    last_writer      uuid,
    last_seq         bigint,
    labels           text[]         COLLATE "C",
    counts           bigint[],
    PRIMARY KEY (tenant, series, version, dimension_key, bucket)
) PARTITION BY RANGE (bucket);

CREATE TABLE meter.series_7d (
    tenant           text           COLLATE "C" NOT NULL CHECK (tenant <> ''),
    series           text           COLLATE "C" NOT NULL,
    version          bigint         NOT NULL,
    dimension_key    bytea          NOT NULL,
    bucket           timestamptz    NOT NULL,
    count            bigint         NOT NULL,
    sum              numeric(57, 9),
    min              numeric(38, 9),
    max              numeric(38, 9),
    last             numeric(38, 9),
    last_at          timestamptz,
    last_recorded_at timestamptz,
    last_writer      uuid,
    last_seq         bigint,
    labels           text[]         COLLATE "C",
    counts           bigint[],
    PRIMARY KEY (tenant, series, version, dimension_key, bucket)
) PARTITION BY RANGE (bucket);

-- Buckets of a level that have to be computed again from the level below: 1
-- is 1m, 4 is 7d. Append-only; whoever recomputes a bucket deletes the marks
-- that it had read before it read the level below.
CREATE TABLE meter.series_dirty (
    id            bigint      GENERATED ALWAYS AS IDENTITY,
    level         smallint    NOT NULL CHECK (level BETWEEN 1 AND 4),
    tenant        text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    series        text        COLLATE "C" NOT NULL,
    version       bigint      NOT NULL,
    dimension_key bytea       NOT NULL,
    bucket        timestamptz NOT NULL,
    marked_at     timestamptz NOT NULL,
    PRIMARY KEY (level, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000
);

CREATE INDEX series_dirty_series
    ON meter.series_dirty (tenant, series, marked_at);


-- Buckets.

-- One bucket of a counter of the counters API. Sixteen partitions by tenant;
-- a quarter of each page is left for new versions of its rows, and no column
-- that a write changes is indexed, so that updates stay on their page.
-- time_start is a multiple of duration_seconds since 1970; 0 seconds: one
-- bucket, at 1970.
CREATE TABLE meter.bucket_counter (
    tenant           text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    name             text        COLLATE "C" NOT NULL,
    duration_seconds bigint      NOT NULL CHECK (duration_seconds >= 0),
    time_start       timestamptz NOT NULL,
    added            bigint      NOT NULL,
    subbed           bigint      NOT NULL CHECK (subbed >= 0),
    expires_at       timestamptz, -- from then on it is as if it were not there
    CHECK (added >= subbed),
    PRIMARY KEY (tenant, name, duration_seconds, time_start)
) PARTITION BY HASH (tenant);

-- What a write with a key was answered: kept for ever, as event ids are.
-- digest: of what was asked. outcome: 0 applied, 1 would have been negative, 2
-- would have left 64 bits; added and subbed only with 0, right after it.
CREATE TABLE meter.api_idempotency (
    tenant      text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    key         text        COLLATE "C" NOT NULL,
    digest      bytea       NOT NULL,
    outcome     smallint    NOT NULL,
    added       bigint,
    subbed      bigint,
    recorded_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, key)
) PARTITION BY HASH (tenant);

DO $$
BEGIN
    FOR i IN 0..15 LOOP
        EXECUTE format(
            'CREATE TABLE meter.%I PARTITION OF meter.bucket_counter'
                ' FOR VALUES WITH (MODULUS 16, REMAINDER %s)'
                ' WITH (fillfactor = 75)',
            'bucket_counter_' || to_char(i, 'FM00'),
            i
        );
        EXECUTE format(
            'CREATE TABLE meter.%I PARTITION OF meter.api_idempotency'
                ' FOR VALUES WITH (MODULUS 16, REMAINDER %s)',
            'api_idempotency_' || to_char(i, 'FM00'),
            i
        );
    END LOOP;
END
$$;

-- The last transaction of each connection that writes buckets: tells whether
-- a COMMIT without an answer has succeeded.
CREATE TABLE meter.bucket_lane (
    writer uuid     NOT NULL REFERENCES meter.writer (writer),
    lane   smallint NOT NULL,
    batch  bigint   NOT NULL,
    PRIMARY KEY (writer, lane)
) WITH (fillfactor = 10); -- one row, changed all the time


-- Edge.

-- A ring is a session: last_seq moves in the transaction that counts, and
-- with it the requests by verdict: what the edge recorded is accounted for to
-- the last request.
CREATE TABLE meter.edge_session (
    session    uuid        PRIMARY KEY,
    node       text        NOT NULL,
    writer     uuid        NOT NULL,
    last_seq   bigint      NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    accepted   bigint      NOT NULL DEFAULT 0,
    duplicate  bigint      NOT NULL DEFAULT 0,
    conflict   bigint      NOT NULL DEFAULT 0,
    rejected   bigint      NOT NULL DEFAULT 0,
    lost       bigint      NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Requests that were answered and could not be recorded, as a ring told it,
-- or records that a rewound database lost and no ring had any more.
CREATE TABLE meter.edge_loss (
    session     uuid        NOT NULL,
    seq         bigint      NOT NULL,
    node        text        NOT NULL,
    count       bigint      NOT NULL,
    reasons     integer     NOT NULL, -- 1 full, 2 torn, 4 reboot, 8 rewound
    first_at    timestamptz, -- NULL: not known
    last_at     timestamptz,
    recorded_at timestamptz NOT NULL,
    PRIMARY KEY (session, seq)
);

-- Edge events that had to be refused. They are looked at and replayed under
-- the same identity: whoever deletes the row books the record.
CREATE TABLE meter.dead_letter (
    tenant      text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    session     uuid,
    seq         bigint,
    reason      text        NOT NULL,
    record      bytea       NOT NULL,
    recorded_at timestamptz NOT NULL
);

CREATE INDEX dead_letter_tenant ON meter.dead_letter (tenant, recorded_at);
CREATE INDEX dead_letter_identity ON meter.dead_letter (session, seq);


-- Tokens.

-- Bearer tokens: only SHA-256 of the secret is kept. expires_at is compared
-- with the database's clock by meter.token_find; NULL: valid for ever.
CREATE TABLE meter.api_token (
    token_id   text        COLLATE "C" PRIMARY KEY,
    tenant     text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    digest     bytea       NOT NULL CHECK (octet_length(digest) = 32),
    scopes     text[]      NOT NULL,
    label      text        NOT NULL,
    created_at timestamptz NOT NULL,
    revoked_at timestamptz,
    expires_at timestamptz,
    CONSTRAINT api_token_expires_later CHECK (expires_at >= created_at)
);

CREATE INDEX api_token_tenant ON meter.api_token (tenant);


-- Maintenance.

-- Oldest live day of a partitioned table: raised before partitions go. Those
-- of series are always there: whoever writes buckets holds them FOR SHARE.
CREATE TABLE meter.partition_floor (
    parent text PRIMARY KEY,
    floor  date NOT NULL
);

INSERT INTO meter.partition_floor (parent, floor)
VALUES
    ('series_5s', DATE '0001-01-01'),
    ('series_1m', DATE '0001-01-01'),
    ('series_1h', DATE '0001-01-01'),
    ('series_1d', DATE '0001-01-01'),
    ('series_7d', DATE '0001-01-01');

-- Figures of the section `retention` that are in force: days that a table is
-- kept; -1: for ever. Longer ones are taken as they come, shorter ones when
-- someone has confirmed them. All meterd of the database share it; no row: no
-- retention has looked at the table yet.
CREATE TABLE meter.retention_kept (
    parent text        COLLATE "C" PRIMARY KEY, -- as in meter.partition_span
    days   integer     NOT NULL CHECK (days >= -1),
    since  timestamptz NOT NULL
);

-- What the last comparison with the ledger has found: one row for each
-- projection, and `ledger` for ledger and registry; written by runs that were
-- not narrowed, read by meterd for its metrics.
CREATE TABLE meter.reconcile_result (
    projection  text        COLLATE "C" PRIMARY KEY,
    status      integer     NOT NULL, -- exit status of the command
    differences bigint      NOT NULL CHECK (differences >= 0),
    finished_at timestamptz NOT NULL
);

-- The rules that each writer counts by, or has counted by at last: kind
-- counter, usage, meter, series or index, and a name. digest: of all in the
-- rule that figures depend on; empty where the writer does not have it any
-- more. since: until then it had another one, or none; NULL: never.
CREATE TABLE meter.rule_use (
    writer uuid        NOT NULL,
    kind   text        COLLATE "C" NOT NULL,
    name   text        COLLATE "C" NOT NULL,
    digest bytea       NOT NULL,
    since  timestamptz,
    PRIMARY KEY (writer, kind, name)
);

-- All rows of a rule were made again by the rule of this digest, from what
-- the ledger had then.
CREATE TABLE meter.rule_rebuilt (
    kind       text        COLLATE "C" NOT NULL,
    name       text        COLLATE "C" NOT NULL,
    digest     bytea       NOT NULL,
    rebuilt_at timestamptz NOT NULL,
    PRIMARY KEY (kind, name)
);


-- Rights.
--
--   meter_owner    owns everything; subject to the policies too (FORCE)
--   meter_writer   writes for all tenants; never changes or deletes what is
--                  in registry, ledger and audit
--   meter_reader   every client read: rows of app.current_tenant only

REVOKE ALL ON SCHEMA meter FROM PUBLIC;
GRANT USAGE ON SCHEMA meter TO meter_writer, meter_reader;
REVOKE ALL ON ALL TABLES IN SCHEMA meter
    FROM PUBLIC, meter_writer, meter_reader;
ALTER DEFAULT PRIVILEGES IN SCHEMA meter
    REVOKE ALL ON TABLES FROM PUBLIC, meter_writer, meter_reader;

-- Row-level security of every table that has a tenant, and of its partitions:
-- policies of a partitioned table do not guard those, so no one has a grant
-- on them either (as in meter.partition_make).
DO $$
DECLARE
    relation regclass;
BEGIN
    FOR relation IN
        SELECT class.oid
        FROM pg_class AS class
        INNER JOIN pg_attribute AS attribute
            ON attribute.attrelid = class.oid
        WHERE class.relnamespace = 'meter'::regnamespace
            AND class.relkind IN ('r', 'p')
            AND attribute.attname IN ('tenant', 'tenant_id')
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', relation);
        EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', relation);
    END LOOP;
END
$$;

-- Reads for a client. app.current_tenant is set by meter.set_tenant for one
-- transaction. After it the setting is '', not NULL, on that connection:
-- NULLIF makes both see nothing.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'event_registry', 'event', 'duplicate_audit', 'event_index',
        'meter_counter', 'meter_unique', 'meter_adjustment', 'meter_close',
        'meter_billed', 'meter_reopen', 'counter', 'counter_audit',
        'series_key', 'series_5s', 'series_1m', 'series_1h', 'series_1d',
        'series_7d', 'series_dirty', 'bucket_counter', 'dead_letter'
    ]
    LOOP
        EXECUTE format(
            'CREATE POLICY reader_tenant ON meter.%I'
                ' FOR SELECT TO meter_reader'
                ' USING (tenant ='
                ' NULLIF(current_setting(''app.current_tenant'', true), ''''))',
            name
        );
    END LOOP;
END
$$;

CREATE POLICY tenant_isolation_policy ON meter.tenant_usage_metrics
    FOR SELECT TO meter_reader
    USING (
        tenant_id = NULLIF(current_setting('app.current_tenant', true), '')
    );

GRANT SELECT
    ON meter.event_registry, meter.event, meter.duplicate_audit,
       meter.event_index,
       meter.meter_counter, meter.meter_unique, meter.meter_adjustment,
       meter.meter_close, meter.meter_billed, meter.meter_reopen,
       meter.counter, meter.counter_audit, meter.tenant_usage_metrics,
       meter.series_key, meter.series_5s, meter.series_1m, meter.series_1h,
       meter.series_1d, meter.series_7d, meter.series_dirty,
       meter.bucket_counter,
       meter.writer, meter.writer_seq, meter.writer_flush,
       meter.partition_floor, meter.schema_migration
    TO meter_reader;

-- Writes for all tenants. The policies serve where meter_writer could not
-- get BYPASSRLS; grants alone say which commands it has.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'event_registry', 'event', 'duplicate_audit', 'event_index',
        'meter_counter', 'meter_unique', 'meter_adjustment', 'meter_close',
        'meter_billed', 'meter_reopen', 'counter', 'counter_keys',
        'counter_audit', 'entity_state', 'tenant_usage_metrics',
        'series_key', 'series_5s', 'series_1m', 'series_1h', 'series_1d',
        'series_7d', 'series_dirty', 'bucket_counter', 'api_idempotency',
        'dead_letter'
    ]
    LOOP
        EXECUTE format(
            'CREATE POLICY writer_any ON meter.%I'
                ' TO meter_writer USING (true) WITH CHECK (true)',
            name
        );
    END LOOP;
END
$$;

-- What is there for ever, or until someone else takes it away.
GRANT INSERT
    ON meter.duplicate_audit, meter.edge_loss
    TO meter_writer;
GRANT SELECT, INSERT
    ON meter.event_registry, meter.event, meter.meter_adjustment,
       meter.meter_close, meter.meter_billed, meter.meter_reopen,
       meter.counter_audit, meter.api_idempotency
    TO meter_writer;
GRANT UPDATE (frozen_at, period, figures) ON meter.meter_close TO meter_writer;
GRANT SELECT, INSERT, DELETE ON meter.dead_letter TO meter_writer;

-- What is derived from the ledger may be made again from it.
GRANT SELECT, INSERT, UPDATE, DELETE
    ON meter.meter_counter, meter.meter_unique, meter.counter_keys,
       meter.entity_state, meter.tenant_usage_metrics, meter.series_5s,
       meter.series_1m, meter.series_1h, meter.series_1d, meter.series_7d
    TO meter_writer;
GRANT SELECT, INSERT, DELETE
    ON meter.counter, meter.series_key, meter.series_dirty,
       meter.event_index
    TO meter_writer;
GRANT UPDATE (value, updated_at, step_add, step_floor)
    ON meter.counter
    TO meter_writer;

-- Buckets expire.
GRANT SELECT, INSERT, UPDATE, DELETE ON meter.bucket_counter TO meter_writer;

-- Bookkeeping. A row lock asks for the right to update: FOR SHARE of floors,
-- which are the owner's, FOR UPDATE SKIP LOCKED, by which marks are taken.
GRANT SELECT, INSERT, UPDATE
    ON meter.writer, meter.writer_seq, meter.writer_flush,
       meter.bucket_lane, meter.edge_session, meter.reconcile_result,
       meter.rule_use, meter.rule_rebuilt
    TO meter_writer;
GRANT SELECT
    ON meter.secret, meter.partition_floor, meter.retention_kept,
       meter.schema_migration
    TO meter_writer;
GRANT UPDATE (parent) ON meter.partition_floor TO meter_writer;
GRANT UPDATE (id) ON meter.series_dirty TO meter_writer;

-- The owner sees tokens, which it alone does: meter.token_find, which runs as
-- the owner, serves the look-up before any tenant is known. It sees all
-- tenants of the installation, for meter.tenant_list, and buckets that are
-- still to be computed, for retention.
CREATE POLICY owner_any ON meter.api_token
    TO meter_owner USING (true) WITH CHECK (true);
CREATE POLICY owner_any ON meter.tenant_usage_metrics
    FOR SELECT TO meter_owner USING (true);
CREATE POLICY owner_any ON meter.series_dirty
    FOR SELECT TO meter_owner USING (true);
