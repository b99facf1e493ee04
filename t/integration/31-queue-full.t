#!/usr/bin/perl

# 31-queue-full.t - back-pressure: a full queue answers 429, a database that
# stands still 503; nothing is lost or kept of what was refused, connections
# stay up and memory stays bounded.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::Process;
use Edgemeter::SocketClient;
use Edgemeter::Stack;
use Edgemeter::Verify qw(verify_books);
use Edgemeter::Wait qw(now wait_until poll_until);

use constant QUEUE => 400;
use constant BATCH => 100;

my $stack = Edgemeter::Stack->for_test(
    meterd => Edgemeter::Stack::plain_meterd(),
    yaml => { limits => sprintf '{ queueEvents: %d, batchEvents: %d,'
            . ' statementTimeout: 5s }',
        QUEUE, BATCH })->start;
my $http  = $stack->http('acme');
my $token = $stack->token('acme');
my %accepted;

sub metric {
    my ($name) = @_;
    return $http->get('/metrics')->{body} =~ /^$name (\d+)$/m ? $1 : undef;
}

sub events {
    my ($name, $count) = @_;
    return Edgemeter::Http::encode_json([map {
        {   event_id => "$name-$_", type => 'api.request',
            ts => '2026-09-01T12:00:00Z', attributes => { route => '/q' }
        }
    } 1 .. $count]);
}

sub post_bytes {
    my ($name, $count) = @_;
    return Edgemeter::SocketClient::encode(
        method => 'POST', path => '/v1/events', type => 'application/json',
        token => $token, body => events($name, $count));
}

sub send_post {
    my ($name, $count) = @_;
    my $client = Edgemeter::SocketClient->new($stack->socket) or die $!;
    $client->send(post_bytes($name, $count));
    return $client;
}

sub stored {
    my ($name) = @_;
    return $stack->query("SELECT count(*), count(DISTINCT event_id)"
        . " FROM meter.event WHERE event_id LIKE '$name-%'");
}

sub rss {
    open my $in, '<', '/proc/' . $stack->part_pid('meterd') . '/status' or die;
    return (map { /^VmRSS:\s+(\d+)/ ? $1 : () } <$in>)[0];
}

# A transaction that holds the registry, so that ingest stands still.
sub lock_registry {
    my $locker = Edgemeter::Process->spawn(
        name => 'locker', log => $stack->place->path('tmp') . '/locker.log',
        user => $stack->account,
        command => [$stack->cluster->{bin} . '/psql', '-q', '--dbname',
            $stack->database_url, '-c',
            'BEGIN; LOCK TABLE meter.event_registry IN ACCESS EXCLUSIVE MODE;'
                . ' SELECT pg_sleep(60)'],
    );
    wait_until {
        $stack->query("SELECT count(*) FROM pg_locks WHERE granted AND"
            . " mode = 'AccessExclusiveLock' AND relation ="
            . " 'meter.event_registry'::regclass")
    } 10, 'the lock is held';
    return $locker;
}

sub unlock_registry {
    my ($locker) = @_;
    $stack->query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        . " WHERE query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()");
    wait_until { !$locker->alive } 10, 'the lock is gone';
    return;
}

subtest 'a full queue' => sub {
    my $locker = lock_registry();
    my %client = (first => send_post('first', BATCH));
    wait_until {
        $stack->query("SELECT count(*) FROM pg_stat_activity WHERE"
            . " wait_event_type = 'Lock' AND usename = 'meterd'")
    } 10, 'a transaction waits';
    for my $i (1 .. QUEUE / BATCH) {
        $client{"fill$i"} = send_post("fill$i", BATCH);
    }
    wait_until { metric('edgemeter_queue_events') == QUEUE } 10,
        'the queue is full';

    my $full = metric('edgemeter_queue_full_total');
    my $got = $http->post('/v1/events', events('over', 1));
    is $got->{status}, 429, 'one event more: 429';
    is $got->{headers}{'retry-after'}, 1, 'with Retry-After';
    ok $got->{json}{error}, 'and a reason';
    $got = $http->post('/v1/events', events('over', BATCH));
    is $got->{status}, 429, 'again';
    is metric('edgemeter_queue_full_total'), $full + 2, 'counted';
    is $http->post('/v1/events', '[]')->{status}, 429,
        'a full queue reads no bodies';
    is metric('edgemeter_queue_events'), QUEUE, 'the queue did not grow';

    unlock_registry($locker);
    for my $name (sort keys %client) {
        my $answer = $client{$name}->receive;
        is $answer->{status}, 200, "$name is answered";
        is $answer->{json}{accepted}, BATCH, 'all accepted';
        $accepted{$name} = BATCH;
    }
    is stored('over'), "0\t0", 'nothing of a refused request was kept';
    my $answer;
    ok poll_until(sub {
        ($answer = $http->post('/v1/events', events('over', BATCH)))->{status}
            == 200
    }, 10), 'later it is taken';
    is $answer->{json}{accepted}, BATCH, 'as new';
    is stored($_), BATCH . "\t" . BATCH, "$_: once each"
        for 'over', sort keys %client;
};

# Everything below the postmaster, which stops first so that it starts none.
sub postgres_tree {
    my $master = $stack->part_pid('postgres');
    return ($master, grep {
        ((Edgemeter::Process::stat_of($_))[1] // 0) == $master
    } Edgemeter::Process::each_pid());
}

my @stopped;
END { kill 'CONT', @stopped if @stopped }

subtest 'a database that stands still' => sub {
    is $http->post('/v1/events', events('warm', 1))->{status}, 200, 'warm';
    my $connections = metric('edgemeter_connections');
    my $rss         = rss();
    for (1 .. 2) {
        @stopped = postgres_tree();
        kill 'STOP', @stopped;
    }
    my $begun  = now();
    my $reader = Edgemeter::SocketClient->new($stack->socket) or die $!;
    $reader->send(Edgemeter::SocketClient::encode(
        path => '/v1/events/warm-1', token => $token));
    my %client = map { $_ => send_post($_, 50) } map {"still$_"} 1 .. 8;
    wait_until { metric('edgemeter_requests_in_flight') >= 10 } 10,
        'eight requests and a read wait';
    my $slowest = 0;
    while (now() < $begun + 2) {
        my $asked = now();
        is $http->get('/healthz')->{status}, 200, 'alive'
            if !$slowest;
        $http->get('/metrics');
        my $took = now() - $asked;
        $slowest = $took if $took > $slowest;
    }
    cmp_ok $slowest, '<', 1, 'what needs no database answers at once';
    for my $name (sort keys %client) {
        my $answer = $client{$name}->receive;
        is $answer->{status}, 503, "$name: 503";
        is $answer->{retry}, 1, 'with Retry-After';
    }
    is(($reader->receive // { status => 0 })->{status}, 503, 'a read: 503');
    my $took = now() - $begun;
    cmp_ok $took, '<', 30, sprintf 'not later than a client waits (%d s)', $took;
    is metric('edgemeter_answers_late_total'), 8, 'counted';
    unlike $stack->log('meterd'), qr/connection lost","connection":"lane-0"/,
        'the lane was not given up';
    my @alive = grep {
        $client{$_}->send(Edgemeter::SocketClient::encode(path => '/healthz'))
            && $client{$_}->receive->{status} == 200
    } keys %client;
    is scalar @alive, 8, 'the connections of those clients live on';
    cmp_ok rss(), '<', $rss + 16 * 1024,
        'memory did not grow';

    kill 'CONT', @stopped;
    for my $name (sort keys %client) {
        my $answer;
        ok poll_until(sub {
            ($answer = $http->post('/v1/events', events($name, 50)))->{status}
                == 200
        }, 20), "$name: sent again and answered";
        is $answer->{json}{accepted} + $answer->{json}{duplicates}, 50,
            'nothing refused';
        is stored($name), "50\t50", 'each is there once';
    }
    is metric('edgemeter_connections') >= $connections, 1, 'nobody was cut off';
};

verify_books($stack);
$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
done_testing;
