#!/usr/bin/perl

# 106-bucket-locks.t - statements that write buckets lock and make them in key
# order, whatever the planner thinks of the tables.
#
#   holder  has a key in the middle
#   writer  a statement of sql/statements with all keys: waits for the middle
#   probe   which keys has it by then? Those before the middle, and no other
#
# Two transactions that go by key order never wait for each other. Tenants come
# in another order than their partitions, and rows in another one than their
# keys: a plan that goes by either of them is found out. In the end transactions
# as meterd's run against each other at random, with rows that come and go.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::SqlSession;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

use constant NAMES   => 4;    # of each of three tenants
use constant SECONDS => 2;    # of transactions at random

my %STATEMENT = (
    add    => 'bucket_add',
    lock   => 'bucket_lock',
    write  => 'bucket_write',
    sweep  => 'bucket_sweep',
    keep   => 'idempotency_insert',
);
my %TEXT = map { $_ => scalar Edgemeter::Stack::statement($STATEMENT{$_}) }
    keys %STATEMENT;

my %PLANNER = (
    'as it is'         => {},
    'as in meterd'     => { map({ $_ => 'off' } qw(enable_seqscan
            enable_hashjoin enable_mergejoin enable_bitmapscan jit)),
        plan_cache_mode => 'force_generic_plan' },
    'for hash joins'   => { map { $_ => 'off' } qw(enable_nestloop
            enable_mergejoin enable_indexscan enable_bitmapscan) },
    'for merge joins'  => { map { $_ => 'off' } qw(enable_nestloop
            enable_hashjoin enable_bitmapscan) },
    'for nested loops' => { map { $_ => 'off' } qw(enable_hashjoin
            enable_mergejoin enable_indexscan enable_bitmapscan) },
);

my $stack = Edgemeter::Stack->for_test(
    settings => { deadlock_timeout => '100ms' })->start_schema;
my ($holder, $writer, $probe)
    = map { Edgemeter::SqlSession->new($stack, $_) } qw(holder writer probe);
$_->ask('RESET ROLE;') for $holder, $probe;

# Three of these, in their order, and their partitions the other way around.
my @TENANTS = split / /, $probe->ask(<<'SQL');
WITH placed AS (
    SELECT tenant, place
    FROM unnest('{ant,bee,cat,cow,dog,eel,elk,emu,fox,gnu,hen,owl}'::text[])
        AS tenant
    CROSS JOIN generate_series(0, 15) AS place
    WHERE satisfies_hash_partition('meter.bucket_counter'::regclass, 16,
        place, tenant)
)
SELECT one.tenant, two.tenant, three.tenant
FROM placed AS one, placed AS two, placed AS three
WHERE one.tenant < two.tenant AND two.tenant < three.tenant
    AND one.place > two.place AND two.place > three.place
LIMIT 1;
SQL
is scalar @TENANTS, 3, "tenants @TENANTS: against the order of partitions";

my @KEYS = map {
    my $tenant = $_;
    map {"$tenant $_"} map {"k$_"} 1 .. NAMES
} @TENANTS;
my $MIDDLE = 6;

# --- what is asked ------------------------------------------------------

sub list { return "'{" . join(',', @_) . "}'" }

sub tenants_of { return list(map { (split / /)[0] } @_) }
sub names_of   { return list(map { (split / /)[1] } @_) }

# A column that is the same for all.
sub same {
    my ($value, @keys) = @_;
    return list(map {$value} @keys);
}

sub buckets_of {
    return join ', ', tenants_of(@_), names_of(@_), same(0, @_),
        same('1970-01-01Z', @_);
}

sub state_of { return join ', ', same(5, @_), same(0, @_), same('NULL', @_) }

my %ARGUMENTS = (
    add    => sub { buckets_of(@_) . ', ' . same(1, @_) },
    lock   => \&buckets_of,
    insert => sub { buckets_of(@_) . ', ' . state_of(@_) },
    write  => sub { buckets_of(@_) . ', ' . state_of(@_) },
    keep   => sub {
        join ', ', tenants_of(@_), names_of(@_), same('x', @_), same(0, @_),
            same(1, @_), same(0, @_), 'now()';
    },
);

sub execute {
    my ($word, @keys) = @_;
    return "EXECUTE $word(" . $ARGUMENTS{$word}->(@keys) . ');';
}

# --- what is there ------------------------------------------------------

sub rows_of {
    my (@keys) = @_;
    return 'INSERT INTO meter.bucket_counter SELECT tenant, name, 0,'
        . " '1970-01-01Z', 1, 0, NULL FROM unnest(" . tenants_of(@keys)
        . '::text[], ' . names_of(@keys) . '::text[]) AS key (tenant, name);';
}

# From the last key to the first, so that rows are not in the keys' order.
sub make_rows { return $probe->ask(rows_of(reverse @_)) }

sub make_others {
    my ($count) = @_;
    $probe->ask('INSERT INTO meter.bucket_counter SELECT (' . list(@TENANTS)
        . "::text[])[i % 3 + 1], 'other' || i, 0, '1970-01-01Z', 1, 0, NULL"
        . " FROM generate_series(1, $count) AS i;");
    $probe->ask('VACUUM ANALYZE meter.bucket_counter,'
        . ' meter.api_idempotency;');
    return;
}

# A plan for what the tables are now.
sub prepare {
    my ($settings, @words) = @_;
    $writer->ask('DEALLOCATE ALL; RESET ALL; SET ROLE meter_writer;'
        . " SET application_name = 'writer';"
        . join '', map {"SET $_ = $settings->{$_};"} sort keys %$settings);
    for my $word (@words) {
        my $told = $writer->ask("PREPARE $word AS $TEXT{$word}\nBEGIN;"
            . execute($word, @KEYS) . 'ROLLBACK;');
        BAIL_OUT("$word: $told") if $told =~ /ERROR/;
    }
    return;
}

# --- which keys are taken -----------------------------------------------

# Rows that the probe cannot lock, and keys that it cannot make: it would wait
# for whoever has made them.
sub taken {
    my ($word) = @_;
    my ($table, $key, $columns, $values) = $word eq 'keep'
        ? ('meter.api_idempotency', 'key', 'digest, outcome, recorded_at',
        "'x', 0, now()")
        : ('meter.bucket_counter', 'name',
        'duration_seconds, time_start, added, subbed',
        "0, '1970-01-01Z', 1, 0");
    my %taken = map { $_ => 1 } split /\n/, $probe->ask(<<"SQL");
CREATE TEMPORARY TABLE taken (key text);
SET lock_timeout = '10ms';
DO \$\$
DECLARE
    whose text;
    which text;
BEGIN
    FOR whose, which IN
        SELECT * FROM unnest(@{[ tenants_of(@KEYS) ]}::text[],
            @{[ names_of(@KEYS) ]}::text[])
    LOOP
        BEGIN
            PERFORM FROM $table WHERE tenant = whose AND $key = which
            FOR UPDATE NOWAIT;
            IF NOT found THEN
                INSERT INTO $table (tenant, $key, $columns)
                VALUES (whose, which, $values);
            END IF;
            RAISE EXCEPTION 'it is free' USING ERRCODE = 'P0002';
        EXCEPTION
            WHEN lock_not_available THEN
                INSERT INTO taken VALUES (whose || ' ' || which);
            WHEN no_data_found THEN NULL;
        END;
    END LOOP;
END
\$\$;
RESET lock_timeout;
SELECT key FROM taken;
DROP TABLE taken;
SQL
    return grep { $taken{$_} } @KEYS;
}

sub wait_blocked {
    my ($name) = @_;
    wait_until {
        $probe->ask('SELECT count(*) FROM pg_stat_activity WHERE'
            . " application_name = '$name' AND wait_event_type = 'Lock';")
    } 30, "$name waits";
    return;
}

# Has the middle: the row that is there, or one that it makes.
sub hold {
    my ($word) = @_;
    my ($tenant, $name) = split / /, $KEYS[$MIDDLE];
    my $told = $holder->ask('BEGIN;' . ($word eq 'keep'
        ? 'INSERT INTO meter.api_idempotency (tenant, key, digest, outcome,'
            . " recorded_at) VALUES ('$tenant', '$name', 'x', 0, now());"
        : 'SELECT 1 FROM meter.bucket_counter WHERE tenant ='
            . " '$tenant' AND name = '$name' FOR UPDATE;"));
    $holder->ask(rows_of($KEYS[$MIDDLE])) if $word ne 'keep' && $told eq '';
    return;
}

# The writer is stopped in the middle: before it all is taken, behind nothing.
sub order_ok {
    my ($word, $what) = @_;
    hold($word);
    $writer->say_to('BEGIN;' . execute($word, @KEYS));
    wait_blocked('writer');
    my @taken = taken($word);
    $holder->ask('ROLLBACK;');
    unlike $writer->answer, qr/ERROR/, "$word, $what: goes on";
    is "@taken", "@KEYS[0 .. $MIDDLE]", 'in key order';
    $writer->ask('ROLLBACK;');
    return;
}

# Those of these that make what is not there.
sub makers {
    return grep {
        my $word = $_;
        $word eq 'keep' || $writer->ask('BEGIN;' . execute($word, @KEYS)
            . " SELECT 'made ' || count(*) FROM meter.bucket_counter"
            . " WHERE name ~ '^k'; ROLLBACK;") =~ /^made 12$/m
    } @_;
}

for my $others (0, 10, 1000) {
    for my $planner (sort keys %PLANNER) {
        subtest "all are there, $others others, planner $planner" => sub {
            $probe->ask('TRUNCATE meter.bucket_counter;');
            make_rows(@KEYS) if $others > 0;
            make_others($others);
            prepare($PLANNER{$planner}, qw(add lock write));

            # With none but them the plan is older than the rows are.
            make_rows(@KEYS) if $others == 0;
            order_ok($_, 'all are there') for qw(add lock write);
        };
    }
}

for my $planner (grep {/^as/} sort keys %PLANNER) {
    subtest "not all are there, planner $planner" => sub {
        $probe->ask('TRUNCATE meter.bucket_counter;');
        make_others(10);
        my @words = grep { $TEXT{$_} } qw(add lock insert keep);
        prepare($PLANNER{$planner}, @words);
        my @makers = makers(@words);
        order_ok($_, 'none is there') for @makers;
        make_rows(@KEYS[grep { $_ % 2 } 0 .. $#KEYS]);
        order_ok($_, 'the middle is not there')
            for grep {/^(?:add|lock)$/} @makers;
        make_rows($KEYS[$MIDDLE]);
        order_ok($_, 'the middle is there')
            for grep {/^(?:add|lock)$/} @makers;
    };
}

# SKIP LOCKED may wait after all: for the next writer of a bucket whose last one
# has ended this very moment. All buckets are changed while the sweep is looking
# at them, so it looks again at each that it locks, and its clock stands still
# at one in the middle.
subtest 'the sweep, too, locks in key order' => sub {
    $probe->ask('TRUNCATE meter.bucket_counter;');
    make_rows(@KEYS);
    $probe->ask("UPDATE meter.bucket_counter SET expires_at = '2020-01-01Z';");
    $probe->ask(<<'SQL');
CREATE SCHEMA slow;
CREATE SEQUENCE slow.calls;
GRANT USAGE ON SCHEMA slow TO PUBLIC;
GRANT USAGE ON SEQUENCE slow.calls TO PUBLIC;
CREATE FUNCTION slow.clock_timestamp() RETURNS timestamptz
LANGUAGE plpgsql AS $$
DECLARE
    call bigint := nextval('slow.calls');
BEGIN
    IF call = 1 THEN
        PERFORM pg_advisory_lock_shared(1061);
    ELSIF call = current_setting('test.stop')::bigint THEN
        PERFORM pg_advisory_lock_shared(1062);
    END IF;
    RETURN pg_catalog.clock_timestamp();
END
$$;
SQL

    # Each key once where it is met, and once where it is read to be locked.
    my $stop = 2 * @KEYS + 1 + $MIDDLE;
    $writer->ask('DEALLOCATE ALL; RESET ALL; SET ROLE meter_writer;'
        . " SET application_name = 'writer'; SET test.stop = $stop;"
        . ' SET search_path = slow, meter, pg_catalog;'
        . " PREPARE sweep AS $TEXT{sweep}");
    $holder->ask('SELECT pg_advisory_lock(1061), pg_advisory_lock(1062);');
    $writer->say_to('BEGIN; EXECUTE sweep(0, 1000000, 0, 1000);');
    wait_blocked('writer');
    $probe->ask('UPDATE meter.bucket_counter SET added = added + 1;');
    $holder->ask('SELECT pg_advisory_unlock(1061);');
    wait_until {
        $probe->ask('SELECT last_value FROM slow.calls;') == $stop
    } 30, 'the sweep is in the middle';
    wait_blocked('writer');
    is join(' ', taken('lock')), "@KEYS[0 .. $MIDDLE]", 'as far as it got';
    $holder->ask('SELECT pg_advisory_unlock(1062);');
    like $writer->answer, qr/^12 \d+ 12$/m, 'and deletes all of them';
    $writer->ask('ROLLBACK; SELECT pg_advisory_unlock_all();');
};

subtest 'the other way around: a deadlock' => sub {
    $probe->ask('TRUNCATE meter.bucket_counter;');
    make_rows(@KEYS);
    prepare({}, 'lock');
    hold('lock');
    my $third = Edgemeter::SqlSession->new($stack, 'third',
        lock => $STATEMENT{lock});
    $third->say_to('BEGIN;' . execute('lock', @KEYS));
    wait_blocked('third');
    $writer->say_to('BEGIN;' . execute('lock', reverse @KEYS));
    wait_blocked('writer');
    $holder->ask('ROLLBACK;');
    my $ended = 0;
    for my $session ($third, $writer) {
        $ended += $session->answer =~ /ERROR 40P01/;
        $session->say_to('ROLLBACK;');
    }
    $_->answer for $third, $writer;
    is $ended, 1, 'one of two is ended';
    $third->end;
};

# --- at random ----------------------------------------------------------

# Transactions as meterd's: one that adds, or one that locks, makes what is
# missing where that takes a statement of its own, and writes. What is written
# has expired, so that the sweep deletes it.
my $RANDOM = <<'SQL';
DO $do$
DECLARE
    until timestamptz := clock_timestamp() + interval 'SECONDS s';
    tenants text[];
    names text[];
    durations bigint[];
    starts timestamptz[];
    ones bigint[];
    ends timestamptz[];
    fresh text[];
    done integer := 0;
    deadlocks integer := 0;
BEGIN
    WHILE clock_timestamp() < until LOOP
        SELECT array_agg(tenant), array_agg(name), array_agg(0::bigint),
            array_agg('1970-01-01Z'::timestamptz), array_agg(1::bigint),
            array_agg('2020-01-01Z'::timestamptz)
        INTO tenants, names, durations, starts, ones, ends
        FROM (
            SELECT tenant, name FROM all_keys WHERE random() < 0.5
            ORDER BY tenant COLLATE "C", name COLLATE "C"
        ) AS key;
        CONTINUE WHEN tenants IS NULL;
        BEGIN
            IF random() < 0.5 THEN
                EXECUTE $add$ADD$add$
                USING tenants, names, durations, starts, ones;
            ELSE
                EXECUTE $lock$LOCK$lock$
                USING tenants, names, durations, starts;
                IF HAS_INSERT THEN
                    SELECT array_agg(asked.tenant || ' ' || asked.name)
                    INTO fresh
                    FROM unnest(tenants, names) AS asked (tenant, name)
                    WHERE NOT EXISTS (
                        SELECT FROM meter.bucket_counter AS held
                        WHERE held.tenant = asked.tenant
                            AND held.name = asked.name
                    );
                    IF fresh IS NOT NULL THEN
                        EXECUTE $insert$INSERT$insert$
                        USING ARRAY(SELECT split_part(key, ' ', 1)
                                FROM unnest(fresh) AS key),
                            ARRAY(SELECT split_part(key, ' ', 2)
                                FROM unnest(fresh) AS key),
                            durations[:cardinality(fresh)],
                            starts[:cardinality(fresh)],
                            ones[:cardinality(fresh)],
                            durations[:cardinality(fresh)],
                            ends[:cardinality(fresh)];
                    END IF;
                END IF;
                EXECUTE $write$WRITE$write$
                USING tenants, names, durations, starts, ones, durations, ends;
            END IF;
            done := done + 1;
        EXCEPTION
            WHEN unique_violation THEN NULL;
            WHEN deadlock_detected THEN deadlocks := deadlocks + 1;
        END;
        COMMIT;
    END LOOP;
    PERFORM set_config('test.done', done::text, false);
    PERFORM set_config('test.deadlocks', deadlocks::text, false);
END
$do$;
SELECT 'done', current_setting('test.done'), current_setting('test.deadlocks');
SQL

my $SWEEP = <<'SQL';
DO $do$
DECLARE
    until timestamptz := clock_timestamp() + interval 'SECONDS s';
    swept bigint;
    pages bigint;
    deleted bigint := 0;
BEGIN
    WHILE clock_timestamp() < until LOOP
        EXECUTE $sweep$SWEEP$sweep$ INTO swept, pages
        USING 0::bigint, 1000000::bigint, 0::bigint, 1000::bigint;
        deleted := deleted + swept;
        COMMIT;
    END LOOP;
    PERFORM set_config('test.deleted', deleted::text, false);
END
$do$;
SELECT current_setting('test.deleted');
SQL

subtest 'transactions at random' => sub {
    $probe->ask('TRUNCATE meter.bucket_counter;');
    $stack->query('GRANT TEMPORARY ON DATABASE edgemeter TO PUBLIC');
    my %fill = (
        SECONDS    => SECONDS,
        ADD        => $TEXT{add},
        LOCK       => $TEXT{lock},
        INSERT     => $TEXT{insert} // '',
        WRITE      => $TEXT{write},
        SWEEP      => $TEXT{sweep},
        HAS_INSERT => $TEXT{insert} ? 'true' : 'false',
    );
    s/;\s*\z// for values %fill;
    my ($script, $sweeping) = map {
        s/\b(SECONDS|HAS_INSERT)\b/$fill{$1}/gr
            =~ s/(?<=\$)(ADD|LOCK|INSERT|WRITE|SWEEP)(?=\$)/$fill{$1}/gr
    } $RANDOM, $SWEEP;
    my @sessions
        = map { Edgemeter::SqlSession->new($stack, "random$_") } 1 .. 6;
    $_->ask('CREATE TEMPORARY TABLE all_keys AS SELECT * FROM unnest('
        . tenants_of(@KEYS) . '::text[], ' . names_of(@KEYS)
        . '::text[]) AS key (tenant, name);') for @sessions;
    my $sweep = Edgemeter::SqlSession->new($stack, 'sweep');
    $_->say_to($script) for @sessions;
    $sweep->say_to($sweeping);
    my ($done, $deadlocks) = (0, 0);
    for my $session (@sessions) {
        my $told = $session->answer;
        my (undef, $some, $ended) = $told =~ /^(done) (\d+) (\d+)$/m
            or diag $told;
        $done      += $some  // 0;
        $deadlocks += $ended // 1;
    }
    my $deleted = $sweep->answer;
    like $deleted, qr/^[1-9]\d*$/, "rows come and go: $deleted";
    is $deadlocks, 0, 'no deadlock';
    cmp_ok $done, '>', 50, "in $done transactions";
};

done_testing;
