#!/usr/bin/perl

# 106-counters-pressure.t - the counters API where there is no room: a queue
# that a reload makes smaller and larger, connections that are all taken, and a
# database that says that its
# disk is full. What waits is neither lost nor applied twice, nothing is tried
# in a busy loop, and all goes on when there is room.
#
# The disk is a table: as long as it has a row, every statement that writes
# buckets, or its COMMIT, fails with the error in it. A sequence counts the
# tries, since it does not go back with a transaction.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use IO::Select;
use IO::Socket::INET;
use Test::More;
use Edgemeter::Counters;
use Edgemeter::FakeAggregator;
use Edgemeter::Place;
use Edgemeter::SocketClient;
use Edgemeter::Stack;
use Edgemeter::Wait qw(now wait_until);

use constant QUEUE       => 20;
use constant CONNECTIONS => 4096;
use constant REFUSALS    => 256;
use constant RATE        => 25;    # tries a second: more would be a busy loop

my @WRITES = qw(increment decrement incrementSync decrementSync set);
my $FULL = '429 {"error":"Service overloaded (Queue Full). Please retry'
    . ' later."}';
my $BUSY = '503 {"error":"too many requests are under way; try again"}';
my $LATE = '503 {"error":"The operation was not applied in time; it may be'
    . ' retried"}';

my $stack = Edgemeter::Stack->for_test(
    yaml => { limits => sprintf '{ operationQueue: %d }', QUEUE })->start;
my $counters = Edgemeter::Counters->new($stack->http('acme'), 'acme');

sub needs { return $_[0] eq 'set' ? (targetValue => 7) : () }

sub numbers {
    return sprintf '200 {"net":"%s","added":"%s","subbed":"%s"}', @_;
}

sub received {
    my ($client) = @_;
    my $got = $client->receive;
    return "$got->{status} $got->{body}";
}

# --- the queue ----------------------------------------------------------

# True: taken.
sub reload {
    my ($queue) = @_;
    my $path = $stack->place->path('meterd.yaml');
    open my $in, '<', $path or die "$path: $!\n";
    my $text = do { local $/; <$in> };
    $text =~ s/operationQueue: [^ }]+/operationQueue: $queue/ or die;
    Edgemeter::Place::replace_file($path, 0640, $stack->account, $text);
    my $good   = $counters->metric('edgemeter_config_reloads_total');
    my $before = () = $stack->log('meterd') =~ /reload refused/g;
    $stack->part('meterd')->signal('HUP');
    return wait_until {
        my $refused = () = $stack->log('meterd') =~ /reload refused/g;
        $counters->metric('edgemeter_config_reloads_total') > $good ? 'taken'
            : $refused > $before ? 'refused' : undef
    } 10, 'the file is read';
}

# All writes are refused, and at once.
sub full_ok {
    my ($what) = @_;
    my $refused = $counters->metric('edgemeter_bucket_queue_full_total');
    for my $verb (@WRITES) {
        my $begun = now();
        my $got   = $counters->send($verb, 'queue', needs($verb));
        is "$got->{status} $got->{body}", $FULL, "$what: $verb: 429";
        is $got->{headers}{'retry-after'}, 1, 'with Retry-After';
        cmp_ok now() - $begun, '<', 1, 'at once';
    }
    is $counters->metric('edgemeter_bucket_queue_full_total'), $refused + 5,
        'counted';
    return;
}

subtest 'limits.operationQueue over a reload' => sub {
    is $counters->told('increment', 'queue'), numbers(1, 1, 0), 'a counter';
    my $locker  = $counters->lock_bucket($stack, 'queue');
    my @clients = $counters->start($stack, 'increment', 'queue');
    $counters->wait_blocked($stack);
    push @clients, $counters->start($stack, 'increment', 'queue') for 1 .. 8;
    my $waiting = sub {
        is $counters->metric('edgemeter_bucket_queue_operations'), $_[0],
            "$_[0] wait";
    };
    $waiting->(8);
    is reload(3), 'taken', 'a smaller queue';
    full_ok('smaller than what waits');
    $waiting->(8);
    is $counters->send('get', 'queue')->{status}, 200, 'reads go on';

    is reload(8), 'taken', 'as large as what waits';
    full_ok('as large');
    is reload(10), 'taken', 'a larger one';
    push @clients, $counters->start($stack, 'increment', 'queue') for 1 .. 2;
    $waiting->(10);
    full_ok('full again');
    for my $bad (0, 10_000_001, 'many') {
        is reload($bad), 'refused', "$bad: no size of a queue";
    }
    full_ok('as before');

    $counters->unlock($stack, $locker);
    for my $i (0 .. $#clients) {
        is received($clients[$i]), numbers($i + 2, $i + 2, 0),
            "$i is answered, in its turn";
    }
    is $counters->told('get', 'queue'), numbers(12, 12, 0),
        'what was refused was not applied';
    is reload(QUEUE), 'taken', 'back';
};

# --- the connections ----------------------------------------------------

# A body that is too large for a mux.
sub begin_large {
    my $body = Edgemeter::Counters::body_of() . ' ' x 5000;
    my $client = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
        PeerPort => $stack->port) or die $!;
    $client->print(sprintf "POST %s HTTP/1.1\r\nHost: localhost\r\n"
        . "Authorization: Bearer %s\r\nContent-Type: application/json\r\n"
        . "Connection: close\r\nContent-Length: %d\r\n\r\n%s",
        $counters->path('increment', 'crowd'), $stack->token('acme'),
        length $body, $body);
    $client->flush;
    return $client;
}

# Connections that say nothing, until the handle is closed. A shell may raise the
# limit of descriptors.
sub hold_connections {
    my ($count) = @_;
    open my $holder, '|-', 'sh', '-c', 'ulimit -S -n "$(ulimit -H -n)" &&'
        . ' exec "$@"', '-', $^X, '-MIO::Socket::UNIX', '-e',
        'my @all = map { IO::Socket::UNIX->new(Peer => $ARGV[0]) // die $! }'
        . ' 1 .. $ARGV[1]; <STDIN>', $stack->socket, $count or die $!;
    return $holder;
}

# One more is told that it was not applied, whatever way it comes.
subtest 'all connections of meterd are taken' => sub {
    is $counters->told('increment', 'crowd'), numbers(1, 1, 0), 'a counter';
    my $locker = $counters->lock_bucket($stack, 'crowd');
    my $taken = $counters->metric('edgemeter_connections');
    my $idle  = hold_connections(CONNECTIONS - $taken);
    wait_until {
        $counters->metric('edgemeter_connections') == CONNECTIONS
    } 10, 'all are taken';
    my ($full, $refused) = map { $counters->metric("edgemeter_$_") }
        qw(bucket_queue_full_total connections_refused_total);

    for my $case ([$FULL, path => $counters->path('get', 'crowd')],
        [$FULL, method => 'POST', body => Edgemeter::Counters::body_of(),
            path => $counters->path('increment', 'crowd')],
        [$BUSY, path => '/v1/counters/x'], [$BUSY, path => '/healthz']) {
        my ($text, %request) = @$case;
        my $client = Edgemeter::SocketClient->new($stack->socket) or die $!;
        my $got = $client->request(%request) // {};
        is join(' ', map { $_ // 'none' } @$got{qw(status body)}), $text,
            "one more: $request{path}";
        is $got->{retry}, 1, 'with Retry-After';
        ok $client->closed(10), 'then it is closed';
    }
    for my $type (1, 14) {
        my $client = Edgemeter::SocketClient->new($stack->socket) or die $!;
        $client->send(Edgemeter::FakeAggregator::frame($type, ''));
        ok $client->closed(10), "a frame of type $type: closed";
    }
    is $counters->metric('edgemeter_bucket_queue_full_total'), $full + 2,
        'counted';
    is $counters->metric('edgemeter_connections_refused_total'), $refused + 6,
        'and the connections';

    my $more = hold_connections(REFUSALS);
    wait_until {
        $counters->metric('edgemeter_connections') == CONNECTIONS + REFUSALS
    } 10, 'as many as are refused at a time';
    my $last = Edgemeter::SocketClient->new($stack->socket) or die $!;
    ok $last->closed(10), 'one more is closed at once';
    close $more;
    wait_until {
        $counters->metric('edgemeter_connections') == CONNECTIONS
    } 10, 'they are gone';

    # Those that nginx has kept wait for the lock.
    my @clients = map { begin_large() } 1 .. 8;
    my $select  = IO::Select->new(@clients);
    my ($first) = $select->can_read(10);
    ok $first, 'through nginx: one is answered while others wait' or return;
    close $idle;
    $counters->unlock($stack, $locker);
    my %told;
    for my $client (@clients) {
        my ($head, $body) = split /\r\n\r\n/, do { local $/; <$client> };
        my ($status) = $head =~ m{^HTTP/1.1 (\d+)};
        $told{ $status == 200 ? 200 : "$status $body" }++;
        like $head, qr/^Retry-After: 1\r?$/m, 'with Retry-After'
            if $status != 200;
    }
    cmp_ok delete $told{$FULL}, '>=', 1, 'as when the queue is full';
    my $applied = 1 + (delete $told{200} // 0);
    is_deeply \%told, {}, 'and nothing else';
    is $counters->told('get', 'crowd'), numbers($applied, $applied, 0),
        'what was refused was not applied';
    wait_until {
        $counters->metric('edgemeter_connections') < $taken + 20
    } 10, 'there is room again';
};

# --- the disk -----------------------------------------------------------

$stack->query(<<'SQL');
CREATE SCHEMA disk;
CREATE TABLE disk.trouble (sqlstate text, is_late boolean);
CREATE SEQUENCE disk.tries;
CREATE FUNCTION disk.look() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    why text;
BEGIN
    SELECT sqlstate INTO why FROM disk.trouble
    WHERE is_late = (tg_argv[0] = 'late');
    IF why IS NOT NULL THEN
        PERFORM nextval('disk.tries');
        RAISE EXCEPTION 'no room' USING ERRCODE = why;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER early BEFORE INSERT OR UPDATE ON meter.bucket_counter
    FOR EACH STATEMENT EXECUTE FUNCTION disk.look('early');
CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE ON meter.bucket_counter
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION disk.look('late');
SQL

sub fill {
    my ($sqlstate, $is_late) = @_;
    $stack->query("INSERT INTO disk.trouble VALUES ('$sqlstate', "
        . ($is_late ? 'true' : 'false') . ')');
    return;
}

sub make_room { $stack->query('DELETE FROM disk.trouble'); return }

# The first value of a sequence does not tell whether it was used.
sub tries {
    return $stack->query('SELECT last_value - (NOT is_called)::integer'
        . ' FROM disk.tries');
}

# It is tried again. Lanes pause for 100 ms, or until they are connected again.
sub tries_ok {
    my ($what, $lanes) = @_;
    my ($begun, $before) = (now(), tries());
    wait_until { tries() >= $before + 2 * $lanes } 10, 'it is tried again';
    my $count = tries() - $before;
    my $most  = $lanes * (1 + RATE * (now() - $begun));
    cmp_ok $count, '<=', $most,
        sprintf '%s: %d tries, not more than %d', $what, $count, $most;
    return;
}

my $name = 'room0';
for my $case (['53100', 0], ['25006', 0], ['53100', 1]) {
    my ($sqlstate, $is_late) = @$case;
    my $when = $is_late ? 'at its COMMIT' : 'in a statement';
    subtest "$sqlstate $when: applied once there is room" => sub {
        $name++;
        $counters->send('increment', "$name$_", amount => 5) for qw(a b c d);
        fill($sqlstate, $is_late);
        my %client = (
            a => $counters->start($stack, 'increment', "${name}a"),
            b => $counters->start($stack, 'decrement', "${name}b"),
            c => $counters->start($stack, 'incrementSync', "${name}c"),
            d => $counters->start($stack, 'set', "${name}d", targetValue => 2),
            e => $counters->start($stack, 'increment', "${name}e"),
        );
        tries_ok('three lanes', 3);
        make_room();
        is received($client{a}), numbers(6, 6, 0), 'increment';
        is received($client{b}), numbers(4, 5, 1), 'decrement';
        is received($client{c}), numbers(6, 6, 0), 'incrementSync';
        is received($client{d}), numbers(2, 5, 3), 'set';
        is received($client{e}), numbers(1, 1, 0), 'a new counter';
        is $counters->told('get', "${name}a"), numbers(6, 6, 0), 'once';
    };
}

# Those that come late live long enough for the room.
subtest 'a disk that stays full: 503 after 10 s, nothing applied' => sub {
    $counters->send('increment', 'stays', amount => 5);
    fill('53100', 0);
    my $begun   = now();
    my @clients = map { $counters->start($stack, $_, 'stays', needs($_)) }
        @WRITES;
    is $counters->told('get', 'stays'), numbers(5, 5, 0), 'reads go on';
    is $stack->http->get('/healthz')->{status}, 200, 'alive';
    is $stack->http->get('/readyz')->{status}, 200, 'events still go';
    for my $sqlstate (qw(53200 53300 53400 57014 55006 58030 25006 53100)) {
        $stack->query("UPDATE disk.trouble SET sqlstate = '$sqlstate'");
        tries_ok($sqlstate, 5);
    }
    my $said = () = $stack->log('meterd')
        =~ /it is tried again".*"sqlstate":"53100"/g;
    wait_until { now() > $begun + 8 } 10, 'eight seconds';
    my @late = map { $counters->start($stack, $_, 'stays') }
        qw(increment incrementSync);
    for my $i (0 .. $#WRITES) {
        my $got = $clients[$i]->receive;
        is "$got->{status} $got->{body}", $LATE, "$WRITES[$i]: 503";
        is $got->{retry}, 1, 'with Retry-After';
    }
    my $took = now() - $begun;
    cmp_ok $took, '>', 9.5, 'not too early';
    cmp_ok $took, '<', 14, 'not too late';
    my $lines = () = $stack->log('meterd')
        =~ /it is tried again".*"sqlstate":"53100"/g;
    cmp_ok $lines, '<=', $said + 1, 'said once for each lane';
    make_room();
    my @told = sort map { received($_) } @late;
    is "@told", numbers(6, 6, 0) . ' ' . numbers(7, 7, 0),
        'those that came later are applied';
    is $counters->told('get', 'stays'), numbers(7, 7, 0), 'and only those';
    is $counters->metric('edgemeter_bucket_queue_operations'), 0,
        'nothing is left';
};

$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
done_testing;
