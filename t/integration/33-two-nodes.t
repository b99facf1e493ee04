#!/usr/bin/perl

# 33-two-nodes.t - two meterd on one database: the same ids at the same
# moment on both, and few counter rows that both want all the time.
#
# The lists hold ids and counters in another order on each node. Locks are
# taken in the order of their keys, so no transaction waits in a circle. A
# second run takes them as they come (METERD_TEST_UNSORTED): deadlocks must
# then appear, else this test could not fail, and still nothing is lost.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use File::Temp ();
use List::Util qw(shuffle);
use POSIX ();
use Test::More;
use Edgemeter::Node;
use Edgemeter::Stack;
use Edgemeter::Verify qw(verify_load);
use Edgemeter::Wait qw(now wait_until);

my $seconds = $ENV{TORTURE_SECONDS} || 3;
my $clients = 4;                            # on each node
my $hot     = 16;

my $stack = Edgemeter::Stack->for_test(
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
CREATE TRIGGER dawdle BEFORE INSERT ON meter.event_registry
    FOR EACH ROW WHEN (random() < 0.4) EXECUTE FUNCTION meter.dawdle();
SQL

# Half of the clients send the same lists on both nodes, each shuffled for
# itself, the other half lists of their own on the same counters. Every list
# is sent until it is answered.
sub client {
    my ($node, $client, $random, $stop, $path) = @_;
    srand $random;
    open my $log, '>', $path or die $!;
    for (my $list = 0; !-e $stop; $list++) {
        my $size = $list % 2 ? 60 : 1 + $list % 30;
        my @events = shuffle map {
            {   event_id => "load-$client-$list-$_",
                type => 'api.request',
                ts => '2026-09-01T12:00:00Z',
                attributes => { route => '/hot' . ($_ % $hot) }
            }
        } 1 .. $size;
        my $answer;
        while (1) {
            $answer = $node->post('acme', \@events);
            last if $answer->{status} == 200 || -e $stop;
            print {$log} "$_->{event_id} again\n" for @events;
        }
        if ($answer->{status} != 200) {
            print {$log} "$_->{event_id} unknown\n" for @events;
            last;
        }
        print {$log} "$_->{event_id} $_->{verdict}\n"
            for @{ $answer->{json}{results} };
    }
    close $log;
    return;
}

sub run_nodes {
    my ($name, $enough, %env) = @_;
    my $directory = File::Temp->newdir('em-nodes-XXXXXX', TMPDIR => 1);
    my @nodes = map {
        Edgemeter::Node->start($stack, name => "$name$_", env => {%env})
    } 1 .. 2;
    $_->wait_ready for @nodes;
    my $stop = "$directory/stop";
    my @pids;
    for my $n (0 .. 1) {
        for my $client (1 .. $clients) {
            my $pid = fork // die "fork: $!";
            if ($pid == 0) {
                my $ok = eval {
                    client($nodes[$n], $client % 2 ? "$name$client"
                        : "$name$client-$n", 100 * $n + $client,
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
    my %told;
    for my $path (glob "$directory/told-*") {
        open my $in, '<', $path or die $!;
        while (<$in>) {
            my ($id, $verdict) = split;
            $told{$id}{$verdict}++;
        }
    }
    my %sum;
    for my $metric (qw(counter_update_conflict_retries
        edgemeter_batches_careful_total edgemeter_events_accepted_total)) {
        $sum{$metric} += $_->metric($metric) for @nodes;
    }
    for my $node (@nodes) {
        ok $node->process->stop('TERM', 15), 'a node ends';
        is $node->process->status, 0, 'well';
        unlike $node->log, qr/"level":"error"/, 'without an error';
    }
    return (\%told, \%sum);
}

sub deadlocks {
    my $count = () = $stack->log('postgres') =~ /deadlock detected/g;
    return $count;
}

# An id came to both nodes at the same moment.
sub was_careful {
    return scalar grep { $_->metric('edgemeter_batches_careful_total') } @_;
}

my %told;
subtest 'in the order of keys' => sub {
    my ($told, $sum) = run_nodes('sorted', \&was_careful);
    %told = (%told, %$told);
    my $both = grep { $_->{accepted} && $_->{duplicate} } values %$told;
    cmp_ok $both, '>', 100, "$both ids came to both nodes";
    cmp_ok $sum->{edgemeter_batches_careful_total}, '>', 0,
        "the careful path ran $sum->{edgemeter_batches_careful_total} times";
    is deadlocks(), 0, 'no deadlock';
    verify_load($stack, \%told);
};

subtest 'as they come' => sub {
    my ($told, $sum) = run_nodes('unsorted', sub { deadlocks() > 0 },
        METERD_TEST_UNSORTED => 1);
    %told = (%told, %$told);
    cmp_ok deadlocks(), '>', 0, deadlocks() . ' deadlocks';
    cmp_ok $sum->{counter_update_conflict_retries}, '>', 0,
        'the transactions ran again';
    verify_load($stack, \%told);
};

done_testing;
