#!/usr/bin/perl

# 101-counters-keys.t - the counters API: Idempotency-Key, also across restarts
# and nodes, a full queue, and a database that is away.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use IO::Socket::INET;
use Test::More;
use Edgemeter::Counters;
use Edgemeter::Node;
use Edgemeter::SocketClient;
use Edgemeter::Stack;
use Edgemeter::Wait qw(now wait_until);

use constant QUEUE => 20;

my @WRITES = qw(increment decrement incrementSync decrementSync set);

my $stack    = Edgemeter::Stack->for_test(
    yaml => { limits => sprintf '{ operationQueue: %d }', QUEUE })->start;
my $acme     = Edgemeter::Counters->new($stack->http('acme'),   'acme');
my $globex   = Edgemeter::Counters->new($stack->http('globex'), 'globex');

my $TAKEN = '409 {"error":"The Idempotency-Key was used with another'
    . ' request"}';
my $NEGATIVE = '409 {"error":"Operation failed due to constraint violation'
    . ' (e.g., counter cannot be negative)"}';
my $OVERFLOW = '400 {"error":"Operation resulted in an overflow (exceeded'
    . ' BIGINT capacity)"}';
my $FULL = '{"error":"Service overloaded (Queue Full). Please retry later."}';
my $UNKNOWN = '{"error":"It is not known whether the operation was applied",'
    . qq("outcome":"unknown"}\n);
my $NONE
    = q(404 {"error":"Counter doesn't exist for the specified bucket"});

sub numbers {
    return sprintf '200 {"net":"%s","added":"%s","subbed":"%s"}', @_;
}

sub keyed {
    my ($key, $verb, $name, %member) = @_;
    return $acme->told($verb, $name, %member,
        header => { 'idempotency-key' => $key });
}

# Past nginx, to the socket of a meterd.
sub socket_told {
    my ($socket, $verb, $name, $key, %member) = @_;
    my $client = Edgemeter::SocketClient->new($socket) or die $!;
    my $got = $client->request(
        method => Edgemeter::Counters::method_of($verb),
        path => $acme->path($verb, $name), type => 'application/json',
        token => $stack->token('acme'), key => $key,
        body => Edgemeter::Counters::body_of(%member));
    return "$got->{status} $got->{body}";
}

# --- keys ---------------------------------------------------------------

my %KEPT;    # key => [verb, name, members, first answer]

subtest 'the same key and body: the first result, applied once' => sub {
    for my $verb (@WRITES) {
        my %member = $verb eq 'set' ? (targetValue => 7) : (amount => 3);
        $acme->send('increment', "key_$verb", amount => 100);
        my $first = keyed("k-$verb", $verb, "key_$verb", %member);
        like $first, qr/^200 /, "$verb with a key";
        $acme->send('increment', "key_$verb", amount => 1000);
        my $now = $acme->told('get', "key_$verb");
        is keyed("k-$verb", $verb, "key_$verb", %member), $first,
            'again: the first answer'
            for 1 .. 3;
        is $acme->told('get', "key_$verb"), $now, 'and nothing more';
        $KEPT{"k-$verb"} = [$verb, "key_$verb", \%member, $first];
    }
};

subtest 'the same body spelled otherwise is the same' => sub {
    my $first = keyed('spelled', 'set', 'spelled', targetValue => '50',
        timestamp => '2024-03-15T10:30:00Z', expiresAt => 4102444800);
    is $first, numbers(50, 50, 0), 'first';
    my @same = (
        ' { "targetValue" : 50 , "expiresAt":4102444800,"durationSeconds":3600'
            . ',"timestamp":1710498600}',
        '{"timestamp":"2024-03-15T11:30:00.000000+01:00","durationSeconds":3600,'
            . '"targetValue":"50","expiresAt":"2100-01-01T00:00:00Z"}',
        '{"timestamp":"1710498600000","durationSeconds":3600,'
            . '"targetValue":"050","expiresAt":4102444800000}',
    );
    is keyed('spelled', 'set', 'spelled', body => $_), $first, $_ for @same;
    is keyed('default', 'increment', 'default'), numbers(1, 1, 0), 'amount';
    is keyed('default', 'increment', 'default', amount => 1),
        numbers(1, 1, 0), 'its default is the same';
    is keyed('default', 'increment', 'default', expiresAt => undef),
        numbers(1, 1, 0), 'null is the same as absent';
    is keyed('default', 'increment', 'd%65fault'), numbers(1, 1, 0),
        'so is an escaped path';
};

subtest 'the same key, another request: 409' => sub {
    is keyed('other', 'increment', 'other', amount => 2), numbers(2, 2, 0),
        'first';
    my %change = (
        amount => 3, durationSeconds => 60,
        timestamp => '2024-03-15T10:30:01Z',
        expiresAt => '2100-01-01T00:00:00Z',
    );
    for my $member (sort keys %change) {
        is keyed('other', 'increment', 'other', amount => 2,
            $member => $change{$member}), $TAKEN, "another $member";
    }
    is keyed('other', 'increment', 'another', amount => 2), $TAKEN,
        'another name';
    for my $verb (qw(decrement incrementSync decrementSync)) {
        is keyed('other', $verb, 'other', amount => 2), $TAKEN, $verb;
    }
    is keyed('other', 'set', 'other', targetValue => 2), $TAKEN, 'set';
    is keyed('other', 'increment', 'other', amount => 2), numbers(2, 2, 0),
        'the first one still has its answer';
    is keyed('Other', 'increment', 'other', amount => 2), numbers(4, 4, 0),
        'another case: another key';
    is $globex->told('decrement', 'other',
        header => { 'idempotency-key' => 'other' }), $NEGATIVE,
        "another tenant's keys are its own";
    is $globex->told('increment', 'other', amount => 9,
        header => { 'idempotency-key' => 'k-set' }), numbers(9, 9, 0),
        'all of them';
};

subtest 'what failed with a key fails again with it' => sub {
    is keyed('neg', 'decrement', 'failed'), $NEGATIVE, 'negative';
    $acme->send('increment', 'failed', amount => 10);
    is keyed('neg', 'decrement', 'failed'), $NEGATIVE, 'again, though it could';
    is $acme->told('get', 'failed'), numbers(10, 10, 0), 'nothing applied';
    $acme->send('set', 'full', targetValue => '9223372036854775807');
    is keyed('over', 'incrementSync', 'full'), $OVERFLOW, 'overflow';
    is keyed('over', 'incrementSync', 'full'), $OVERFLOW, 'again';
    is keyed('bad', 'increment', 'failed', amount => 0),
        '400 {"error":"amount must be an integer from 1 to'
        . ' 9223372036854775807"}', 'a bad request';
    is keyed('bad', 'increment', 'failed', amount => 5), numbers(15, 15, 0),
        'does not use up the key';
};

subtest 'Idempotency-Key: 1 to 255 visible ASCII characters' => sub {
    my $bad = '400 {"error":"Idempotency-Key must be 1 to 255 visible ASCII'
        . ' characters"}';
    my $n = 0;
    for my $key ('a', 'x' x 255, '!"#$%&()*+,/:;<=>?@[]^`{|}~',
        "8e03978e-40d5-43dd-bc93-6894a57f9324")
    {
        my $name = 'good' . $n++;
        is keyed($key, 'increment', $name), numbers(1, 1, 0), $key;
        is keyed($key, 'increment', $name), numbers(1, 1, 0), 'again';
    }
    for my $verb (@WRITES) {
        my %member = $verb eq 'set' ? (targetValue => 7) : ();
        is keyed($_, $verb, 'badkey', %member), $bad,
            "$verb: '" . substr($_, 0, 8) . "'"
            for 'x' x 256, 'a b', "a\tb", '';
        is socket_told($stack->socket, $verb, 'badkey', $_, %member), $bad,
            "$verb: bytes " . unpack 'H*', $_
            for "\xc3\xa9", "a\x7f", "a\0", "\xff";
    }
    is $acme->told('get', 'badkey'), $NONE, 'nothing applied';
    my $got = $acme->send('increment', 'badkey',
        header => { 'idempotency-key' => ['a', 'a'] });
    is $got->{status}, 400, 'twice';
};

# Answers of all kept keys, asked by a sub (method, path, key, body).
sub again {
    my ($what, $ask) = @_;
    for my $key (sort keys %KEPT) {
        my ($verb, $name, $member, $first) = @{ $KEPT{$key} };
        is $ask->($verb, $name, $key, %$member), $first, "$what: $key";
    }
    return;
}

subtest 'keys work across restarts of meterd' => sub {
    my $now = $acme->told('get', 'key_increment');
    for my $how (qw(TERM KILL)) {
        $stack->kill_part('meterd', $how);
        $stack->start_part('meterd');
        $stack->wait_healthy;
        again($how, sub {
            my ($verb, $name, $key, %member) = @_;
            return keyed($key, $verb, $name, %member);
        });
    }
    is $acme->told('get', 'key_increment'), $now, 'applied once';
};

subtest 'keys and buckets are shared by two meterd' => sub {
    my $node = Edgemeter::Node->start($stack, name => 'b');
    $node->wait_ready;
    again('the other node', sub { socket_told($node->socket, @_) });
    is socket_told($node->socket, 'increment', 'shared', 'there'), numbers(1, 1, 0),
        'a key of the other node';
    is keyed('there', 'increment', 'shared'), numbers(1, 1, 0), 'known here';
    is keyed('there', 'increment', 'shared', amount => 2), $TAKEN,
        'also with another body';
    is $acme->told('increment', 'shared'), numbers(2, 2, 0),
        'one bucket';
    is socket_told($node->socket, 'decrementSync', 'shared'), numbers(1, 2, 1),
        'for both';
    $node->process->stop('TERM', 15);
    is $node->process->status, 0, 'the node ended well';
};

# --- a full queue -------------------------------------------------------

subtest 'when the queue is full: 429, and the others are answered' => sub {
    $acme->send('increment', 'held');
    my $locker = $acme->lock_bucket($stack, 'held');
    my @clients = $acme->start($stack, 'increment', 'held');
    $acme->wait_blocked($stack);
    push @clients, $acme->start($stack, 'increment', 'held') for 1 .. QUEUE;
    for my $verb (@WRITES) {
        my %member = $verb eq 'set' ? (targetValue => 7) : ();
        my $got = $acme->send($verb, 'held', %member,
            header => { 'idempotency-key' => "full-$verb" });
        is "$got->{status} $got->{body}", "429 $FULL", "$verb: 429";
        is $got->{headers}{'retry-after'}, 1, 'with Retry-After';
    }
    is $globex->send('increment', 'free')->{status}, 429,
        'one queue for all tenants';
    is $acme->told('get', 'held'), numbers(1, 1, 0), 'reads go on';
    is $globex->send('increment', 'free', amount => 0)->{status}, 400,
        'a bad request is told so';

    $acme->unlock($stack, $locker);
    for my $i (0 .. $#clients) {
        my $got = $clients[$i]->receive;
        is "$got->{status} $got->{body}", numbers($i + 2, $i + 2, 0),
            "$i is answered, in its turn";
    }
    is $acme->told('get', 'held'), numbers(QUEUE + 2, QUEUE + 2, 0),
        'nothing of what was refused was applied';
    is keyed('full-increment', 'increment', 'held'),
        numbers(QUEUE + 3, QUEUE + 3, 0), 'nor was its key used up';
};

subtest 'synchronous operations and set bypass the batching queue' => sub {
    $acme->send('increment', 'stuck');
    my $locker = $acme->lock_bucket($stack, 'stuck');
    my $stuck = $acme->start($stack, 'increment', 'stuck');
    $acme->wait_blocked($stack);
    my $behind = $acme->start($stack, 'increment', 'behind');
    is $acme->told('incrementSync', 'beside', amount => 5), numbers(5, 5, 0),
        'incrementSync is answered at once';
    is $acme->told('decrementSync', 'beside'), numbers(4, 5, 1),
        'decrementSync too';
    is $acme->told('set', 'beside', targetValue => 9), numbers(9, 10, 1),
        'set too';
    is $acme->told('get', 'behind'), $NONE, 'what is batched waits';
    $acme->unlock($stack, $locker);
    is $_->receive->{status}, 200, 'and is answered then' for $stuck, $behind;
};

subtest 'a client that is gone before its operation has begun' => sub {
    $acme->send('increment', 'left', amount => 10);
    my $locker = $acme->lock_bucket($stack, 'left');
    my $first = $acme->start($stack, 'increment', 'left');
    $acme->wait_blocked($stack);
    my @gone = map { $acme->start($stack, 'increment', 'left',
        key => "gone$_") } 1 .. 5;
    my $last = $acme->start($stack, 'increment', 'left');
    my $flying = $acme->metric('edgemeter_requests_in_flight');
    $_->close for @gone;
    wait_until {
        $acme->metric('edgemeter_requests_in_flight') <= $flying - 5
    } 10, 'meterd has noticed';
    $acme->unlock($stack, $locker);
    my $got = $first->receive;
    is "$got->{status} $got->{body}", numbers(11, 11, 0), 'the first';
    $got = $last->receive;
    is "$got->{status} $got->{body}", numbers(12, 12, 0),
        'the last: those between were dropped';
    is $acme->told('get', 'left'), numbers(12, 12, 0), 'and not applied';
};

# --- server errors ------------------------------------------------------

subtest 'a server error is that of its operation alone: 500' => sub {
    my $failed = '500 {"error":"The operation failed and was not applied"}';
    $stack->query(<<'SQL');
CREATE FUNCTION meter.curse() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN RAISE EXCEPTION 'cursed' USING ERRCODE = '22000'; END$$;
CREATE TRIGGER curse BEFORE INSERT ON meter.bucket_counter FOR EACH ROW
    WHEN (NEW.name LIKE 'cursed%') EXECUTE FUNCTION meter.curse();
SQL
    $acme->send('increment', 'blessed');
    my $locker = $acme->lock_bucket($stack, 'blessed');
    my @clients = $acme->start($stack, 'increment', 'blessed');
    $acme->wait_blocked($stack);
    push @clients, $acme->start($stack, 'increment', $_, key => "key-$_")
        for qw(blessed1 cursed blessed2);
    $acme->unlock($stack, $locker);
    my @got = map { my $got = $_->receive; "$got->{status} $got->{body}" }
        @clients;
    is_deeply \@got, [numbers(2, 2, 0), numbers(1, 1, 0), $failed,
        numbers(1, 1, 0)], 'the others of its batch are applied';
    is $acme->told('set', 'cursed2', targetValue => 1), $failed, 'set';
    $stack->query('DROP TRIGGER curse ON meter.bucket_counter');
    is $acme->told('get', 'cursed'), $NONE, 'nothing was applied';
    is keyed('key-cursed', 'increment', 'cursed'), numbers(1, 1, 0),
        'nor was its key used up';
};

# Who asks for the change must not wait for the standby that is missing.
sub standby {
    my ($name) = @_;
    $stack->query("SET synchronous_commit = local;\n"
        . "ALTER SYSTEM SET synchronous_standby_names = '$name';\n"
        . "SELECT pg_reload_conf();\n");
    wait_until {
        $stack->query('SHOW synchronous_standby_names') eq $name
    } 10, 'the server knows its standbys';
    return;
}

# The server gives up waiting for a standby that nobody is: what it committed
# may be lost with it.
subtest 'a commit in doubt: 504, outcome unknown' => sub {
    $acme->send('increment', 'unsure');
    standby('nowhere');
    my %lane = (increment => '0', incrementSync => '[1-4]');
    for my $verb (sort keys %lane) {
        my $client = $acme->start($stack, $verb, 'unsure', key => "u-$verb");
        my $pid = wait_until {
            $stack->query("SELECT pid FROM pg_stat_activity WHERE wait_event ="
                . " 'SyncRep' AND application_name ~"
                . " '^meterd bucket-$lane{$verb}\$'")
        } 10, 'the commit waits for a standby';
        $stack->query("SELECT pg_cancel_backend($pid)");
        my $got = $client->receive;
        is "$got->{status} $got->{body}\n", "504 $UNKNOWN", $verb;
        is $got->{retry}, undef, 'without Retry-After';
    }
    standby('');
    my $n = 2;
    for my $verb (sort keys %lane) {
        my $answer;
        wait_until {
            ($answer = keyed("u-$verb", $verb, 'unsure')) =~ /^200/
        } 20, 'committed for good';
        is $answer, numbers($n, $n, 0), "$verb: with its key it is known";
        $n++;
    }
    is $acme->told('get', 'unsure'), numbers(3, 3, 0), 'each applied once';
};

# --- no meterd ----------------------------------------------------------

subtest 'meterd is killed with a write under way: 504, outcome unknown' => sub {
    $acme->send('increment', 'doubt');
    my $locker = $acme->lock_bucket($stack, 'doubt');
    my $body = Edgemeter::Counters::body_of();
    my $socket = IO::Socket::INET->new(
        PeerAddr => '127.0.0.1', PeerPort => $stack->port) or die $!;
    syswrite $socket, join "\r\n",
        'POST ' . $acme->path('increment', 'doubt') . ' HTTP/1.1',
        'Host: localhost', 'Connection: close',
        'Authorization: Bearer ' . $stack->token('acme'),
        'Content-Type: application/json', 'Idempotency-Key: doubt',
        'Content-Length: ' . length $body, '', $body;
    $acme->wait_blocked($stack);
    $stack->kill_part('meterd');
    my $answer = do { local $/; <$socket> };
    like $answer, qr/^HTTP\/1\.1 504 /, 'the status';
    is(($answer =~ /\r\n\r\n(.*)/s)[0], $UNKNOWN, 'and why');
    my $got = $acme->send('increment', 'doubt');
    is "$got->{status} $got->{headers}{'retry-after'}", '503 1',
        'while it is away: 503, nothing was applied';
    $acme->unlock($stack, $locker);
    $stack->start_part('meterd');
    $stack->wait_healthy;
    is keyed('doubt', 'increment', 'doubt'), numbers(2, 2, 0),
        'with its key the same again finds out';
    is $acme->told('get', 'doubt'), numbers(2, 2, 0), 'applied once';
};

# --- no database --------------------------------------------------------

subtest 'while PostgreSQL is away: 503 with Retry-After, nothing applied' =>
    sub {
    $acme->send('increment', 'away');
    $stack->cluster->stop('fast');
    my $begun = now();
    my @clients = map {
        my %member = $_ eq 'set' ? (targetValue => 7) : ();
        $acme->start($stack, $_, 'away', %member)
    } @WRITES;
    my $read = $acme->send('get', 'away');
    is "$read->{status} $read->{headers}{'retry-after'}", '503 1', 'get';
    for my $i (0 .. $#WRITES) {
        my $got = $clients[$i]->receive;
        is $got->{status}, 503, "$WRITES[$i]: 503";
        is $got->{retry}, 1, 'with Retry-After';
    }
    cmp_ok now() - $begun, '<', 20, 'not later than a client waits';
    $stack->start_part('postgres');
    wait_until { $acme->send('get', 'away')->{status} == 200 } 30, 'back';
    is $acme->told('get', 'away'), numbers(1, 1, 0), 'nothing was applied';
    wait_until { $acme->send('increment', 'away')->{status} == 200 } 30,
        'writes go on';
    };

$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
done_testing;
