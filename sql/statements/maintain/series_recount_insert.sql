-- levels: 5s 1m 1h 1d 7d
-- series_recount_insert - puts a tenant's rows of series_5s in.
--
-- $1::text            tenant
-- $2::text[]          series
-- $3::bigint[]        version
-- $4::bytea[]         dimension_key
-- $5::timestamptz[]   bucket
-- $6::bigint[]        count
-- $7::numeric[]       sum
-- $8::numeric[]       min
-- $9::numeric[]       max
-- $10::numeric[]      last
-- $11::timestamptz[]  last_at
-- $12::timestamptz[]  last_recorded_at
-- $13::uuid[]         last_writer
-- $14::bigint[]       last_seq
-- $15::text[]         labels: each the text of an array
-- $16::text[]         counts: likewise
--
-- No rows.
INSERT INTO meter.series_5s (
    tenant,
    series,
    version,
    dimension_key,
    bucket,
    count,
    sum,
    min,
    max,
    last,
    last_at,
    last_recorded_at,
    last_writer,
    last_seq,
    labels,
    counts
)
SELECT
    $1::text,
    made.series,
    made.version,
    made.dimension_key,
    made.bucket,
    made.count,
    made.sum,
    made.min,
    made.max,
    made.last,
    made.last_at,
    made.last_recorded_at,
    made.last_writer,
    made.last_seq,
    made.labels::text[],
    made.counts::bigint[]
FROM unnest(
    $2::text[],
    $3::bigint[],
    $4::bytea[],
    $5::timestamptz[],
    $6::bigint[],
    $7::numeric[],
    $8::numeric[],
    $9::numeric[],
    $10::numeric[],
    $11::timestamptz[],
    $12::timestamptz[],
    $13::uuid[],
    $14::bigint[],
    $15::text[],
    $16::text[]
) AS made (
    series,
    version,
    dimension_key,
    bucket,
    count,
    sum,
    min,
    max,
    last,
    last_at,
    last_recorded_at,
    last_writer,
    last_seq,
    labels,
    counts
);
