#!/usr/bin/perl

# 80-hot-projections.t - three meterd on one database, all of them on the
# same few rows: counters with and without a floor, transitions, the usage
# row, meters; ups and downs, on time and too late, each list in another
# order.
#
# Rows are locked in one order, so no transaction waits in a circle; clamped
# rows are changed in an order that the ledger tells, so a recomputation finds
# every value again. A second run locks as events come
# (METERD_TEST_UNSORTED): deadlocks must then appear, else this test could
# not fail, and still no figure is wrong.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use File::Temp ();
use List::Util qw(shuffle sum0);
use POSIX ();
use Test::More;
use Edgemeter::Node;
use Edgemeter::Stack;
use Edgemeter::Verify qw(verify_projections);
use Edgemeter::Wait qw(now wait_until);

my $seconds = $ENV{TORTURE_SECONDS} || 3;
my $nodes   = 3;
my $clients = 3;     # on each node
my $hot     = 16;

my $rules = <<'YAML';
events:
  - { type: api.request }
  - { type: memory.created }
  - { type: memory.deleted }
  - { type: account.connected }
  - { type: account.disconnected }
  - { type: file.opened }
  - { type: file.closed }
counters:
  - counterName: files
    mode: persistent
    dimensions: [route]
    floorAtZero: true
    rules: [ { on: file.opened, op: increment }, { on: file.closed, op: decrement } ]
    idempotency: { requireEventId: true, scope: globalEventId }
  - counterName: requests
    mode: persistent
    dimensions: [route]
    floorAtZero: false
    rules: [ { on: api.request, op: increment } ]
    idempotency: { requireEventId: true, scope: globalEventId }
  - counterName: memories
    mode: persistent
    dimensions: [route]
    floorAtZero: true
    rules: [ { on: memory.created, op: increment }, { on: memory.deleted, op: decrement } ]
    idempotency: { requireEventId: true, scope: globalEventId }
  - counterName: memories_raw
    mode: persistent
    audit: true
    dimensions: [route]
    floorAtZero: false
    rules: [ { on: memory.created, op: increment }, { on: memory.deleted, op: decrement } ]
    idempotency: { requireEventId: true, scope: globalEventId }
  - counterName: connected
    mode: persistent
    dimensions: [route]
    floorAtZero: false
    transitions: { entity: account }
    rules: [ { on: account.connected, op: increment }, { on: account.disconnected, op: decrement } ]
    idempotency: { requireEventId: true, scope: globalEventId }
usage:
  entryCount: { increment: [memory.created], decrement: [memory.deleted] }
  apiCallCount: { increment: [api.request] }
meters:
  - { metric: calls, on: [api.request], value: quantity, aggregation: sum, period: hour, lateness: 1h, groupBy: [route] }
  - { metric: routes, on: [api.request], value: route, aggregation: unique, period: day, lateness: 1h }
  - { metric: last_seen, on: [api.request], value: quantity, aggregation: last, period: month, lateness: 48h }
YAML

my $stack = Edgemeter::Stack->for_test(
    rules    => \$rules,
    settings => { deadlock_timeout => '20ms', log_lock_waits => 'on' });
$stack->prepare;
$stack->start_database;
$stack->migrate;
$stack->make_tokens;

# Rows are held a little longer than they would be, so that a wrong order
# shows soon.
$stack->query(<<'SQL');
CREATE FUNCTION meter.dawdle() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_catalog.pg_sleep(0.001); RETURN NEW; END';
CREATE TRIGGER dawdle BEFORE UPDATE ON meter.counter
    FOR EACH ROW EXECUTE FUNCTION meter.dawdle();
CREATE TRIGGER dawdle BEFORE UPDATE ON meter.meter_counter
    FOR EACH ROW EXECUTE FUNCTION meter.dawdle();
SQL

my @types = qw(api.request api.request memory.created memory.deleted
    account.connected account.disconnected);

# Events on few rows; one in ten is two hours or days old. Half of the lists
# only go up and down on two clamped rows that no other list touches: short
# ones overtake long ones there.
sub make_list {
    my ($name, $size, $is_clamped) = @_;
    my $day = 86400;
    my @on  = $is_clamped ? qw(file.opened file.closed) : @types;
    return shuffle map {
        my $age = rand() < 0.9 ? rand 60 : (7200, 3 * $day)[rand 2];
        {   event_id => "$name-$_",
            type     => $on[rand @on],
            ts       => sprintf('%.3f', time - $age) + 0,
            quantity => 1 + int rand 3,
            tenant   => 'acme',
            customer => 'c' . int rand 3,
            attributes =>
                { route => '/hot' . int(rand($is_clamped ? 2 : $hot)),
                account => int rand 6 },
        }
    } 1 .. $size;
}

# Every list is sent until it is answered.
sub client {
    my ($node, $name, $random, $stop, $path) = @_;
    srand $random;
    open my $log, '>', $path or die $!;
    for (my $list = 0; !-e $stop; $list++) {
        my @events = make_list("$name-$list", $list % 3 ? 30 : 1, $list % 2);
        my $answer = $node->post('acme', \@events);
        while ($answer->{status} != 200 && !-e $stop) {
            $answer = $node->post('acme', \@events);
        }
        last if $answer->{status} != 200;
        my %quantity = map { $_->{event_id} => $_ } @events;
        for my $result (@{ $answer->{json}{results} }) {
            my $event = $quantity{ $result->{event_id} };
            print {$log} join("\t", $result->{verdict}, $event->{type},
                $event->{quantity}, $result->{error} // ''), "\n";
        }
    }
    close $log;
    return;
}

sub run_nodes {
    my ($name, $enough, %env) = @_;
    my $directory = File::Temp->newdir('em-hot-XXXXXX', TMPDIR => 1);
    my @nodes = map {
        Edgemeter::Node->start($stack, name => "$name$_", env => {%env})
    } 1 .. $nodes;
    $_->wait_ready for @nodes;
    my $stop = "$directory/stop";
    my @pids;
    for my $n (0 .. $#nodes) {
        for my $client (1 .. $clients) {
            my $pid = fork // die "fork: $!";
            if ($pid == 0) {
                my $ok = eval {
                    client($nodes[$n], "$name-$n-$client", 100 * $n + $client,
                        $stop, "$directory/told-$n-$client");
                    1;
                };
                print STDERR $@ unless $ok;
                POSIX::_exit($ok ? 0 : 1);
            }
            push @pids, $pid;
        }
    }
    my $end = now() + $seconds;
    wait_until { now() > $end && $enough->(@nodes) } $seconds + 60,
        'time is over';
    open my $flag, '>', $stop or die $!;
    close $flag;
    for my $pid (@pids) {
        waitpid $pid, 0;
        is $?, 0, 'a client ended well';
    }
    my @told;
    for my $path (glob "$directory/told-*") {
        open my $in, '<', $path or die $!;
        chomp(my @lines = <$in>);
        push @told, map { [split /\t/] } @lines;
    }
    my %sum;
    for my $metric (qw(counter_update_conflict_retries
        edgemeter_batches_careful_total)) {
        $sum{$metric} += $_->metric($metric) for @nodes;
    }
    for my $node (@nodes) {
        ok $node->process->stop('TERM', 15), 'a node ends';
        is $node->process->status, 0, 'well';
        unlike $node->log, qr/"level":"error"/, 'without an error';
    }
    return (\@told, \%sum);
}

sub deadlocks {
    my $count = () = $stack->log('postgres') =~ /deadlock detected/g;
    return $count;
}

sub number {
    my ($query) = @_;
    return ($stack->query($query))[0] // 0;
}

# What clients were told against the rows; nothing here depends on order.
sub verify_told {
    my (@told) = @_;
    my %events;
    my %quantity;
    for my $line (@told) {
        my ($verdict, $type, $quantity) = @$line;
        next if $verdict eq 'rejected';
        $events{$type}++;
        $quantity{$type} += $quantity;
    }
    is scalar(grep { $_->[0] eq 'rejected' } @told), 0, 'nothing was rejected';
    is number(q{SELECT sum(value) FROM meter.counter
        WHERE counter_name = 'requests'}), $events{'api.request'},
        'the counter holds every request';
    is number(q{SELECT sum(value) FROM meter.counter
        WHERE counter_name = 'memories_raw'}),
        $events{'memory.created'} - $events{'memory.deleted'},
        'the raw counter holds ups and downs';
    is number(q{SELECT api_call_count FROM meter.tenant_usage_metrics
        WHERE tenant_id = 'acme'}), $events{'api.request'}, 'so does the usage row';
    is number(q{SELECT trim_scale(sum(sum + coalesce(late_sum, 0)))
        FROM meter.meter_counter WHERE metric = 'calls'}),
        $quantity{'api.request'}, 'the meter holds every unit, late ones too';
    is number(q{SELECT count(*) FROM meter.counter
        WHERE counter_name IN ('files', 'memories', 'connected') AND value < 0}), 0,
        'nothing is below zero';
    is number(q{SELECT coalesce(sum(value), 0) FROM meter.counter
        WHERE counter_name = 'connected'}),
        number(q{SELECT count(*) FROM meter.entity_state
            WHERE dimension_key IS NOT NULL}),
        'as many are connected as have a state that says so';
    verify_projections($stack);
    return;
}

my @told;
subtest 'in the order of keys' => sub {
    my ($told, $sum) = run_nodes('sorted', sub {1});
    push @told, @$told;
    cmp_ok scalar @told, '>', 200, scalar(@told) . ' events were answered';
    cmp_ok $sum->{edgemeter_batches_careful_total}, '>', 0,
        'the careful path was taken';
    is deadlocks(), 0, 'no deadlock';
    verify_told(@told);
};

subtest 'in the order of arrival' => sub {
    my ($told, $sum) = run_nodes('unsorted', sub { deadlocks() > 0 },
        METERD_TEST_UNSORTED => 1);
    push @told, @$told;
    cmp_ok deadlocks(), '>', 0, 'deadlocks, as they must';
    cmp_ok $sum->{counter_update_conflict_retries}, '>', 0,
        'each is counted as a retry';
    verify_told(@told);
};

$stack->stop;
done_testing;
