-- 0005 series: buckets of five levels, what is still to roll up, the index
-- of declared attributes. Every tenant key starts with the tenant; text in
-- keys is compared bytewise.

-- flushed_at: everything that the writer had committed by then is in the
-- series tables. recorded_at: that of ledger row upto; later rows are no
-- older. Series begin with this version: what was recorded before is theirs
-- only after a rebuild.
ALTER TABLE meter.writer_flush
    ADD COLUMN recorded_at timestamptz,
    ADD COLUMN flushed_at timestamptz;

UPDATE meter.writer_flush
SET
    upto = writer_seq.last,
    recorded_at = writer_seq.heartbeat_at,
    flushed_at = clock_timestamp()
FROM meter.writer_seq
WHERE writer_seq.writer = writer_flush.writer;

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
-- count. min, max, last: gauges. labels, counts: tallies of a histogram
-- (upper bounds, "inf") or of a state series (JSON ["from","to"]), by label,
-- bytewise. A level above the first is recomputed from the one below.
CREATE TABLE meter.series_5s (
    tenant           text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    series           text        COLLATE "C" NOT NULL,
    version          bigint      NOT NULL,
    dimension_key    bytea       NOT NULL,
    bucket           timestamptz NOT NULL,
    count            bigint      NOT NULL,
    sum              numeric(38, 9),
    min              numeric(38, 9),
    max              numeric(38, 9),
    last             numeric(38, 9),
    last_at          timestamptz,
    last_recorded_at timestamptz,
    last_writer      uuid,
    last_seq         bigint,
    labels           text[]      COLLATE "C",
    counts           bigint[],
    PRIMARY KEY (tenant, series, version, dimension_key, bucket)
) PARTITION BY RANGE (bucket);

CREATE TABLE meter.series_1m (
    tenant           text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    series           text        COLLATE "C" NOT NULL,
    version          bigint      NOT NULL,
    dimension_key    bytea       NOT NULL,
    bucket           timestamptz NOT NULL,
    count            bigint      NOT NULL,
    sum              numeric(38, 9),
    min              numeric(38, 9),
    max              numeric(38, 9),
    last             numeric(38, 9),
    last_at          timestamptz,
    last_recorded_at timestamptz,
    last_writer      uuid,
    last_seq         bigint,
    labels           text[]      COLLATE "C",
    counts           bigint[],
    PRIMARY KEY (tenant, series, version, dimension_key, bucket)
) PARTITION BY RANGE (bucket);

CREATE TABLE meter.series_1h (
    tenant           text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    series           text        COLLATE "C" NOT NULL,
    version          bigint      NOT NULL,
    dimension_key    bytea       NOT NULL,
    bucket           timestamptz NOT NULL,
    count            bigint      NOT NULL,
    sum              numeric(38, 9),
    min              numeric(38, 9),
    max              numeric(38, 9),
    last             numeric(38, 9),
    last_at          timestamptz,
    last_recorded_at timestamptz,
    last_writer      uuid,
    last_seq         bigint,
    labels           text[]      COLLATE "C",
    counts           bigint[],
    PRIMARY KEY (tenant, series, version, dimension_key, bucket)
) PARTITION BY RANGE (bucket);

CREATE TABLE meter.series_1d (
    tenant           text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    series           text        COLLATE "C" NOT NULL,
    version          bigint      NOT NULL,
    dimension_key    bytea       NOT NULL,
    bucket           timestamptz NOT NULL,
    count            bigint      NOT NULL,
    sum              numeric(38, 9),
    min              numeric(38, 9),
    max              numeric(38, 9),
    last             numeric(38, 9),
    last_at          timestamptz,
    last_recorded_at timestamptz,
    last_writer      uuid,
    last_seq         bigint,
    labels           text[]      COLLATE "C",
    counts           bigint[],
    PRIMARY KEY (tenant, series, version, dimension_key, bucket)
) PARTITION BY RANGE (bucket);

CREATE TABLE meter.series_7d (
    tenant           text        COLLATE "C" NOT NULL CHECK (tenant <> ''),
    series           text        COLLATE "C" NOT NULL,
    version          bigint      NOT NULL,
    dimension_key    bytea       NOT NULL,
    bucket           timestamptz NOT NULL,
    count            bigint      NOT NULL,
    sum              numeric(38, 9),
    min              numeric(38, 9),
    max              numeric(38, 9),
    last             numeric(38, 9),
    last_at          timestamptz,
    last_recorded_at timestamptz,
    last_writer      uuid,
    last_seq         bigint,
    labels           text[]      COLLATE "C",
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

-- From where on a level is kept. Whoever writes buckets holds these rows FOR
-- SHARE; retention raises them before partitions go.
INSERT INTO meter.partition_floor (parent, floor)
VALUES
    ('series_5s', DATE '0001-01-01'),
    ('series_1m', DATE '0001-01-01'),
    ('series_1h', DATE '0001-01-01'),
    ('series_1d', DATE '0001-01-01'),
    ('series_7d', DATE '0001-01-01');

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


-- Row-level security: as in 0002.

ALTER TABLE meter.series_key ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.series_key FORCE ROW LEVEL SECURITY;
ALTER TABLE meter.series_5s ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.series_5s FORCE ROW LEVEL SECURITY;
ALTER TABLE meter.series_1m ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.series_1m FORCE ROW LEVEL SECURITY;
ALTER TABLE meter.series_1h ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.series_1h FORCE ROW LEVEL SECURITY;
ALTER TABLE meter.series_1d ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.series_1d FORCE ROW LEVEL SECURITY;
ALTER TABLE meter.series_7d ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.series_7d FORCE ROW LEVEL SECURITY;
ALTER TABLE meter.series_dirty ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.series_dirty FORCE ROW LEVEL SECURITY;
ALTER TABLE meter.event_index ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.event_index FORCE ROW LEVEL SECURITY;

CREATE POLICY reader_tenant ON meter.series_key
    FOR SELECT TO meter_reader
    USING (tenant = NULLIF(current_setting('app.current_tenant', true), ''));
CREATE POLICY reader_tenant ON meter.series_5s
    FOR SELECT TO meter_reader
    USING (tenant = NULLIF(current_setting('app.current_tenant', true), ''));
CREATE POLICY reader_tenant ON meter.series_1m
    FOR SELECT TO meter_reader
    USING (tenant = NULLIF(current_setting('app.current_tenant', true), ''));
CREATE POLICY reader_tenant ON meter.series_1h
    FOR SELECT TO meter_reader
    USING (tenant = NULLIF(current_setting('app.current_tenant', true), ''));
CREATE POLICY reader_tenant ON meter.series_1d
    FOR SELECT TO meter_reader
    USING (tenant = NULLIF(current_setting('app.current_tenant', true), ''));
CREATE POLICY reader_tenant ON meter.series_7d
    FOR SELECT TO meter_reader
    USING (tenant = NULLIF(current_setting('app.current_tenant', true), ''));
CREATE POLICY reader_tenant ON meter.series_dirty
    FOR SELECT TO meter_reader
    USING (tenant = NULLIF(current_setting('app.current_tenant', true), ''));
CREATE POLICY reader_tenant ON meter.event_index
    FOR SELECT TO meter_reader
    USING (tenant = NULLIF(current_setting('app.current_tenant', true), ''));

GRANT SELECT
    ON meter.series_key, meter.series_5s, meter.series_1m, meter.series_1h,
       meter.series_1d, meter.series_7d, meter.series_dirty,
       meter.event_index, meter.partition_floor, meter.writer,
       meter.writer_seq, meter.writer_flush
    TO meter_reader;

CREATE POLICY writer_any ON meter.series_key
    TO meter_writer USING (true) WITH CHECK (true);
CREATE POLICY writer_any ON meter.series_5s
    TO meter_writer USING (true) WITH CHECK (true);
CREATE POLICY writer_any ON meter.series_1m
    TO meter_writer USING (true) WITH CHECK (true);
CREATE POLICY writer_any ON meter.series_1h
    TO meter_writer USING (true) WITH CHECK (true);
CREATE POLICY writer_any ON meter.series_1d
    TO meter_writer USING (true) WITH CHECK (true);
CREATE POLICY writer_any ON meter.series_7d
    TO meter_writer USING (true) WITH CHECK (true);
CREATE POLICY writer_any ON meter.series_dirty
    TO meter_writer USING (true) WITH CHECK (true);
CREATE POLICY writer_any ON meter.event_index
    TO meter_writer USING (true) WITH CHECK (true);

-- What is derived from the ledger may be made again from it.
GRANT SELECT, INSERT, UPDATE, DELETE
    ON meter.series_5s, meter.series_1m, meter.series_1h, meter.series_1d,
       meter.series_7d
    TO meter_writer;
GRANT SELECT, INSERT, DELETE
    ON meter.series_key, meter.series_dirty, meter.event_index
    TO meter_writer;
-- A row lock FOR SHARE asks for the right to update; floors are the owner's.
GRANT UPDATE (parent) ON meter.partition_floor TO meter_writer;
-- So does FOR UPDATE SKIP LOCKED, by which marks are taken.
GRANT UPDATE (id) ON meter.series_dirty TO meter_writer;

-- Retention looks for buckets that are still to be computed.
CREATE POLICY owner_any ON meter.series_dirty
    FOR SELECT TO meter_owner USING (true);
