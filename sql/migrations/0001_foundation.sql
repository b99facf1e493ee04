-- 0001 foundation: secrets, writers, registry, ledger, audit, counters,
-- tokens. Runs as meter_owner in a schema that the bootstrap made.
-- Every tenant key starts with the tenant. Ledger, registry and writer
-- tables have their final columns; later migrations add tables. Text in
-- keys is compared bytewise (COLLATE "C"): the order in which rows are
-- locked, and the cheapest one. Who may do what: 0002.

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
-- unknown COMMIT.
CREATE TABLE meter.writer_seq (
    writer       uuid        PRIMARY KEY REFERENCES meter.writer,
    last         bigint      NOT NULL,
    batch        bigint      NOT NULL,
    heartbeat_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- upto: ledger rows of this writer up to here are in the series tables.
CREATE TABLE meter.writer_flush (
    writer uuid   PRIMARY KEY REFERENCES meter.writer,
    upto   bigint NOT NULL
) WITH (fillfactor = 50);

-- A ring is a session: last_seq moves in the transaction that counts.
CREATE TABLE meter.edge_session (
    session    uuid        PRIMARY KEY,
    node       text        NOT NULL,
    writer     uuid        NOT NULL,
    last_seq   bigint      NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Oldest live day of a partitioned table: raised before partitions go.
CREATE TABLE meter.partition_floor (
    parent text PRIMARY KEY,
    floor  date NOT NULL
);

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

-- What was counted: immutable, in full.
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
    from_state  text
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

-- Edge events that had to be refused; can be replayed under the same
-- identity.
CREATE TABLE meter.dead_letter (
    tenant      text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    session     uuid,
    seq         bigint,
    reason      text        NOT NULL,
    record      bytea       NOT NULL,
    recorded_at timestamptz NOT NULL
);

CREATE INDEX dead_letter_tenant ON meter.dead_letter (tenant, recorded_at);

-- Persistent dimension counters: all-time totals, never expire. step_add and
-- step_floor carry the two numbers of a fold to DO UPDATE, which can read
-- table columns only; no one else reads them, and an update clears them.
CREATE TABLE meter.counter (
    tenant        text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    counter_name  text        COLLATE "C" NOT NULL,
    dimension_key bytea       NOT NULL,
    dimensions    text        NOT NULL, -- canonical JSON
    value         bigint      NOT NULL,
    updated_at    timestamptz NOT NULL,
    step_add      bigint,
    step_floor    bigint,
    PRIMARY KEY (tenant, counter_name, dimension_key)
) WITH (fillfactor = 75);

-- Bearer tokens: only SHA-256 of the secret is kept.
CREATE TABLE meter.api_token (
    token_id   text        COLLATE "C" PRIMARY KEY,
    tenant     text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    digest     bytea       NOT NULL CHECK (octet_length(digest) = 32),
    scopes     text[]      NOT NULL,
    label      text        NOT NULL,
    created_at timestamptz NOT NULL,
    revoked_at timestamptz
);

CREATE INDEX api_token_tenant ON meter.api_token (tenant);
