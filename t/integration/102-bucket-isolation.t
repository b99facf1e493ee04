#!/usr/bin/perl

# 102-bucket-isolation.t - what two transactions on the same buckets do to each
# other: a sweep and an increment that gives more time, two that make the same
# bucket or use the same key, two that lock in the same order and in another
# one. Then through meterd: no deadlock on hot buckets, and updates that stay
# on their page.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Time::HiRes qw(time);
use Edgemeter::CounterClients qw(run_clients write_request stamp);
use Edgemeter::SqlSession;
use Edgemeter::Stack;
use Edgemeter::Wait qw(poll_until wait_until);

my %STATEMENT = (
    lock    => 'bucket_lock',
    held    => 'bucket_held',
    write   => 'bucket_write',
    remove  => 'bucket_delete',
    add     => 'bucket_add',
    sweep   => 'bucket_sweep',
    ensure  => 'bucket_lane_ensure',
    advance => 'bucket_lane_advance',
    known   => 'idempotency_known',
    keep    => 'idempotency_insert',
);
my $WRITER = "'00000000-0000-4000-8000-00000000000a'";

my $stack = Edgemeter::Stack->for_test(
    settings => { deadlock_timeout => '100ms' })->start;

sub session {
    my ($name) = @_;
    return Edgemeter::SqlSession->new($stack, $name, %STATEMENT);
}

# --- what is asked ------------------------------------------------------

# Perpetual buckets of one tenant.
sub keys_of {
    my (@names) = @_;
    my $list = sub { "'{" . join(',', @_) . "}'" };
    return join ', ', $list->(map {'zoo'} @names), $list->(@names),
        $list->(map {0} @names), $list->(map {'1970-01-01Z'} @names);
}

sub lock_of {
    return 'EXECUTE lock(' . keys_of(@_) . '); EXECUTE held(' . keys_of(@_)
        . ');';
}

sub add_of {
    return 'EXECUTE add(' . keys_of(@_) . ", '{" . join(',', map {1} @_)
        . "}');";
}

# A bucket that was not there, once it is locked.
my $NONE = '1 0 0 1970-01-01 00:00:00+00';

sub write_of {
    my ($name, $added, $expires) = @_;
    return 'EXECUTE write(' . keys_of($name) . ", '{$added}', '{0}', '{"
        . ($expires // 'NULL') . "}');";
}

sub fresh {
    my ($name, $added, $expires) = @_;
    $stack->query("DELETE FROM meter.bucket_counter WHERE tenant = 'zoo'");
    return if !defined $name;
    $stack->query('INSERT INTO meter.bucket_counter VALUES'
            . " ('zoo', '$name', 0, '1970-01-01Z', $added, 0, "
            . (defined $expires ? "'$expires'" : 'NULL') . ')');
    return;
}

sub row {
    my ($name) = @_;
    return $stack->query("SELECT added, expires_at > now() FROM"
            . " meter.bucket_counter WHERE tenant = 'zoo' AND name = '$name'");
}

my $SWEEP = 'EXECUTE sweep(0, 1000000, 0, 1000);';
my ($one, $two, $holder) = map { session($_) } qw(one two holder);

# The first column of a sweep: how many were deleted.
sub swept { return (split / /, $_[0])[0] }

# --- a sweep, and an increment that gives more time ----------------------

subtest 'the increment comes first' => sub {
    fresh('b', 5, '2026-01-01Z');
    is $one->ask('BEGIN;' . lock_of('b')), '1 5 0 2026-01-01 00:00:00+00',
        'it has the bucket';
    is swept($two->ask("BEGIN; $SWEEP")), 0,
        'the sweep passes it over, and does not wait';
    $one->ask(write_of('b', 1, '2999-01-01Z') . 'COMMIT;');
    is swept($two->ask("$SWEEP COMMIT;")), 0, 'nor is it deleted afterwards';
    is row('b'), "1\tt", 'it is there, with more time';
};

subtest 'the sweep comes first' => sub {
    fresh('b', 5, '2026-01-01Z');
    is swept($two->ask("BEGIN; $SWEEP")), 1, 'it has deleted the bucket';
    $one->ask_waits('BEGIN;' . lock_of('b'));
    $two->ask('COMMIT;');
    is $one->answer, $NONE, 'the increment has waited, and finds none';
    $one->ask(write_of('b', 1) . 'COMMIT;');
    is row('b'), "1\t", 'it begins anew: nothing is lost';

    fresh('b', 5, '2026-01-01Z');
    $two->ask("BEGIN; $SWEEP");
    $one->ask_waits('BEGIN;' . lock_of('b'));
    $two->ask('ROLLBACK;');
    is $one->answer, '1 5 0 2026-01-01 00:00:00+00',
        'a sweep that ends without a trace';
    $one->ask('ROLLBACK;');
};

# The sweep has begun and looks at the bucket as it was: its clock stands in
# front of a lock.
subtest 'the increment comes in the middle of the sweep' => sub {
    $stack->query(<<'SQL');
CREATE SCHEMA slow;
GRANT USAGE ON SCHEMA slow TO PUBLIC;
CREATE FUNCTION slow.clock_timestamp() RETURNS timestamptz
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(102);
    RETURN pg_catalog.clock_timestamp();
END
$$;
SQL
    my $slow = session('slow');
    $slow->ask('SET search_path = slow, meter, pg_catalog;'
        . 'DEALLOCATE sweep; PREPARE sweep AS '
        . Edgemeter::Stack::statement('bucket_sweep'));
    for my $expires ('2999-01-01Z', undef) {
        fresh('b', 5, '2026-01-01Z');
        $holder->ask('BEGIN; SELECT pg_advisory_xact_lock(102);');
        $slow->ask_waits("BEGIN; $SWEEP");
        $one->ask('BEGIN;' . lock_of('b') . write_of('b', 1, $expires)
            . 'COMMIT;');
        $holder->ask('COMMIT;');
        is swept($slow->answer), 0, 'nothing is deleted';
        $slow->ask('COMMIT;');
        is row('b'), "1\t" . ($expires ? 't' : ''), 'the count is there';
    }
    fresh('b', 5, '2026-01-01Z');
    $holder->ask('BEGIN; SELECT pg_advisory_xact_lock(102);');
    $slow->ask_waits("BEGIN; $SWEEP");
    $one->ask('BEGIN;' . lock_of('b') . write_of('b', 6, '2026-01-02Z')
        . 'COMMIT;');
    $holder->ask('COMMIT;');
    cmp_ok swept($slow->answer), '<=', 1, 'one that has expired all the same';
    $slow->ask('COMMIT;');
    $two->ask($SWEEP);
    is row('b'), '', 'goes, then or with the next one';
    $slow->end;
};

# --- two at the same bucket ---------------------------------------------

subtest 'who waits sees what the other one has left' => sub {
    fresh('b', 5);
    $one->ask('BEGIN;' . lock_of('b'));
    $two->ask_waits('BEGIN;' . lock_of('b'));
    $one->ask(write_of('b', 9, '2999-01-01Z') . 'COMMIT;');
    is $two->answer, '1 9 0 2999-01-01 00:00:00+00', 'not what was there';
    $two->ask('ROLLBACK;');
};

subtest 'two make the same bucket' => sub {
    for my $second (lock_of('b'), add_of('b')) {
        my $is_add = $second eq add_of('b');
        fresh();
        is $one->ask('BEGIN;' . lock_of('b')), $NONE, 'one finds none';
        $two->ask_waits("BEGIN; $second");
        $one->ask(write_of('b', 1) . 'COMMIT;');
        is $two->answer, $is_add ? '2 0' : '1 1 0 ',
            'the other one waits, and finds it';
        $two->ask(($is_add ? '' : write_of('b', 2)) . 'COMMIT;');
        is row('b'), "2\t", 'both count';

        fresh();
        $one->ask('BEGIN;' . lock_of('b'));
        $two->ask_waits("BEGIN; $second");
        $one->ask('ROLLBACK;');
        is $two->answer, $is_add ? '1 0' : $NONE, 'the first one gives up';
        $two->ask(($is_add ? '' : write_of('b', 1)) . 'COMMIT;');
        is row('b'), "1\t", 'one counts';

        fresh();
        $one->ask('BEGIN;' . lock_of('b'));
        $two->ask_waits("BEGIN; $second");
        $one->ask('EXECUTE remove(' . keys_of('b') . '); COMMIT;');
        is $two->answer, $is_add ? '1 0' : $NONE, 'nothing came into the first';
        $two->ask(($is_add ? '' : write_of('b', 1)) . 'COMMIT;');
        is row('b'), "1\t", 'one counts, too';
    }
};

subtest 'two use the same key' => sub {
    my $keep = q[EXECUTE keep('{zoo}', '{k}', '{x}', '{0}', '{1}', '{0}', now());];
    is $one->ask("BEGIN; EXECUTE known('{zoo}', '{k}'); $keep"), '', 'one';
    $two->ask_waits("BEGIN; EXECUTE known('{zoo}', '{k}'); $keep");
    $one->ask('COMMIT;');
    is $two->answer, 'ERROR 23505', 'the second one is refused';
    is $two->ask("ROLLBACK; EXECUTE known('{zoo}', '{k}');"), '1 \\x78 0 1 0',
        'starts over, and knows the answer';
};

subtest 'the number of a transaction that may still commit' => sub {
    $stack->query("INSERT INTO meter.writer VALUES ($WRITER, 'n', 1, now())");
    is $one->ask("EXECUTE ensure($WRITER, 0);"), 0, 'none yet';
    for my $end ([COMMIT => 1], [ROLLBACK => 1]) {
        $one->ask("BEGIN; EXECUTE advance($WRITER, 0);");
        $two->ask_waits("EXECUTE ensure($WRITER, 0);");
        $one->ask("$end->[0];");
        is $two->answer, $end->[1], "asked meanwhile: as after its $end->[0]";
    }
};

# --- the order of locks --------------------------------------------------

# Both come to b, and there they stand until it is free. Some are there, some
# are to be made.
sub meet {
    my ($present, $first, $second) = @_;
    fresh();
    $stack->query("INSERT INTO meter.bucket_counter SELECT 'zoo', name, 0,"
        . " '1970-01-01Z', 1, 0, NULL FROM unnest('{$present}'::text[]) AS name");
    $holder->ask('BEGIN;' . lock_of('b'));
    $one->ask_waits("BEGIN; $first COMMIT;");
    $two->ask_waits("BEGIN; $second COMMIT;");
    $holder->ask('COMMIT;');
    return map { $_->answer } $one, $two;
}

subtest 'in the same order' => sub {
    for my $present ('a,b,c', 'b,c', '') {
        for my $pair ([lock_of(qw(a b c)), lock_of(qw(a b c))],
            [lock_of(qw(a b c)), add_of(qw(a b c))],
            [add_of(qw(a b c)), lock_of(qw(a b c))],
            [add_of(qw(a b c)), add_of(qw(a b c))],
            [add_of(qw(a b)), lock_of(qw(b c))],
            [lock_of(qw(a b)), add_of(qw(b c))]) {
            my @answers = meet($present, @$pair);
            is scalar(grep {/ERROR/} @answers), 0, "$present: none is ended";
        }
    }
};

subtest 'in another order' => sub {
    for my $present ('a,b,c', 'b', '') {
        for my $turned (lock_of(qw(c b a)), add_of(qw(c b a))) {
            my @answers = meet($present, add_of(qw(a b c)), $turned);
            is scalar(grep {/ERROR 40P01/} @answers), 1, 'one of them is ended';
        }
    }
};
$_->end for $one, $two, $holder;

# --- through meterd ------------------------------------------------------

# Two nodes on one database, with nginx in front of each. One sweeps all the
# time, and what has just expired.
my $other = Edgemeter::Stack->for_test(database_url => $stack->database_url,
    env => { METERD_TEST_SWEEP_MS => 1 })->start;

sub deadlocks {
    my $count = () = $stack->log('postgres') =~ /deadlock detected/g;
    return $count;
}

subtest 'hot buckets on two nodes' => sub {
    my $before = deadlocks();
    my @names  = map {"hot$_"} 1 .. 16;
    my (%told, %sum);
    run_clients(map {
        my $client = $_;
        my $left   = 150;
        {   port  => ($stack, $other)[$client % 2]->port,
            token => $stack->token('acme'),
            next  => sub {
                return if $left-- == 0;
                my $name = $names[rand @names];
                return { %{ write_request(
                    $client % 8 < 2 ? 'incrementSync' : 'increment', 'acme',
                    $name, 0, '2026-01-01T00:00:00Z', amount => $client + 1) },
                    name => $name, amount => $client + 1 };
            },
            told => sub {
                my ($request, $answer) = @_;
                $told{ $answer->{status} }++;
                $sum{ $request->{name} } += $request->{amount}
                    if $answer->{status} == 200;
            },
        }
    } 0 .. 31);
    is_deeply \%told, { 200 => 32 * 150 }, 'every increment is answered';
    is deadlocks() - $before, 0, 'no deadlock';
    my %stored = map { split /\t/ } $stack->query('SELECT name, added'
            . " FROM meter.bucket_counter WHERE name ~ '^hot'");
    is_deeply \%stored, \%sum, 'and every one is counted';
};

# Each bucket has one client, so that it knows whether its last count still
# stands: surely when it had not expired by the time of the next answer, surely
# not when it had before that was asked for.
sub living {
    my ($number, $count) = @_;
    my ($port, $left) = ($number % 2 ? $stack->port : $other->port, 150);
    my ($expires, $net, $asked) = (0, 0);
    return {
        port  => $port,
        token => $stack->token('acme'),
        next  => sub {
            return if $left == 0;
            return rand 0.03 if rand() < 0.5;
            $left--;
            $asked = time;
            my $end = $asked + rand 0.04;
            return { %{ write_request(
                $number % 4 < 2 ? 'increment' : 'incrementSync', 'acme',
                "living$number", 0, '2026-01-01T00:00:00Z', expires =>
                stamp(int $end) =~ s/Z$/sprintf '.%06dZ', ($end - int $end) * 1e6/er)
            }, end => $end };
        },
        told => sub {
            my ($request, $answer) = @_;
            my $is_live = time < $expires ? 'live'
                : $asked > $expires ? 'gone' : 'either';
            my $right = $is_live eq 'live' ? $answer->{net} == $net + 1
                : $is_live eq 'gone' ? $answer->{net} == 1
                : $answer->{net} == $net + 1 || $answer->{net} == 1;
            $count->{ $right ? $is_live : 'wrong' }++;
            $net = $answer->{net};

            # Of a bucket that had its time left it is the later end.
            $expires = $net > 1 && $expires > $request->{end} ? $expires
                : $request->{end};
        },
    };
}

subtest 'buckets that live for some milliseconds, swept all the time' => sub {
    my %count = map { $_ => 0 } qw(live gone wrong);
    run_clients(map { living($_, \%count) } 1 .. 32);
    is $count{wrong}, 0, 'each counts on while it lives, and begins anew then';
    cmp_ok $count{$_}, '>', 200, "$_: $count{$_}" for qw(live gone);
    wait_until {
        $stack->query('SELECT count(*) FROM meter.bucket_counter'
                . " WHERE name ~ '^living'") == 0
    } 30, 'all are swept';
    like $other->http->get('/metrics')->{body},
        qr/^edgemeter_bucket_expired_total [1-9]/m, 'by the one that sweeps';
};

# The first version of a row is made by an insert, so nothing but updates is
# looked at.
sub updates {
    my ($all, $hot) = split /\t/, $stack->query('SELECT sum(n_tup_upd),'
        . ' sum(n_tup_hot_upd) FROM pg_stat_user_tables'
        . " WHERE relname ~ '^bucket_counter_'");
    return ($all, $hot);
}

subtest 'updates stay on their page' => sub {
    my ($all_before, $hot_before) = updates();
    my $second = 4_000_000_000;
    run_clients(map {
        my $client = $_;
        my $left   = 1000;
        {   port  => $stack->port,
            token => $stack->token('globex'),
            next  => sub {
                return if $left-- == 0;
                return write_request('incrementSync', 'globex', "page$client",
                    3600, '2026-01-01T00:00:00Z',
                    expires => stamp($second++));
            },
            told => sub {
                die "$_[1]{status} $_[1]{body}\n" if $_[1]{status} != 200;
            },
        }
    } 1 .. 4);
    my ($all, $hot);
    poll_until {
        ($all, $hot) = updates();
        $all - $all_before >= 3996;
    } 30;
    $_ -= $all_before for $all;
    $_ -= $hot_before for $hot;
    cmp_ok $all, '>=', 3996, "$all updates, with another end each time";
    cmp_ok $hot / $all, '>=', 0.9, "$hot of them on their page";
    is $stack->query('SELECT added, expires_at FROM meter.bucket_counter'
            . " WHERE name = 'page1' AND expires_at > '2096-10-02Z'") ne '', 1,
        'with the last end';
};

done_testing;
