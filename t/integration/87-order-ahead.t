#!/usr/bin/perl

# 87-order-ahead.t - the clock of PostgreSQL runs ahead by a year for a while
# and is set right. The order of transactions goes on from where it was, so
# that clamped rows stay exact; every time of day is right at once: of events,
# watermarks, adjustments, heartbeats, counters and usage rows. Nothing is lost
# when nodes are killed meanwhile. When the clock passes the order, the two are
# one again.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Fcntl qw(SEEK_SET);
use File::Temp ();
use JSON::PP ();
use POSIX ();
use Test::More;
use Time::HiRes ();
use Edgemeter::Node;
use Edgemeter::Recount;
use Edgemeter::Wait qw(poll_until wait_until);

use constant YEAR => 31_557_600;

my $scratch = File::Temp->newdir('em-ahead-XXXXXX', TMPDIR => 1);
chmod 0755, "$scratch";
my $library = "$scratch/shift_clock.so";
my $source  = Edgemeter::Stack::root() . '/t/lib/shift_clock.c';
system('cc', '-shared', '-fPIC', '-O1', '-o', $library, $source) == 0
    or plan skip_all => 'there is no C compiler';
chmod 0755, $library;

my $control = "$scratch/ahead";
open my $file, '+>', $control or die "$control: $!\n";
chmod 0644, $control;

# The clock of all PostgreSQL processes, from now on.
sub jump {
    my ($seconds) = @_;
    sysseek $file, 0, SEEK_SET or die $!;
    syswrite($file, pack 'q', $seconds) == 8 or die $!;
    return;
}
jump(0);

$Edgemeter::Recount::RULES = <<'YAML';
events: [ { type: call }, { type: opened }, { type: closed }, { type: up },
    { type: down } ]
counters:
  - counterName: open
    dimensions: [route]
    floorAtZero: true
    audit: true
    rules: [ { on: opened, op: increment }, { on: closed, op: decrement } ]
  - counterName: online
    dimensions: [route]
    transitions: { entity: device }
    rules: [ { on: up, op: increment }, { on: down, op: decrement } ]
usage:
  entryCount: { increment: [opened], decrement: [closed] }
  apiCallCount: { increment: [call] }
meters:
  - { metric: calls, on: [call], aggregation: last, value: size,
      period: month, lateness: 1m }
series:
  - { name: calls, kind: counter, on: [call] }
YAML

# No flush comes by itself while this test takes.
my %HELD = (METERD_TEST_FLUSH_MS => 3_600_000);
my $recount = Edgemeter::Recount->start(env => \%HELD,
    database_env => { LD_PRELOAD => $library, SHIFT_CLOCK => $control });
my $stack = $recount->stack;
my $JSON  = JSON::PP->new->utf8->canonical;
my $count = 0;

sub clock { return scalar $stack->query('SELECT clock_timestamp()') }

# Events of these types in one request; gives the id of the last one.
sub sent {
    my ($node, $types, %arg) = @_;
    $recount->send($node, 'acme', [map {
        { event_id => 'e' . ++$count, type => $_, ts => Time::HiRes::time(),
            attributes => { route => '/1', device => 'd', size => $count },
            %arg }
    } split / /, $types]);
    return "e$count";
}

sub asked {
    my ($node, $path, %arg) = @_;
    ($path, my $args) = split /\?/, $path, 2;
    my $got = $recount->node($node)->ask(path => $path, args => $args,
        token => $stack->token('acme'), %arg);
    is $got->{status}, 200, $path or diag $got->{body};
    return $JSON->decode($got->{body});
}

# Not earlier than $from, not later than now.
sub is_between {
    my ($from, $time, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    is $stack->query("SELECT '$time'::timestamptz >= '$from' AND"
        . " '$time'::timestamptz <= clock_timestamp()"), 't', $name
        or diag "$time is not between $from and " . clock();
    return;
}

sub is_clean {
    my ($name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my ($status, $out, $err) = $recount->run('reconcile');
    is "$status $out", '0 ', $name or diag $err;
    return;
}

# "recorded_at clock_at" of an event, in seconds after a time.
sub ledger {
    my ($id, $from) = @_;
    return split /\t/, $stack->query(<<"SQL");
SELECT extract(epoch FROM recorded_at - '$from'),
    coalesce(extract(epoch FROM clock_at - '$from')::text, 'none')
FROM meter.event WHERE event_id = '$id'
SQL
}

sub unflushed {
    return $stack->query('SELECT coalesce(sum(s.last - f.upto), 0) FROM'
        . ' meter.writer_seq AS s JOIN meter.writer_flush AS f USING (writer)');
}

subtest 'a clock that is right' => sub {
    my $from = clock();
    my $id = sent('a', 'opened closed opened call up');
    sent('b', 'opened call down');
    my ($order, $clock) = ledger($id, $from);
    cmp_ok $order, '<', 60, 'recorded by the clock';
    is $clock, 'none', 'which is not kept twice';
    is_clean('a recomputation agrees');
};

# Events below are up to some minutes old, and of the same month.
wait_until {
    (gmtime)[4] == (gmtime time - 300)[4]
} 310, 'the month is some minutes old';

# One event that counts is dated ahead itself: it moves the watermark there.
my ($set_ahead, $set_right, $most);
subtest 'a clock a year ahead' => sub {
    jump(YEAR);
    $set_ahead = clock();
    my $id = sent('a', 'closed opened up down');
    my ($order, $clock) = ledger($id, $set_ahead);
    cmp_ok $order, '>=', 0, 'recorded by the clock';
    is $clock, 'none', 'which is the order';
    sent('a', 'call', ts => Time::HiRes::time() + 600);
    wait_until {
        $stack->query('SELECT count(*) FROM meter.writer_seq'
            . " WHERE heartbeat_at < '$set_ahead'") == 0
    } 30, 'all hearts beat in that year';
    jump(0);
    $set_right = clock();
    $most = $stack->query("SELECT '$set_right'::timestamptz + "
        . YEAR . q{ * interval '1 s'});
};

subtest 'the clock is set right: an event' => sub {
    my $from = clock();
    my $id   = sent('a', 'opened');
    my ($order, $clock) = ledger($id, $from);
    cmp_ok $order, '>', YEAR / 2, 'the order stays ahead';
    isnt $clock, 'none', 'the ledger has the clock';
    my $event = asked('a', "/v1/events/$id");
    is_between($from, $event->{recorded_at}, 'recorded now');
    is_between($from, $event->{first_seen_at}, 'seen now');
    my ($found) = grep { $_->{event_id} eq $id } @{ asked('a', '/v1/search',
        method => 'POST', type => 'application/json',
        body => '{"type":"opened"}')->{events} };
    is $found->{recorded_at}, $event->{recorded_at}, 'as a search says';
    is $recount->node('a')->post('acme', [{ event_id => $id, type => 'opened',
        ts => $event->{ts}, attributes => $event->{attributes} }])
        ->{json}{results}[0]{verdict}, 'duplicate', 'sent again';
    is_between($from, asked('a', "/v1/events/$id")->{duplicates}[0]{seen_at},
        'a repeat is seen now');
    is_between($from, $stack->query('SELECT max(recorded_at) FROM'
        . " meter.counter_audit WHERE writer = (SELECT writer FROM meter.event"
        . " WHERE event_id = '$id') AND seq_last = (SELECT writer_seq FROM"
        . " meter.event WHERE event_id = '$id')"), 'an update is logged now');
};

subtest 'the clock is set right: rows' => sub {
    my $read = asked('b', '/v1/counters/open?route=/1');
    is_between($set_right, $read->{updated_at}, 'a counter');
    $read = asked('b', '/v1/tenants/acme/usage');
    is_between($set_right, $read->{last_updated_at}, 'a usage row');
    wait_until {
        $stack->query('SELECT count(*) FROM meter.writer_seq WHERE heartbeat_at'
            . " NOT BETWEEN '$set_right' AND clock_timestamp()") == 0
    } 30, 'hearts beat by the clock';
    pass 'hearts beat by the clock';
    is $stack->query('SELECT count(*) FROM meter.writer_seq'
        . " WHERE stamped_at < '$set_ahead'"), 0, 'the order did not go back';
};

sub disposition {
    return scalar $stack->query('SELECT disposition FROM meter.event'
        . " WHERE event_id = '$_[0]'");
}

# The watermark of calls stands ten minutes ahead, since the event was taken
# when it was in the past.
subtest 'a watermark that was moved ahead' => sub {
    my $id = sent('a', 'call', ts => clock_ts());
    is disposition($id), 0, 'an event of now is on time';
    my $usage = asked('a', '/v1/usage?metric=calls&customer=&period='
        . POSIX::strftime('%Y-%m', gmtime(Time::HiRes::time() + 600)));
    is $stack->query("SELECT '$usage->{watermark}'::timestamptz"
        . ' <= clock_timestamp()'), 't', 'no watermark of the future is shown';
    is_clean('a recomputation agrees');
};

# As RFC 3339, by the database.
sub clock_ts {
    my ($add) = @_;
    return scalar $stack->query(q{SELECT to_char(clock_timestamp() AT TIME ZONE}
        . q{ 'UTC' + interval '} . ($add // 0)
        . q{ s', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')});
}

# Of a customer without a past.
for my $node (qw(a b)) {
    # up makes the whole transaction a careful one
    for my $types ('call', 'up call') {
        subtest "a new watermark: $node, $types" => sub {
            my $customer = "$node-" . length $types;
            my %arg = (customer => $customer);
            my $from = clock();
            sent($node, $types, %arg, ts => clock_ts(600));
            is_between($from, $stack->query('SELECT watermark_ts FROM'
                . " meter.meter_counter WHERE customer = '$customer'"
                . ' AND metric = $$calls$$'), 'an event dated ahead stops at now');
            my $now = clock_ts();
            is disposition(sent($node, $types, %arg, ts => $now)), 0,
                'an event of now is on time';
            my $late = sent($node, $types, %arg, ts => clock_ts(-200));
            is disposition($late), 1, 'an old one is not'
                or diag explain [$stack->query('SELECT metric, period_start,'
                    . ' watermark_ts FROM meter.meter_counter')];
            my ($one) = @{ asked($node, '/v1/adjustments?metric=calls'
                . "&customer=$customer")->{adjustments} };
            is $one->{event_id}, $late, 'it is an adjustment';
            is_between($from, $one->{recorded_at}, 'of now');
            is $stack->query('SELECT e.recorded_at = a.stamped_at FROM'
                . ' meter.event AS e JOIN meter.meter_adjustment AS a ON a.id ='
                . " e.event_id WHERE a.id = '$late'"), 't',
                'which knows its place in the order';
        };
    }
}

subtest 'clamped rows under two nodes' => sub {
    srand 87;
    for my $i (1 .. 60) {
        my $type = (qw(opened closed up down call))[rand 5];
        $recount->send($i % 2 ? 'a' : 'b', 'acme', [map {
            { event_id => 'e' . ++$count, type => $type,
                ts => Time::HiRes::time(),
                attributes => { route => '/' . int rand 2, size => $i,
                    device => 'd' . int rand 3 } }
        } 1 .. 1 + rand 3]);
    }
    is_clean('a recomputation agrees');
    is $stack->query(<<"SQL"), 't', 'a microsecond for each transaction at most';
SELECT max(recorded_at) <= '$most'::timestamptz
    + (SELECT sum(batch) FROM meter.writer_seq) * interval '1 microsecond'
FROM meter.event
SQL
    is $stack->query(<<"SQL"), 0, 'no event of this time is ahead by the clock';
SELECT count(*) FROM meter.event WHERE clock_at IS NOT NULL
    AND clock_at NOT BETWEEN '$set_right' AND clock_timestamp()
SQL
    for my $name (qw(a b)) {
        my $far = $recount->node($name)->metric(
            'edgemeter_recorded_ahead_seconds');
        ok $far > YEAR / 2, "$name says how far: $far s";
        is scalar(() = $recount->node($name)->log
            =~ /"warn".*the order is ahead of the database's clock/g), 1,
            "$name has told it once";
    }
    $stack->query('DELETE FROM meter.meter_counter');
    is +($recount->run('rebuild', 'meters'))[0], 0, 'meters are made again';
    is_clean('and are what they were');
};

# Both have rows that no flush has had, and end at once. One comes back; the
# heart of the other has stopped.
subtest 'nodes are killed' => sub {
    for my $name (qw(a b)) {
        sent($name, 'call') for 1 .. 3;
        $recount->node($name)->process->signal('KILL');
    }
    for my $name (qw(a b)) {
        wait_until { !$recount->node($name)->process->alive } 20, "$name ends";
    }
    cmp_ok unflushed(), '>', 6, 'rows are not in the series';
    $recount->{node}{a} = Edgemeter::Node->start($stack, name => 'a',
        env => { METERD_TEST_FLUSH_MS => 300, METERD_TEST_ORPHAN_MS => 4000 });
    $recount->node('a')->wait_ready(30);
    ok poll_until(sub { unflushed() == 0 }, 60), 'all is flushed';
    is $recount->node('a')->metric('edgemeter_series_orphans_total'), 1,
        'also for the node that is gone';
    is $stack->query('SELECT sum(count) FROM meter.series_5s'),
        $stack->query(q{SELECT count(*) FROM meter.event WHERE type = 'call'}),
        'every event is there once';
    is_between($set_right, $stack->query(
        'SELECT max(flushed_at) FROM meter.writer_flush'), 'flushed by the clock');
    is_clean('a recomputation agrees');
};

# It ended while the clock was ahead.
subtest 'a heart that stopped in the future' => sub {
    $recount->{node}{b} = Edgemeter::Node->start($stack, name => 'b',
        env => \%HELD);
    $recount->node('b')->wait_ready(30);
    jump(YEAR);
    sent('b', 'call') for 1 .. 3;
    $recount->node('b')->process->signal('KILL');
    wait_until { !$recount->node('b')->process->alive } 20, 'b ends';
    is $stack->query("SELECT count(*) FROM meter.writer_seq AS s JOIN"
        . ' meter.writer_flush AS f USING (writer) WHERE s.last > f.upto'
        . " AND heartbeat_at > '$set_right'::timestamptz"
        . " + interval '300 days'"), 1, 'with a tail';
    jump(0);
    ok poll_until(sub { unflushed() == 0 }, 60), 'the other one flushes it';
    ok poll_until(sub {
        $stack->query('SELECT count(*) FROM meter.writer_flush'
            . ' WHERE flushed_at > clock_timestamp()') == 0
    }, 30), 'and no flush is of the future';
    is $recount->node('a')->metric('edgemeter_series_orphans_total'), 2,
        'as that of one that is gone';
    is $stack->query('SELECT sum(count) FROM meter.series_5s'),
        $stack->query(q{SELECT count(*) FROM meter.event WHERE type = 'call'}),
        'every event is there once';
    is_clean('a recomputation agrees');
};

subtest 'the clock passes the order' => sub {
    sent('a', 'opened');
    jump(YEAR + 3600);
    my $id = sent('a', 'opened');
    is +(ledger($id, $set_right))[1], 'none', 'they are one again';
    is $recount->node('a')->metric('edgemeter_recorded_ahead_seconds'), 0,
        'nothing is ahead';
    like $recount->node('a')->log,
        qr/"info".*the order is the database's clock again/, 'which is told';
    is_clean('a recomputation agrees');
};

done_testing;
