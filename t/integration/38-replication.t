#!/usr/bin/perl

# 38-replication.t - a commit that no standby has is not a commit.
#
# With synchronous_standby_names set, a cancelled wait makes the server say
# "COMMIT" with a warning. Such an event may not be answered until a later
# commit proves that the standby caught up.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::SocketClient;
use Edgemeter::Stack;
use Edgemeter::Verify qw(verify_books);
use Edgemeter::Wait qw(now wait_until poll_until);

my $stack = Edgemeter::Stack->for_test->start;
my $http  = $stack->http('acme');

sub metric {
    my ($name) = @_;
    return $http->get('/metrics')->{body} =~ /^$name (\d+)$/m ? $1 : undef;
}

# Asking for a change must not wait for the standby that is missing.
sub standby {
    my ($name) = @_;
    $stack->query("SET synchronous_commit = local;\n"
        . "ALTER SYSTEM SET synchronous_standby_names = '$name';\n"
        . 'SELECT pg_reload_conf()');
    wait_until {
        $stack->query('SHOW synchronous_standby_names') eq $name
    } 10, 'the server knows its standbys';
    return;
}

sub events {
    my ($name, $count) = @_;
    return Edgemeter::Http::encode_json([map {
        {   event_id => "$name-$_", type => 'api.request',
            ts => '2026-09-01T12:00:00Z', attributes => { route => "/$name" }
        }
    } 1 .. $count]);
}

sub send_events {
    my ($name, $count) = @_;
    my $client = Edgemeter::SocketClient->new($stack->socket) or die $!;
    $client->send(Edgemeter::SocketClient::encode(
        method => 'POST', path => '/v1/events', type => 'application/json',
        token => $stack->token('acme'), body => events($name, $count)));
    return $client;
}

# The backend of the lane that waits for a standby, other than these.
sub waiting {
    my (@not) = @_;
    my $others = join ',', 0, @not;
    my $pid = poll_until {
        $stack->query("SELECT pid FROM pg_stat_activity WHERE"
            . " application_name = 'meterd lane-0' AND wait_event = 'SyncRep'"
            . " AND pid NOT IN ($others)")
    } 20;
    ok $pid, 'the lane waits for a standby';
    return $pid;
}

sub silent {
    my ($client, $what) = @_;
    ok !$client->receive(0.3), "no answer $what";
    return;
}

# kind of end, events: by INSERT and by COPY
for my $case (['cancel', 1], ['cancel', 100], ['terminate', 1]) {
    my ($way, $count) = @$case;
    my $name = "$way$count";
    subtest "$way with $count" => sub {
        is $http->post('/v1/events', events("warm-$name", 1))->{status}, 200,
            'works without a standby';
        my $unknown = metric('edgemeter_commits_unknown_total');
        standby('nowhere');
        my $client = send_events($name, $count);
        my $first  = waiting();
        is $stack->query("SELECT count(*) FROM meter.event"
            . " WHERE event_id LIKE '$name-%'"), 0,
            'nobody can see the rows yet';
        silent($client, 'while it waits');

        $stack->query("SELECT pg_${way}_backend($first)");
        ok poll_until(
            sub { metric('edgemeter_commits_unknown_total') > $unknown }, 10),
            'the COMMIT counts as unknown';
        wait_until {
            $stack->query("SELECT count(*) FROM meter.event"
                . " WHERE event_id LIKE '$name-%'") == $count
        } 10, 'the rows are there, on this server';
        silent($client, 'though the server said COMMIT');
        isnt $http->get('/readyz')->{status}, 200, 'not ready';

        # The commit that opens the lane again may be cut short as well.
        my $second = waiting($first);
        $stack->query("SELECT pg_${way}_backend($second)");
        my $third = waiting($first, $second);
        silent($client, 'after the second one');

        standby('');
        my $answer = $client->receive;
        is $answer->{status}, 200, 'when a commit went through: 200';
        is $answer->{json}{accepted}, $count, 'accepted';
        is $http->post('/v1/events', events($name, $count))
            ->{json}{duplicates}, $count, 'known from now on';
        is $http->get('/v1/counters/api_requests', route => "/$name")
            ->{json}{value}, $count, 'counted once';
    };
}

verify_books($stack);
$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
done_testing;
