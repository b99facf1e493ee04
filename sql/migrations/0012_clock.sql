-- 0012 clock: the order of transactions apart from the time of day.
--
-- Every transaction has a stamp that is later than all it must follow, also
-- when the clock was set back; that is the order. Where it runs ahead of the
-- clock, the clock is kept beside it, for everything that shows or compares
-- a time of day.

-- recorded_at is the order. clock_at: the database's clock where recorded_at
-- was ahead of it, else NULL, which takes no room.
ALTER TABLE meter.event ADD COLUMN clock_at timestamptz;

-- heartbeat_at is the clock, and goes back with it. stamped_at is the order:
-- what the writer records next is later.
ALTER TABLE meter.writer_seq ADD COLUMN stamped_at timestamptz;

UPDATE meter.writer_seq SET stamped_at = heartbeat_at;

ALTER TABLE meter.writer_seq ALTER COLUMN stamped_at SET NOT NULL;

-- The other way round, since people list these by their time: recorded_at is
-- the clock. stamped_at: the order where it was ahead of it, else NULL.
ALTER TABLE meter.meter_adjustment ADD COLUMN stamped_at timestamptz;
