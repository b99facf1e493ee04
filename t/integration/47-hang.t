#!/usr/bin/perl

# 47-hang.t - PostgreSQL stands still, whole or in part, or meterd does: who
# waits says so, who hangs is given up, and nothing is lost or doubled.

use strict;
use warnings;
use Cwd ();
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::Node;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(now wait_until poll_until);

my $stack = Edgemeter::Stack->for_test;
$stack->prepare;
$stack->start_database;
$stack->migrate;
$stack->make_tokens;

my $node = Edgemeter::Node->start($stack, name => 'hang',
    yaml => { limits => '{ databasePatience: 2s }' })->wait_ready;

sub events {
    my (@names) = @_;
    return [map {
        {   event_id => $_, type => 'api.request',
            ts => '2026-09-01T12:00:00Z', attributes => { route => '/f' }
        }
    } @names];
}

# Sends an event and waits for nothing.
sub send_event {
    my ($name) = @_;
    my $client = $node->client;
    $client->send($node->encode_events('acme', events($name)));
    return $client;
}

sub stored {
    my ($name) = @_;
    return $stack->query("SELECT count(*) FROM meter.event"
        . " WHERE event_id LIKE '$name'");
}

# What stands still goes on when this test ends, however it ends.
my %stopped;
local @SIG{qw(INT TERM)} = (sub { exit 1 }) x 2;

sub halt {
    my (@pids) = @_;
    @stopped{@pids} = ();
    kill 'STOP', @pids;
    return;
}

sub resume {
    my @pids = @_ ? @_ : keys %stopped;
    kill 'CONT', @pids;
    delete @stopped{@pids};
    return;
}

END {
    local $?;
    resume();
}

sub server_pids {
    return Edgemeter::Process::working_in(
        Cwd::realpath($stack->cluster->{data}));
}

# The newest, of a connection that was made again.
sub backend_pid {
    my ($name) = @_;
    return $stack->query("SELECT pid FROM pg_stat_activity"
        . " WHERE application_name = 'meterd $name' ORDER BY backend_start"
        . " DESC LIMIT 1");
}

sub losses { return $node->metric('edgemeter_database_losses_total') }
sub ready  { return $node->ask(path => '/readyz')->{status} == 200 }

sub whole {
    return wait_until(sub {
        $node->metric('edgemeter_database_connections_out') == 0;
    }, 20, 'all connections are up');
}

# The lane's backend alone stands still: others answer, so nobody gives up,
# but nothing is committed, and meterd says so.
subtest 'the backend of a transaction stands still' => sub {
    my $losses = losses();
    halt(backend_pid('lane-0'));
    my $client = send_event('still');
    ok poll_until(sub { !ready() }, 10), 'not ready';
    is $node->metric('edgemeter_database_up'), 0, 'and not up';
    is losses(), $losses, 'no connection was given up';
    resume();
    is $client->receive->{json}{accepted}, 1, 'the event is accepted';
    ok poll_until(\&ready, 5), 'ready again';
};

# The pulse's backend alone stands still: who is at work goes on.
subtest 'the backend of the pulse stands still' => sub {
    my $losses = losses();
    my $lane = backend_pid('lane-0');
    my $sent = 0;
    my $send = sub {
        return $node->post('acme', events('busy-' . $sent++))
            ->{json}{accepted};
    };
    halt(backend_pid('pulse'));
    ok poll_until(sub {
        $send->();
        losses() > $losses;
    }, 10), 'it is given up';
    poll_until(sub { $send->(); 0 }, 1.5);
    is backend_pid('lane-0'), $lane, 'the transactions have their backend';
    is stored('busy-%'), $sent, 'all are stored';
    resume();
    whole();
};

# All of PostgreSQL stands still, with an event under way; then it goes on.
subtest 'PostgreSQL hangs' => sub {
    is $node->post('acme', events('before'))->{json}{accepted}, 1, 'serves';
    my $held = $stack->query("SELECT count(*) FROM pg_stat_activity"
        . " WHERE application_name LIKE 'meterd %'");
    is $held, 15, 'connections';
    my $losses = losses();
    halt(server_pids());
    my $client = send_event('hung');
    ok poll_until(sub { !ready() }, 10), 'not ready';
    ok poll_until(sub { losses() == $losses + $held }, 10),
        'all connections are given up';
    like $node->log, qr/the server has been silent for 2 s/, 'the log says why';
    resume();
    ok poll_until(\&ready, 20), 'ready when it goes on';
    is $client->receive->{json}{accepted}, 1, 'the event is accepted';
    is stored('hung'), 1, 'once';
};

# The question is under way when PostgreSQL stands still, briefly, and its
# answer waits unread while meterd does, for longer than the patience.
subtest 'meterd itself stands still' => sub {
    whole();
    my ($losses, $took);
    do {
        $losses = losses();
        my $began = now();
        halt(server_pids());
        # It asks each second: after that its loop has come by once more.
        wait_until {
            $node->ask(path => '/healthz');
            now() - $began > 1.1;
        } 10, 'the question is under way';
        halt($node->pid);
        my $halted = now();
        $took = $halted - $began;
        resume(server_pids());
        wait_until { now() - $halted > 2.2 } 10, 'the patience is over';
        resume();
        ok poll_until(\&ready, 10), 'ready';
    } while ($took > 1.8); # the machine was too busy: it was PostgreSQL
    is losses(), $losses, 'no connection was given up';
};

done_testing;
