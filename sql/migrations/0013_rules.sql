-- 0013 rules: by which rules figures were counted, and since when rows exist.

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

GRANT SELECT, INSERT, UPDATE ON meter.rule_use TO meter_writer;
GRANT SELECT, INSERT, UPDATE ON meter.rule_rebuilt TO meter_writer;

-- When a row was made; NULL: before this was kept. A row that was made after
-- a change of its rule has nothing in it of the rule before. The default
-- comes second, so that rows that are there stay NULL and are not rewritten.
ALTER TABLE meter.counter ADD COLUMN made_at timestamptz;
ALTER TABLE meter.counter ALTER COLUMN made_at SET DEFAULT now();
ALTER TABLE meter.entity_state ADD COLUMN made_at timestamptz;
ALTER TABLE meter.entity_state ALTER COLUMN made_at SET DEFAULT now();
ALTER TABLE meter.meter_counter ADD COLUMN made_at timestamptz;
ALTER TABLE meter.meter_counter ALTER COLUMN made_at SET DEFAULT now();
