#!/usr/bin/perl

# 83-order-of-clamps.t - clamped rows are changed in the order that the
# ledger tells. A transaction is held behind its time and in front of its
# rows while another one overtakes it: it must take a later time, else a
# recomputation finds another value. Then the same with a clock that was set
# back: the order goes on from where it was, and times of day are right.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use POSIX ();
use Test::More;
use Edgemeter::Process;
use Edgemeter::Recount;
use Edgemeter::Wait qw(wait_until);

$Edgemeter::Recount::RULES = <<'YAML';
events:
  - { type: opened }
  - { type: closed }
  - { type: added }
  - { type: removed }
  - { type: born }
  - { type: dead }
  - { type: up }
  - { type: down }
  - { type: call }
counters:
  - counterName: open
    dimensions: [route]
    floorAtZero: true
    rules: [ { on: opened, op: increment }, { on: closed, op: decrement } ]
  - counterName: online
    dimensions: [route]
    transitions: { entity: device }
    rules: [ { on: up, op: increment }, { on: down, op: decrement } ]
usage:
  entryCount: { increment: [added], decrement: [removed] }
  apiCallCount: { increment: [call] }
  provisioned: born
  decommissioned: dead
meters:
  - { metric: calls, on: [call], aggregation: count, period: day, lateness: 1h }
YAML

my $recount = Edgemeter::Recount->start;
my $stack   = $recount->stack;
my $count   = 0;

sub event {
    my ($type, %arg) = @_;
    return { event_id => 'e' . ++$count, type => $type, ts => time,
        attributes => { route => '/1', device => 'd' }, %arg };
}

# Events of these types in one request.
sub sent {
    my ($node, $types, %arg) = @_;
    $recount->send($node, 'acme', [map { event($_, %arg) } split / /, $types]);
    return;
}

sub is_clean {
    my ($name) = @_;
    my ($status, $out, $err) = $recount->run('reconcile');
    is "$status $out", '0 ', $name or diag $err;
    return;
}

# An event of this time waits in the registry, which comes before all
# projections, for whoever holds the lock.
my $HELD = '2026-01-02T03:04:05.678901Z';
$stack->query(<<"SQL");
CREATE FUNCTION meter.hold() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_catalog.pg_advisory_xact_lock(83); RETURN NEW; END';
CREATE TRIGGER hold BEFORE INSERT ON meter.event_registry
    FOR EACH ROW WHEN (NEW.ts = '$HELD') EXECUTE FUNCTION meter.hold();
SQL

# What waits for a lock, or holds it: advisory ones only.
sub advisory {
    my ($granted) = @_;
    return $stack->query("SELECT count(*) FROM pg_locks WHERE locktype ="
        . " 'advisory' AND objid = 83 AND granted = $granted");
}

# `slow` takes its time on node a and stops; `fast` is done on node b
# meanwhile; then slow goes on.
sub overtake {
    my ($slow, $fast) = @_;
    my $flag = $stack->place->path('tmp') . "/release-$count";
    my $holder = fork // die "fork: $!\n";
    if ($holder == 0) {
        $stack->query('SELECT pg_advisory_lock(83);'
            . " DO \$\$ BEGIN WHILE NOT EXISTS (SELECT FROM pg_stat_file("
            . "'$flag', true) AS f WHERE f.size IS NOT NULL) LOOP"
            . ' PERFORM pg_sleep(0.01); END LOOP; END $$');
        POSIX::_exit(0);
    }
    wait_until { advisory('true') } 10, 'the lock is held';
    my $client = fork // die "fork: $!\n";
    if ($client == 0) {
        my $good = eval { sent('a', $slow, ts => $HELD); 1 };
        print STDERR "# $@" unless $good;
        POSIX::_exit($good ? 0 : 1);
    }
    $count += 10;
    wait_until { advisory('false') } 10, 'the slow one waits';
    sent('b', $fast);
    open my $file, '>', $flag or die "$flag: $!\n";
    close $file;
    waitpid $client, 0;
    is $?, 0, 'accepted';
    waitpid $holder, 0;
    return;
}

sub types_by_time {
    my ($limit) = @_;
    return join ' ', reverse $stack->query('SELECT type FROM meter.event'
        . " ORDER BY recorded_at DESC, writer_seq DESC LIMIT $limit");
}

sub careful { return $recount->node('a')->metric('edgemeter_batches_careful_total') }

# What is slow, what is fast, a query, and its result behind both.
my @races = (
    ['a clamped counter, new', 'closed', 'opened', 0,
        q{SELECT value FROM meter.counter WHERE counter_name = 'open'}],
    ['a clamped counter', 'closed', 'opened', 0,
        q{SELECT value FROM meter.counter WHERE counter_name = 'open'}],
    ['a usage row, new', 'removed', 'added', 0,
        'SELECT entry_count FROM meter.tenant_usage_metrics'],
    ['a usage row', 'removed', 'added', 0,
        'SELECT entry_count FROM meter.tenant_usage_metrics'],
    ['a status', 'dead', 'born', 'decommissioned',
        'SELECT status FROM meter.tenant_usage_metrics'],
    # careful from the beginning: the time is moved, not taken anew
    ['a clamped counter, one by one', 'down closed', 'opened', 0,
        q{SELECT value FROM meter.counter WHERE counter_name = 'open'}],
    ['a usage row, one by one', 'down removed', 'added', 0,
        'SELECT entry_count FROM meter.tenant_usage_metrics'],
    ['an entity', 'down', 'up', 0,
        q{SELECT value FROM meter.counter WHERE counter_name = 'online'}],
);

for (@races) {
    my ($name, $slow, $fast, $value, $query) = @$_;
    subtest $name => sub {
        my $before = careful();
        overtake($slow, $fast);
        is types_by_time(1 + split / /, $slow), "$fast $slow", 'the slow one took a later time';
        is $stack->query($query), $value, 'the value is that of this order';
        cmp_ok careful(), '>', $before, 'on the careful path';
        is_clean('a recomputation agrees');
    };
}

subtest 'what only goes up is not held up' => sub {
    my $before = careful();
    overtake('call', 'call');
    is careful(), $before, 'on the fast path';
    is $stack->query('SELECT api_call_count FROM meter.tenant_usage_metrics'),
        2, 'both count';
    is_clean('a recomputation agrees');
};

# As if the clock had been set back by an hour since.
subtest 'a writer that is ahead of the clock' => sub {
    $stack->query(q{UPDATE meter.writer_seq SET stamped_at = now()}
        . q{ + interval '1 h' WHERE writer = (SELECT writer FROM meter.writer}
        . q{ WHERE node = 'a')});
    my $random = sub {
        my $i = $_[0];
        my $type = (qw(opened closed added removed up down call born))[rand 8];
        $recount->send($i % 2 ? 'a' : 'b', 'acme',
            [map { event($type, attributes => { route => '/' . int rand 2,
                device => 'd' . int rand 3 }) } 1 .. 1 + rand 3]);
    };
    srand 83;
    $random->($_) for 1 .. 60;
    my $ahead = sub {
        return $stack->query('SELECT count(*) FROM meter.event WHERE'
            . q{ recorded_at > now() + interval '50 minutes'});
    };
    cmp_ok $ahead->(), '>', 30, 'the order is ahead';
    is $stack->query(q{SELECT count(*) FROM meter.event WHERE
        coalesce(clock_at, recorded_at) > now() + interval '5 s'}), 0,
        'times of day are not';
    for my $name (qw(a b)) {
        my $node = $recount->node($name);
        my $far  = $node->metric('edgemeter_recorded_ahead_seconds');
        ok $far > 3000 && $far <= 3600, "$name says how far: $far s";
        is scalar(() = $node->log =~ /"warn".*the order is ahead/g), 1,
            "$name has told it once";
    }
    is_clean('a recomputation agrees');
    is $stack->query(<<'SQL'), 0, 'and increase with every transaction';
SELECT count(*) FROM (SELECT recorded_at < lag(recorded_at) OVER
    (PARTITION BY writer ORDER BY writer_seq) AS is_back FROM meter.event)
    AS e WHERE is_back
SQL
    $stack->query('DELETE FROM meter.counter; UPDATE'
        . ' meter.tenant_usage_metrics SET entry_count = 55');
    is +($recount->run('rebuild', $_))[0], 0, "rebuild $_"
        for qw(counters usage);
    $random->($_) for 1 .. 30;
    is_clean('rows that were rebuilt keep their time');

    my $last = $stack->query('SELECT max(recorded_at) FROM meter.event');
    is $recount->node('a')->process->stop('TERM', 15), 1, 'the node ends';
    $recount->{node}{a} = Edgemeter::Node->start($stack, name => 'a');
    $recount->node('a')->wait_ready;
    $random->(1);
    is $stack->query("SELECT bool_or(recorded_at > '$last') FROM meter.event"),
        't', 'likewise after a restart';
    is $stack->query(q{SELECT watermark_ts <= now() FROM meter.meter_counter}
            . q{ WHERE metric = 'calls' ORDER BY period_start DESC LIMIT 1}),
        't', 'watermarks are not ahead';
    is_clean('a recomputation agrees');
};

# The clock of the look at closed periods is checked once the lock is there.
subtest 'a lock that comes late' => sub {
    $recount->{node}{late} = Edgemeter::Node->start($stack, name => 'late',
        env => { METERD_TEST_CLOCK_MARGIN_MS => 300 });
    $recount->node('late')->wait_ready;
    my $retries = sub {
        return $recount->node('late')->metric('counter_update_conflict_retries');
    };
    sent('late', 'call');
    is $retries->(), 0, 'in time: once';
    my $holder = fork // die "fork: $!\n";
    if ($holder == 0) {
        $stack->query('BEGIN; SELECT FROM meter.writer_seq FOR UPDATE;'
            . ' SELECT pg_sleep(1); COMMIT');
        POSIX::_exit(0);
    }
    wait_until {
        $stack->query("SELECT count(*) FROM pg_stat_activity WHERE query LIKE"
            . " '%pg_sleep(1)%' AND wait_event = 'PgSleep'")
    } 10, 'the row is held';
    sent('late', 'call');
    waitpid $holder, 0;
    cmp_ok $retries->(), '>', 0, 'late: looked at once more';
    is_clean('counted once');
};

done_testing;
