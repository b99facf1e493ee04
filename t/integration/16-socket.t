#!/usr/bin/perl

# 16-socket.t - the link itself: pipelined, sliced, broken and abandoned
# requests on meterd's socket.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use IO::Socket::UNIX;
use Test::More;
use Edgemeter::FakeAggregator;
use Edgemeter::Node;
use Edgemeter::Process;
use Edgemeter::SocketClient;
use Edgemeter::Stack;
use Edgemeter::Wait qw(now wait_until poll_until);

my $stack = Edgemeter::Stack->for_test->start;
my $token = $stack->token('acme');
my $http  = $stack->http;

sub client { return Edgemeter::SocketClient->new($stack->socket) // die $! }

sub metric {
    my ($name) = @_;
    return $http->get('/metrics')->{body} =~ /^$name (\d+)$/m ? $1 : undef;
}

sub event {
    my ($id) = @_;
    return qq({"event_id":"$id","type":"account.connected",)
        . '"ts":"2026-09-01T12:00:00Z",'
        . '"attributes":{"masterAccountId":"s"}}';
}

sub post {
    my ($body) = @_;
    return Edgemeter::SocketClient::encode(
        method => 'POST', path => '/v1/events', token => $token,
        type => 'application/json', body => $body
    );
}

# Half a request, then silence: looked at again at the end.
my @silent = map { client() } 1 .. 3;
$silent[0]->send(substr post(event('half')), 0, 20);
$silent[1]->send(substr post(event('half')), 0, 60);
$silent[2]->send(substr post(event('half')), 0, -1);
my $idle = client();
is $idle->request(path => '/healthz')->{status}, 200,
    'a connection that will be idle';

subtest 'pipelined requests are answered in order' => sub {
    my $client = client();
    $client->send(join '',
        map { post(event("pipe-$_")) } 1 .. 200);
    my @ids = map { $client->receive->{json}{results}[0]{event_id} } 1 .. 200;
    is_deeply \@ids, [map {"pipe-$_"} 1 .. 200], 'two hundred of them';
};

subtest 'one byte at a time' => sub {
    my $client = client();
    $client->send($_) for split //, post(event('slow'));
    is $client->receive->{json}{accepted}, 1, 'accepted';
};

subtest 'a large body in pieces' => sub {
    my $body = '[' . join(',', map { event("large-$_") } 1 .. 4000) . ']';
    my $bytes = post($body);
    my $client = client();
    while (length $bytes) {
        $client->send(substr $bytes, 0, 7001, '');
    }
    is $client->receive->{json}{accepted}, 4000, 'all events';
    is $client->request(path => '/healthz')->{status}, 200,
        'the connection goes on';
};

subtest 'too large a body' => sub {
    my $client = client();
    my $answer = $client->request(method => 'POST', path => '/v1/events',
        body_size => (16 << 20) + 1);
    is $answer->{status}, 413, '413 without reading it';
    ok $client->closed, 'then closed';
};

subtest 'bad frames' => sub {
    my $frame = \&Edgemeter::FakeAggregator::frame;
    my %bad = (
        magic    => $frame->(12, '', magic => 0x12345678),
        version  => $frame->(12, '', version => 9),
        crc      => $frame->(12, '', crc => 1),
        zero     => $frame->(12, '', zero => 1),
        size     => $frame->(12, '', size => 0xffffffff),
        message  => $frame->(12, 'no fields'),
        critical => $frame->(99, '', flags => 1),
        http     => "GET / HTTP/1.1\r\nHost: x\r\n\r\n" . "\n" x 40,
    );
    for my $name (sort keys %bad) {
        my $before = metric('edgemeter_protocol_errors_total');
        my $client = client();
        $client->send($bad{$name});
        ok $client->closed, "$name: closed";
        is metric('edgemeter_protocol_errors_total'), $before + 1, 'counted';
    }
    my $client = client();
    $client->send($frame->(99, 'skip me', flags => 0));
    is $client->request(path => '/healthz')->{status}, 200,
        'an unknown type that may be skipped is';
};

subtest 'a peer that sends nonsense does not fill the log' => sub {
    my $lines = sub {
        return scalar(() = $stack->log('meterd')
                =~ /"(?:bad frame|frame type is not served)"/g);
    };
    my $told = sub {
        my ($sum, $log) = (0, $stack->log('meterd'));
        $sum += $1
            while $log =~ /"lines about peers suppressed","count":(\d+)/g;
        return $sum;
    };
    my $errors = metric('edgemeter_protocol_errors_total');
    my $silent = metric('edgemeter_log_suppressed_total');
    my ($lines_before, $told_before) = ($lines->(), $told->());
    my ($at, $count) = (now(), 400);
    for my $number (1 .. $count) {
        my $client = client();
        $client->send($number % 2 ? 'x' x 64
            : Edgemeter::FakeAggregator::frame(2, ''));
        $client->closed if $number % 2;
    }
    wait_until {
        metric('edgemeter_protocol_errors_total') == $errors + $count
    } 20, 'all are counted';
    my $seconds = now() - $at;
    my $written = $lines->() - $lines_before;
    cmp_ok $written, '<=', 10 * ($seconds + 2),
        "ten lines a second at most ($written in $seconds s)";
    cmp_ok $written, '>', 0, 'but some';
    ok +(poll_until { $lines->() - $lines_before
                + $told->() - $told_before == $count } 10),
        'what was left out is told as a number';
    is metric('edgemeter_log_suppressed_total') - $silent,
        $told->() - $told_before, 'and counted';
};

subtest 'frames of the capture half' => sub {
    my $bad = client();
    $bad->send(Edgemeter::FakeAggregator::frame(1, ''));
    ok $bad->closed, 'a HELLO that says nothing: closed';
    my $late = client();
    $late->request(path => '/healthz');
    $late->send(Edgemeter::FakeAggregator::frame(1, ''));
    is $late->receive->{type}, 6, 'HELLO behind a request: NACK';
    for my $type (2 .. 11, 13) {
        my $client = client();
        $client->send(Edgemeter::FakeAggregator::frame($type, ''));
        my $nack = $client->receive;
        is $nack->{type}, 6, "type $type: NACK";
        is unpack('x6 C', $nack->{payload}), 3, 'VERSION';
        ok $client->closed, 'then closed';
    }
};

subtest 'a client that goes away' => sub {
    my $locker = Edgemeter::Process->spawn(
        name => 'locker', log => $stack->place->path('tmp') . '/locker.log',
        user => $stack->account,
        command => [$stack->cluster->{bin} . '/psql', '-q', '--dbname',
            $stack->database_url, '-c',
            'BEGIN; LOCK TABLE meter.event_registry IN ACCESS EXCLUSIVE MODE;'
                . ' SELECT pg_sleep(60); COMMIT'],
    );
    wait_until {
        $stack->query("SELECT count(*) FROM pg_locks WHERE granted AND"
            . " mode = 'AccessExclusiveLock' AND relation ="
            . " 'meter.event_registry'::regclass")
    } 10, 'the lock is held';
    my $before = metric('edgemeter_requests_aborted_total');
    my @clients = map { client() } 1 .. 20;
    $clients[$_]->send(post(event("gone-$_"))) for 0 .. 9;
    $clients[$_]->send(Edgemeter::SocketClient::encode(
        path => '/v1/events/pipe-1', token => $token)) for 10 .. 19;
    wait_until { metric('edgemeter_requests_in_flight') >= 20 } 10,
        'twenty are at work';
    $_->close for @clients;
    ok poll_until(
        sub { metric('edgemeter_requests_aborted_total') == $before + 20 },
        10), 'all are seen to be gone';
    $stack->query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        . " WHERE query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()");
    poll_until { !$locker->alive } 10;

    # One request at work is the one that asks.
    ok poll_until(sub { metric('edgemeter_requests_in_flight') == 1 }, 15),
        'nothing is left in flight';
    ok poll_until(sub {
        $stack->query("SELECT count(*) FROM meter.event"
            . " WHERE event_id LIKE 'gone-%'") == 10
    }, 15), 'their events went their way';
};

subtest 'half a request' => sub {
    my $before = metric('edgemeter_connections');
    my @clients = map { client() } 1 .. 5;
    $_->send(substr post(event('half')), 0, 60) for @clients;
    ok poll_until(sub { metric('edgemeter_connections') >= $before + 5 }, 5),
        'five wait';
    $_->close for @clients;
    ok poll_until(sub { metric('edgemeter_connections') <= $before }, 5),
        'and are forgotten when they leave';
};

subtest 'many connections' => sub {
    my @clients = map { client() } 1 .. 300;
    my $good = grep { $_->request(path => '/healthz')->{status} == 200 }
        @clients;
    is $good, 300, 'three hundred side by side';
};

subtest 'room for bodies is bounded' => sub {
    my $held = metric('edgemeter_bodies_held_total');
    my @clients = map { client() } 1 .. 16;
    $_->send(Edgemeter::SocketClient::encode(
        method => 'POST', path => '/v1/events', token => $token,
        body_size => 16 << 20)) for @clients;
    my $before = metric('edgemeter_connections');
    ok poll_until(sub {
        my $last = client();
        $last->send(post('[]'));
        !$last->receive(0.2);
    }, 10), 'sixteen bodies of 16 MiB take it all';
    cmp_ok metric('edgemeter_bodies_held_total'), '>', $held, 'counted';
    is client()->request(path => '/healthz')->{status}, 200,
        'requests without a body do not wait';
    my @waiting = map { client() } 1 .. 3;
    $_->send(post('[]')) for @waiting;
    $waiting[1]->close;
    $clients[0]->close;
    is $waiting[0]->receive->{status}, 200, 'room came free';
    is $waiting[2]->receive->{status}, 200, 'for each that waited';
    $_->close for @clients;
};

subtest 'a socket that was removed is made again' => sub {
    my $path   = $stack->socket;
    my $client = client();
    # Asked over a connection from before, not by way of the path.
    my $renewals = sub {
        my $page = $client->request(path => '/metrics')->{body};
        return $page =~ /^edgemeter_socket_renewals_total (\d+)$/m ? $1 : -1;
    };
    my $again  = sub {
        my ($n) = @_;
        ok poll_until(sub { -S $path && $renewals->() == $n }, 10),
            'it is there again';
        is client()->request(path => '/healthz')->{status}, 200, 'and serves';
        is $client->request(path => '/healthz')->{status}, 200,
            'a connection from before goes on';
    };
    is $renewals->(), 0, 'nothing to do yet';
    unlink $path or die $!;
    $again->(1);
    rename $path, "$path.away" or die $!;
    $again->(2);
    unlink "$path.away", $path, "$path.lock";
    $again->(3);
    my @said = $stack->log('meterd') =~ /was gone and is made again/g;
    is scalar @said, 3, 'each time said once';

    my $other = IO::Socket::UNIX->new(Local => "$path.other", Listen => 1)
        or die $!;
    chmod 0777, "$path.other";
    rename "$path.other", $path or die $!;
    ok poll_until(sub {
        $stack->log('meterd') =~ /somebody else serves this socket/
    }, 10), 'what somebody else serves is left to him';
    is $renewals->(), 3, 'and not replaced';
    close $other;
    $again->(4);
};

subtest 'the directory of the socket goes and comes back' => sub {
    my $directory = $stack->place->path('tmp') . '/socket';
    my $make      = sub {
        mkdir $directory, 0770 or die $!;
        $stack->account->own($directory);
    };
    $make->();
    my $node = Edgemeter::Node->start($stack, name => 'elsewhere',
        yaml => { listen => "'unix:$directory/m.sock'" });
    my $serves = sub {
        my $client = Edgemeter::SocketClient->new("$directory/m.sock");
        return $client && $client->request(path => '/healthz')->{status} == 200;
    };
    ok poll_until(sub { $serves->() }, 15), 'it serves';
    unlink glob "$directory/* $directory/.m*";
    rmdir $directory or die $!;
    ok poll_until(sub { $node->log =~ /lock file cannot be opened/ }, 10),
        'it is gone, which is said';
    $make->();
    ok poll_until(sub { $serves->() }, 10), 'it serves again';
    my @said = $node->log =~ /cannot be opened|made again/g;
    is "@said", 'cannot be opened made again', 'each said once';
    $node->discard;
};

subtest 'silence ends' => sub {
    for my $client (@silent) {
        ok $client->closed(40), 'half a request is closed after 30 s';
    }
    is metric('edgemeter_sessions_timed_out_total'), 3, 'counted';
    is $idle->request(path => '/healthz')->{status}, 200,
        'a connection between requests may be idle';
};

$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
my @errors = grep { !/somebody else serves/ }
    $stack->log('meterd') =~ /^.*"level":"error".*$/mg;
is "@errors", '', 'no error was logged';
done_testing;
