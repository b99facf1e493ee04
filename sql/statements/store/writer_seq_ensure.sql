-- writer_seq_ensure - the writer's numbers start at 0.
--
-- $1::uuid  writer
--
-- No rows. Nothing happens when they exist.
INSERT INTO meter.writer_seq (
    writer,
    last,
    batch,
    heartbeat_at,
    stamped_at
)
VALUES (
    $1::uuid,
    0,
    0,
    clock_timestamp(),
    clock_timestamp()
)
ON CONFLICT DO NOTHING;
