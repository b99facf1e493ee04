#!/usr/bin/perl

# 85-close-crash.t - meterd is killed between the two halves of a close while
# two nodes take events of that period. The close is then repeated at either
# node: it completes, and from frozen_at on no event is in the figure any
# more, to the event.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use POSIX ();
use Test::More;
use Edgemeter::Node;
use Edgemeter::Recount;
use Edgemeter::Wait qw(wait_until);

my $clients = 4;
my @months  = map { sprintf '2024-%02d', $_ } 1 .. 3;

$Edgemeter::Recount::RULES = <<'YAML';
events:
  - { type: call }
meters:
  - { metric: calls, on: [call], aggregation: sum, period: month, lateness: 1000h }
YAML
my $recount = Edgemeter::Recount->start(nodes => ['b']);
my $stack   = $recount->stack;
my $scratch = $stack->place->path('tmp');

# Transactions last a while longer, so that some are on their way.
$stack->query(<<'SQL');
CREATE FUNCTION meter.dawdle() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_catalog.pg_sleep(0.01); RETURN NEW; END';
CREATE TRIGGER dawdle BEFORE INSERT OR UPDATE ON meter.meter_counter
    FOR EACH ROW EXECUTE FUNCTION meter.dawdle();
SQL

sub start_a {
    my (%env) = @_;
    my $node = Edgemeter::Node->start($stack, name => 'a', env => \%env);
    $node->wait_ready;
    return $node;
}

sub close_at {
    my ($node, $month) = @_;
    return $node->ask(
        method => 'POST', path => '/v1/usage/close',
        type => 'application/json', token => $stack->token('acme'),
        body => qq({"metric":"calls","period":"$month"}));
}

# Each list is sent until it is answered, to whoever is there.
sub client {
    my ($number, $a) = @_;
    for (my $list = 0; !-e "$scratch/stop"; $list++) {
        my @events = map {
            {   event_id => "c$number-$list-$_", type => 'call',
                quantity => 1, ts => "$months[$_ % @months]-15T00:00:00Z" }
        } 0 .. 7;
        my $node = ($a, $recount->node('b'))[($number + $list) % 2];
        my $got;
        wait_until {
            $got = $node->post('acme', \@events);
            $got->{status} == 200 || ($node = $recount->node('b'), 0)
        } 30, 'an answer';
        die "rejected: $got->{body}\n"
            if grep { $_->{verdict} !~ /accepted|duplicate/ }
                @{ $got->{json}{results} };
    }
    return;
}

my @crash = (METERD_CRASH_POINT => 'after_close_begin');
my $a     = start_a(@crash);
my @pids;
for my $number (1 .. $clients) {
    my $pid = fork // die "fork: $!\n";
    if ($pid == 0) {
        my $good = eval { client($number, $a); 1 };
        print STDERR "# $@" unless $good;
        POSIX::_exit($good ? 0 : 1);
    }
    push @pids, $pid;
}

sub events {
    return $stack->query('SELECT count(*) FROM meter.event');
}

sub more_events {
    my $before = events();
    wait_until { events() > $before + 60 } 30, 'events go on';
    return;
}

sub touch {
    my ($name) = @_;
    open my $file, '>', "$scratch/$name" or die "$name: $!\n";
    close $file;
    return;
}

my %told;
for my $i (0 .. $#months) {
    my $month = $months[$i];
    subtest $month => sub {
        more_events();
        isnt close_at($a, $month)->{status}, 200, 'no answer';
        wait_until { !$a->process->alive } 10, 'meterd is gone';
        is $stack->query('SELECT frozen_at IS NULL FROM meter.meter_close'
                . " WHERE period_start = '$month-01Z'"), 't', 'half closed';
        more_events();
        $a = start_a();
        my $got = close_at($i % 2 ? $a : $recount->node('b'), $month);
        is $got->{status}, 200, 'again' or diag $got->{body};
        $told{$month} = $stack->query('SELECT trim_scale(sum) FROM'
            . " meter.meter_counter WHERE period_start = '$month-01Z'");
        more_events();
        $a->process->stop('TERM', 15);
        $a = start_a(@crash);
    };
}
touch('stop');
for (@pids) {
    waitpid $_, 0;
    is $?, 0, 'every event was accepted';
}

for my $month (@months) {
    subtest "$month: the figure" => sub {
        my ($sum, $total) = split /\t/, $stack->query(
            'SELECT trim_scale(sum), trim_scale(sum + coalesce(late_sum, 0))'
                . " FROM meter.meter_counter WHERE period_start = '$month-01Z'");
        is $sum, $told{$month}, 'stands';
        my ($all, $folded, $after) = split /\t/, $stack->query(<<"SQL");
SELECT count(*), count(*) FILTER (WHERE NOT is_late),
    count(*) FILTER (WHERE NOT is_late AND recorded_at > frozen_at)
FROM (SELECT e.recorded_at, EXISTS (SELECT FROM meter.meter_adjustment AS a
        WHERE a.tenant = e.tenant AND a.id = e.event_id
            AND a.metric = 'calls' AND NOT a.is_manual) AS is_late,
        c.frozen_at
    FROM meter.event AS e JOIN meter.meter_close AS c
        ON c.period_start = '$month-01Z' WHERE e.ts = '$month-15Z') AS e
SQL
        is $sum, $folded, 'is that of the events that are no adjustments';
        is $total, $all, 'with these it is all of them';
        is $after, 0, 'none of them came after frozen_at';
        cmp_ok $all - $folded, '>', 0, 'some were late';
    };
}

# It knew nothing of the close, and waits in the registry, in front of the
# meters.
subtest 'an event on its way' => sub {
    my $ts = '2023-05-06T07:08:09.123456Z';
    $stack->query(<<"SQL");
CREATE FUNCTION meter.hold() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_catalog.pg_advisory_xact_lock(85); RETURN NEW; END';
CREATE TRIGGER hold BEFORE INSERT ON meter.event_registry
    FOR EACH ROW WHEN (NEW.ts = '$ts') EXECUTE FUNCTION meter.hold();
SQL
    my $waits = sub {
        return $stack->query('SELECT count(*) FROM pg_stat_activity WHERE'
            . " wait_event_type = 'Lock' AND query LIKE '%$_[0]%'");
    };
    my $child = sub {
        my ($work) = @_;
        my $pid = fork // die "fork: $!\n";
        POSIX::_exit($work->() ? 0 : 1) if $pid == 0;
        return $pid;
    };
    my $holder = $child->(sub {
        $stack->query('SELECT pg_advisory_lock(85); DO $$ BEGIN WHILE NOT'
            . " EXISTS (SELECT FROM pg_stat_file('$scratch/go', true) AS f"
            . ' WHERE f.size IS NOT NULL) LOOP PERFORM pg_sleep(0.01);'
            . ' END LOOP; END $$');
        1;
    });
    wait_until {
        $stack->query("SELECT count(*) FROM pg_locks WHERE locktype ="
            . " 'advisory' AND objid = 85 AND granted")
    } 10, 'the lock is held';
    my $event = $child->(sub {
        $recount->node('b')->post('acme', [{ event_id => 'held',
            type => 'call', quantity => 5, ts => $ts }])->{status} == 200;
    });
    wait_until { $waits->('event_registry') } 10, 'the event waits';
    isnt close_at($a, '2023-05')->{status}, 200, 'no answer';
    wait_until { !$a->process->alive } 10, 'meterd is gone';
    $a = start_a();
    my $close = $child->(sub { close_at($a, '2023-05')->{status} == 200 });
    wait_until { $waits->('WITH passed') } 10, 'the close waits for it';
    is $stack->query('SELECT count(*) FROM meter.meter_close WHERE'
            . " period_start = '2023-05-01Z' AND frozen_at IS NULL"), 1,
        'not closed yet';
    touch('go');
    for ($holder, $event, $close) {
        waitpid $_, 0;
        is $?, 0, 'done';
    }
    is $stack->query('SELECT trim_scale(sum), late_count IS NULL FROM'
            . " meter.meter_counter WHERE period_start = '2023-05-01Z'"),
        "5\tt", 'it is in the figure';
    is $stack->query('SELECT recorded_at < frozen_at FROM meter.event,'
            . " meter.meter_close WHERE event_id = 'held' AND"
            . " period_start = '2023-05-01Z'"), 't', 'as of before';
};

my ($status, $out, $err) = $recount->run('reconcile');
is "$status $out", '0 ', 'a recomputation agrees' or diag $err;

done_testing;
