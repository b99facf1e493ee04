-- 0006 buckets: the counters API. Buckets of named counters, the answers of
-- writes with an Idempotency-Key, and which transactions were committed.

-- One bucket of a counter. Sixteen partitions by tenant; a quarter of each
-- page is left for new versions of its rows, and no column that a write
-- changes is indexed, so that updates stay on their page. time_start is a
-- multiple of duration_seconds since 1970; 0 seconds: one bucket, at 1970.
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


-- Row-level security: as in 0002, partitions too.

DO $$
DECLARE
    relation regclass;
BEGIN
    FOR relation IN
        SELECT tree.relid
        FROM (VALUES ('meter.bucket_counter'), ('meter.api_idempotency')) AS root (name)
        CROSS JOIN LATERAL pg_partition_tree(root.name::regclass) AS tree
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', relation);
        EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', relation);
        EXECUTE format(
            'REVOKE ALL ON TABLE %s FROM PUBLIC, meter_writer, meter_reader',
            relation
        );
    END LOOP;
END
$$;

CREATE POLICY reader_tenant ON meter.bucket_counter
    FOR SELECT TO meter_reader
    USING (tenant = NULLIF(current_setting('app.current_tenant', true), ''));

CREATE POLICY writer_any ON meter.bucket_counter
    TO meter_writer USING (true) WITH CHECK (true);
CREATE POLICY writer_any ON meter.api_idempotency
    TO meter_writer USING (true) WITH CHECK (true);

GRANT SELECT ON meter.bucket_counter TO meter_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON meter.bucket_counter TO meter_writer;
GRANT SELECT, INSERT ON meter.api_idempotency TO meter_writer;
GRANT SELECT, INSERT, UPDATE ON meter.bucket_lane TO meter_writer;
