#!/usr/bin/perl

# 92-rollup.t - late events in any order reach every level; whatever happens
# to those that roll up, the levels end as the sums of 5s. rollup_client.c
# rolls up as meterd does; this side writes what a flush writes.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use File::Copy ();
use Test::More;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until poll_until);

my $build = ($ENV{METERD} // '') =~ m{build-asan/} ? 'build-asan' : 'build';
my $stack = Edgemeter::Stack->for_test->start_schema;
my $cluster = $stack->cluster;
my $scratch = $stack->place->path('tmp');
my %directory;
my $runs = 0;

# The service user may be unable to enter the checkout.
File::Copy::copy(
    Edgemeter::Stack::root() . "/$build/integration/rollup_client",
    "$scratch/rollup_client") or die "rollup_client: $!\n";
chmod 0755, "$scratch/rollup_client";

# One flush: COUNT random buckets of 5 s, added up, and the marks above. SEED
# makes it the same in each run.
$stack->query(<<'SQL');
CREATE SCHEMA test;
CREATE FUNCTION test.flush(
    seed float8, rows integer, keys integer, first timestamptz, span interval
)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM setseed(seed);
    CREATE TEMP TABLE flushed ON COMMIT DROP AS
    SELECT DISTINCT ON (tenant, series, dimension_key, bucket) *
    FROM (
        SELECT
            (ARRAY['acme', 'globex'])[1 + floor(random() * 2)::int] AS tenant,
            (ARRAY['counter', 'gauge', 'tally'])[1 + floor(random() * 3)::int]
                AS series,
            sha256(floor(random() * keys)::text::bytea) AS dimension_key,
            meter.series_bucket(0::smallint, first + random() * span)
                AS bucket,
            1 + floor(random() * 5)::bigint AS count,
            (random() * 2000 - 1000)::numeric(38, 9) AS sum,
            (random() * 200 - 100)::numeric(38, 9) AS value,
            floor(random() * 2)::int AS tie,
            floor(random() * 1000)::bigint AS seq,
            1 + floor(random() * 15)::int AS labels
        FROM generate_series(1, rows)
    ) AS drawn;
    PERFORM meter.partition_make('series_5s', days.day)
    FROM (
        SELECT DISTINCT (bucket AT TIME ZONE 'UTC')::date AS day FROM flushed
    ) AS days;

    INSERT INTO meter.series_5s AS s
    SELECT
        tenant, series, 1, dimension_key, bucket, count, sum,
        CASE series WHEN 'gauge' THEN value END,
        CASE series WHEN 'gauge' THEN value END,
        CASE series WHEN 'gauge' THEN value END,
        CASE series WHEN 'gauge' THEN bucket + tie * interval '1 s' END,
        CASE series WHEN 'gauge' THEN first + tie * interval '1 h' END,
        CASE series WHEN 'gauge'
            THEN md5((seq % 3)::text)::uuid END,
        CASE series WHEN 'gauge' THEN seq END,
        CASE series WHEN 'tally' THEN tally.labels END,
        CASE series WHEN 'tally' THEN tally.counts END
    FROM flushed
    CROSS JOIN LATERAL (
        SELECT
            array_agg(label ORDER BY label COLLATE "C") AS labels,
            array_agg(length(label) + count ORDER BY label COLLATE "C")
                AS counts
        FROM unnest(ARRAY['10', '5', 'inf', '["a","b"]']) WITH ORDINALITY
            AS one (label, at)
        WHERE flushed.labels & (1 << (at - 1)::int) <> 0
    ) AS tally
    ON CONFLICT (tenant, series, version, dimension_key, bucket) DO UPDATE
    SET
        count = s.count + excluded.count,
        sum = s.sum + excluded.sum,
        min = least(s.min, excluded.min),
        max = greatest(s.max, excluded.max),
        labels = meter.tally_labels(s.labels, excluded.labels),
        counts = meter.tally_counts(
            s.labels, s.counts, excluded.labels, excluded.counts
        );

    INSERT INTO meter.series_dirty (
        level, tenant, series, version, dimension_key, bucket, marked_at
    )
    SELECT DISTINCT
        1, tenant, series, 1, dimension_key,
        meter.series_bucket(1::smallint, bucket), clock_timestamp()
    FROM flushed;
END
$$;

-- Rows of a level that are not what 5s gives, and the other way round: by
-- totals, by the last sample, by label.
CREATE FUNCTION test.wrong(level integer, stored text)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    result bigint;
BEGIN
    EXECUTE format($query$
        WITH part AS (
            SELECT *, meter.series_bucket(%s::smallint, bucket) AS above
            FROM meter.series_5s
        ),
        found AS (SELECT * FROM meter.%I),
        total AS (
            SELECT
                tenant, series, version, dimension_key, above,
                sum(count)::bigint, sum(sum), min(min), max(max)
            FROM part
            GROUP BY tenant, series, version, dimension_key, above
        ),
        found_total AS (
            SELECT
                tenant, series, version, dimension_key, bucket,
                count, sum, min, max
            FROM found
        ),
        latest AS (
            SELECT DISTINCT ON (tenant, series, version, dimension_key, above)
                tenant, series, version, dimension_key, above,
                last, last_at, last_recorded_at, last_writer, last_seq
            FROM part
            ORDER BY
                tenant, series, version, dimension_key, above,
                last_at DESC, last_recorded_at DESC, last_writer DESC,
                last_seq DESC
        ),
        found_latest AS (
            SELECT
                tenant, series, version, dimension_key, bucket,
                last, last_at, last_recorded_at, last_writer, last_seq
            FROM found
        ),
        label AS (
            SELECT
                tenant, series, version, dimension_key, above, label,
                sum(one.count)::bigint AS count,
                row_number() OVER (
                    PARTITION BY tenant, series, version, dimension_key, above
                    ORDER BY label COLLATE "C"
                ) AS place
            FROM part, unnest(labels, counts) AS one (label, count)
            GROUP BY tenant, series, version, dimension_key, above, label
        ),
        found_label AS (
            SELECT
                tenant, series, version, dimension_key, bucket, one.label,
                one.count, one.place
            FROM found, unnest(labels, counts) WITH ORDINALITY
                AS one (label, count, place)
        )
        SELECT
            (SELECT count(*) FROM (TABLE total EXCEPT TABLE found_total) AS a)
            + (SELECT count(*) FROM (TABLE found_total EXCEPT TABLE total) AS a)
            + (SELECT count(*)
                FROM (TABLE latest EXCEPT TABLE found_latest) AS a)
            + (SELECT count(*)
                FROM (TABLE found_latest EXCEPT TABLE latest) AS a)
            + (SELECT count(*) FROM (TABLE label EXCEPT TABLE found_label) AS a)
            + (SELECT count(*) FROM (TABLE found_label EXCEPT TABLE label) AS a)
    $query$, level, stored)
    INTO result;
    RETURN result;
END
$$;
SQL

sub slurp {
    my ($path) = @_;
    open my $file, '<', $path or return '';
    local $/;
    return <$file> // '';
}

# Each node has its own state directory, and so its own writer.
sub start {
    my ($node, %env) = @_;
    my $state = $directory{$node} //= do {
        mkdir "$scratch/$node", 0750 or die "$scratch/$node: $!\n";
        $stack->account->own("$scratch/$node");
        "$scratch/$node";
    };
    my $log = "$scratch/rollup" . ++$runs . '.log';
    return {
        log     => $log,
        process => Edgemeter::Process->spawn(
            name    => "rollup-$node",
            log     => $log,
            user    => $stack->account,
            command => ["$scratch/rollup_client"],
            env     => {
                STORE_URL       => $cluster->url('meterd', 'edgemeter'),
                STORE_ADMIN_URL => $cluster->url('meter_owner', 'edgemeter'),
                STORE_STATE_DIR => $state,
                %env,
            },
        ),
    };
}

sub ready {
    my ($run) = @_;
    wait_until {
        my $log = slurp($run->{log});
        $log =~ /lane ready/ && $log =~ /partitions ready/
    } 30, 'the node is ready';
    return $run;
}

sub wake { $_->{process}->signal('USR1') for @_; return }

sub ended {
    my ($run) = @_;
    wait_until { !$run->{process}->alive } 30, 'the node ends';
    return slurp($run->{log});
}

# Stops a node; its last words are the metrics.
sub stop {
    my ($run) = @_;
    $run->{process}->signal('TERM');
    my %metric = ended($run) =~ /^(rollups|marks|lag|sweeps) (\d+)$/mg;
    return \%metric;
}

my $seed = 0;

sub flush {
    my ($rows, $keys, $first, $span) = @_;
    $seed += 0.001;
    $stack->query(
        "SELECT test.flush($seed, $rows, $keys, '$first', '$span')");
    return;
}

sub marks { return $stack->query('SELECT count(*) FROM meter.series_dirty') }

sub quiet {
    my (@runs) = @_;
    wake(@runs);
    wait_until { marks() == 0 } 60, 'nothing is marked';
    return;
}

# 0 for each level that is what 5s gives.
sub wrong {
    return join ' ', $stack->query(<<'SQL');
SELECT test.wrong(1, 'series_1m') UNION ALL
SELECT test.wrong(2, 'series_1h') UNION ALL
SELECT test.wrong(3, 'series_1d') UNION ALL
SELECT test.wrong(4, 'series_7d')
SQL
}

sub rows_of {
    my ($level) = @_;
    return $stack->query("SELECT count(*) FROM meter.series_$level");
}

# --- all levels ----------------------------------------------------------

my $run = ready(start('one'));
for my $round (1 .. 6) {
    flush(300, 20, '2026-03-01Z', $round % 2 ? '40 days' : '3 hours');
    wake($run);
}
quiet($run);
is wrong(), '0 0 0 0', 'late events over weeks: every level is the sum of 5s';
cmp_ok rows_of('7d'), '>', 100, 'and there was something to sum up';
is $stack->query("SELECT count(*) FROM meter.series_7d"
        . " WHERE extract(isodow FROM bucket AT TIME ZONE 'UTC') <> 1"), 0,
    'weeks begin on Mondays';

flush(12_000, 4000, '2026-03-10Z', '2 hours');
cmp_ok marks(), '>', 10_000, 'more marks than a batch takes';
quiet($run);
is wrong(), '0 0 0 0', 'several batches of a level';

flush(200, 20, '1969-12-20Z', '20 days');
flush(200, 20, '0001-01-01Z', '9 days');
quiet($run);
is wrong(), '0 0 0 0', 'around 1970, and in year 1';

my $metric = stop($run);
cmp_ok $metric->{rollups}, '>', 12_000, 'buckets are counted';
cmp_ok $metric->{sweeps}, '>', 1, 'sweeps are counted';
is "$metric->{marks} $metric->{lag}", '0 0', 'nothing is left, nothing lags';

# --- nobody wakes it -----------------------------------------------------

flush(50, 5, '2026-03-12Z', '1 hour');
$run = ready(start('one'));
flush(50, 5, '2026-03-12Z', '1 hour');
wait_until { marks() == 0 } 30, 'marks are found by themselves';
is wrong(), '0 0 0 0', 'without a wake, a sweep comes all the same';

# --- two at once ---------------------------------------------------------

my $other = ready(start('two'));
for (1 .. 25) {
    flush(60, 3, '2026-03-14 12:00Z', '10 minutes');
    wake($run, $other);
}
quiet($run, $other);
is wrong(), '0 0 0 0', 'two nodes on the same buckets';
stop($other);

# --- what is gone below, and what must stay ------------------------------

$stack->query(<<'SQL');
WITH gone AS (
    DELETE FROM meter.series_5s
    WHERE series = 'gauge' AND bucket >= '2026-03-14Z'
    RETURNING *
)
INSERT INTO meter.series_dirty (
    level, tenant, series, version, dimension_key, bucket, marked_at
)
SELECT DISTINCT
    1, tenant, series, version, dimension_key,
    meter.series_bucket(1::smallint, bucket), clock_timestamp()
FROM gone;
SQL
quiet($run);
is wrong(), '0 0 0 0', 'a bucket without anything below is deleted';
is $stack->query("SELECT count(*) FROM meter.series_1m"
        . " WHERE series = 'gauge' AND bucket >= '2026-03-14Z'"), 0,
    'and there was one';

flush(100, 3, '2026-03-01Z', '2 hours');
quiet($run);
my $before = $stack->query(<<'SQL');
CREATE TABLE test.kept AS
SELECT * FROM meter.series_1m WHERE bucket < '2026-03-02Z';
CREATE TABLE test.hours AS
SELECT * FROM meter.series_1h WHERE bucket < '2026-03-02Z';
UPDATE meter.partition_floor SET floor = '2026-03-02'
WHERE parent = 'series_5s';
DELETE FROM meter.series_5s WHERE bucket < '2026-03-02Z';
INSERT INTO meter.series_dirty (
    level, tenant, series, version, dimension_key, bucket, marked_at
)
SELECT 1, tenant, series, version, dimension_key, bucket, clock_timestamp()
FROM test.kept;
SELECT count(*) FROM test.kept;
SQL
cmp_ok $before, '>', 50, 'buckets whose parts are dropped';
quiet($run);
is $stack->query(<<'SQL'), 0, 'below the floor a bucket keeps its value';
SELECT count(*)
FROM (
    TABLE test.kept EXCEPT SELECT * FROM meter.series_1m
) AS lost
SQL

# A late event below the floor goes to 1m, and marks the hour.
$stack->query(<<'SQL');
UPDATE meter.series_1m SET count = count + 1000
WHERE series = 'counter' AND bucket < '2026-03-02Z' AND bucket >= '2026-03-01Z';
INSERT INTO meter.series_dirty (
    level, tenant, series, version, dimension_key, bucket, marked_at
)
SELECT DISTINCT
    2, tenant, series, version, dimension_key,
    meter.series_bucket(2::smallint, bucket), clock_timestamp()
FROM meter.series_1m
WHERE series = 'counter' AND bucket < '2026-03-02Z' AND bucket >= '2026-03-01Z';
SQL
quiet($run);
is $stack->query(<<'SQL'), "t\tt", 'what is late reaches the levels above';
SELECT
    (SELECT sum(count) FROM meter.series_1h
        WHERE series = 'counter' AND bucket < '2026-03-02Z'
            AND bucket >= '2026-03-01Z')
    = (SELECT sum(count) FROM meter.series_1m
        WHERE series = 'counter' AND bucket < '2026-03-02Z'
            AND bucket >= '2026-03-01Z'),
    (SELECT sum(count) FROM meter.series_1d WHERE series = 'counter')
    = (SELECT sum(count) FROM meter.series_1h WHERE series = 'counter')
SQL

# --- trouble -------------------------------------------------------------

# From here on only days above the floor are looked at, and all are new.
$stack->query(<<'SQL');
TRUNCATE meter.series_5s, meter.series_1m, meter.series_1h, meter.series_1d,
    meter.series_7d
SQL

$stack->query('REVOKE INSERT ON meter.series_1m FROM meter_writer');
flush(200, 10, '2026-04-01Z', '2 days');
my $marked = marks();
wake($run);
wait_until { slurp($run->{log}) =~ /42501/ } 30, 'the server refuses';
is marks(), $marked, 'a batch that fails leaves its marks';
$stack->query('GRANT INSERT ON meter.series_1m TO meter_writer');
quiet($run);
is wrong(), '0 0 0 0', 'and is done again';

for my $round (1 .. 5) {
    flush(3000, 500, '2026-04-03Z', '2 days');
    wake($run);
    poll_until { marks() == 0 } 0.05 * $round;
    $stack->query(<<'SQL');
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name LIKE '%rollup%' AND pid <> pg_backend_pid()
SQL
}
quiet($run);
is wrong(), '0 0 0 0', 'lost connections';

# A partition that is dropped behind its back is made again.
flush(50, 5, '2026-05-01Z', '1 hour');
quiet($run);
$stack->query('DROP TABLE meter.series_1m_20260501');
flush(50, 5, '2026-05-01Z', '1 hour');
$stack->query(<<'SQL');
INSERT INTO meter.series_dirty (
    level, tenant, series, version, dimension_key, bucket, marked_at
)
SELECT DISTINCT
    1, tenant, series, version, dimension_key,
    meter.series_bucket(1::smallint, bucket), clock_timestamp()
FROM meter.series_5s
WHERE bucket >= '2026-05-01Z';
SQL
quiet($run);
is wrong(), '0 0 0 0', 'a missing partition is made';

# --- SIGKILL -------------------------------------------------------------

stop($run);
for my $point (qw(inside_rollup before_rollup_commit after_rollup_commit)) {
    for my $hit (1, 3) {
        flush(400, 20, '2026-04-05Z', '3 days');
        my $dead = start('one', METERD_CRASH_POINT => "$point:$hit");
        ended($dead);
        cmp_ok marks(), '>', 0, "$point:$hit: there is more to do";
        $run = ready(start('one'));
        quiet($run);
        is wrong(), '0 0 0 0', "$point:$hit: every level is the sum of 5s";
        stop($run);
    }
}

# --- another instance ----------------------------------------------------

$run = ready(start('one'));
quiet($run);
$stack->query('UPDATE meter.writer SET epoch = epoch + 1');
flush(50, 5, '2026-04-06Z', '1 hour');
$marked = marks();
wake($run);
like ended($run), qr/another instance took this writer/,
    'whose writer is taken ends';
is marks(), $marked, 'and has written nothing';

$stack->stop;
done_testing;
