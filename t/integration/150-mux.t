#!/usr/bin/perl

# 150-mux.t - many requests at once on one connection to meterd: every answer
# is right and goes to its request, whatever is mixed; CANCEL; limits; a mux
# that is misused ends and disturbs no other; and nothing is lost or counted
# twice when meterd ends, in order or not.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use IO::Compress::Gzip ();
use POSIX ();
use Test::More;
use Edgemeter::CounterClients qw(run_clients write_request);
use Edgemeter::Counters;
use Edgemeter::FakeAggregator;
use Edgemeter::LinkClient;
use Edgemeter::Place;
use Edgemeter::SocketClient;
use Edgemeter::Stack;
use Edgemeter::MuxClient;
use Edgemeter::Wait qw(now poll_until wait_until);

use constant MANY    => 20_000;
use constant IN_ONE  => 16_384;    # requests in flight on a mux
use constant QUEUE   => 500_000;

my $FULL = '429 {"error":"Service overloaded (Queue Full). Please retry'
    . ' later."}';
my $TAKEN = '409 {"error":"The Idempotency-Key was used with another'
    . ' request"}';
my $NEGATIVE = '409 {"error":"Operation failed due to constraint violation'
    . ' (e.g., counter cannot be negative)"}';
my $HEALTHY = '200 {"status":"ok"}';
my $NONE = q(404 {"error":"Counter doesn't exist for the specified bucket"});

my $stack = Edgemeter::Stack->for_test(
    yaml => { limits => sprintf '{ operationQueue: %d }', QUEUE })->start;
my %counters = map {
    $_ => Edgemeter::Counters->new($stack->http($_), $_)
} qw(acme globex);
my $acme  = $counters{acme};
my %token = map { $_ => $stack->token($_) } qw(acme globex);

sub mux { return Edgemeter::MuxClient->new($stack->socket) // die $! }

sub numbers {
    return sprintf '200 {"net":"%s","added":"%s","subbed":"%s"}', @_;
}

# The request of an operation, for `start`.
sub operation {
    my ($tenant, $verb, $name, %member) = @_;
    my %request = (method => Edgemeter::Counters::method_of($verb),
        token => $token{$tenant}, key => delete $member{key});
    if ($request{method} eq 'GET') {
        @request{qw(path args)} = split /\?/,
            $counters{$tenant}->read_path($verb, $name, %member);
        return %request;
    }
    return (%request, path => $counters{$tenant}->path($verb, $name),
        type => 'application/json',
        body => Edgemeter::Counters::body_of(%member));
}

sub metric { return $acme->metric("edgemeter_$_[0]") }

sub reaches {
    my ($name, $value, $what) = @_;
    ok poll_until(sub { metric($name) == $value }, 10), $what
        or diag "edgemeter_$name is " . metric($name) . ", not $value";
    return;
}

sub resident_mib {
    open my $file, '<', '/proc/' . $stack->part_pid('meterd') . '/statm'
        or die $!;
    return (split / /, <$file>)[1] * 4096 / (1 << 20);
}

# --- operations ---------------------------------------------------------

subtest 'operations of two tenants, mixed on one mux' => sub {
    my $mux = mux();
    my %expected;
    my $expect = sub {
        my ($text, @operation) = @_;
        $expected{ $mux->start(operation(@operation)) }
            = [$text, "@operation[0 .. 2]"];
    };
    for my $round (1 .. 20) {
        for my $tenant (qw(acme globex)) {
            my $amount = $tenant eq 'acme' ? 3 : 5;
            $expect->(numbers($amount, $amount, 0), $tenant, 'increment',
                "inc$round", amount => $amount);
            $expect->(numbers($amount, $amount, 0), $tenant, 'incrementSync',
                "sync$round", amount => $amount);
            $expect->(numbers($round, $round, 0), $tenant, 'set',
                "set$round", targetValue => $round);
            $expect->($NEGATIVE, $tenant, 'decrement', "none$round");
            $expect->($NONE, $tenant, 'get', "none$round");
        }
    }
    is $mux->told($_), $expected{$_}[0], $expected{$_}[1]
        for reverse sort { $a <=> $b } keys %expected;
    %expected = ();
    for my $round (1 .. 20) {
        for my $tenant (qw(acme globex)) {
            my $sum = $tenant eq 'acme' ? 3 : 5;
            $expect->(numbers($sum - 1, $sum, 1), $tenant, 'decrement',
                "inc$round");
            $expect->(numbers($sum - 2, $sum, 2), $tenant, 'decrementSync',
                "sync$round", amount => 2);
            $expect->(numbers($round, $round, 0), $tenant, 'get',
                "set$round");
        }
    }
    is $mux->told($_), $expected{$_}[0], "then $expected{$_}[1]"
        for sort keys %expected;

    # Each value once: what its own operation made of the counter.
    my @flying = map { $mux->start(operation('acme',
        $_ % 10 ? 'increment' : 'incrementSync', 'hot')) } 1 .. 1000;
    my %told = map { $mux->told($_) => 1 } @flying;
    is_deeply [sort keys %told], [sort map { numbers($_, $_, 0) } 1 .. 1000],
        'a thousand on one counter';
};

subtest 'an Idempotency-Key that is in flight twice' => sub {
    my $mux = mux();
    my $other = mux();
    for my $verb (qw(increment incrementSync)) {
        my %same = operation('acme', $verb, "twice_$verb", amount => 7,
            key => "twice-$verb");
        my @flying = map { $mux->start(%same) } 1 .. 5;
        my $elsewhere = $other->start(%same);
        is $mux->told($_), numbers(7, 7, 0), "$verb: the same answer"
            for @flying;
        is $other->told($elsewhere), numbers(7, 7, 0), 'on another mux too';
        is $mux->request(operation('acme', $verb, "twice_$verb",
            amount => 8, key => "twice-$verb")), $TAKEN, 'another request';
        is $mux->request(operation('acme', 'get', "twice_$verb")),
            numbers(7, 7, 0), 'applied once';
    }
};

subtest 'what is refused' => sub {
    my $mux = mux();
    my %post  = operation('acme', 'increment', 'refused');
    my %told  = (
        'no token'        => [401, { %post, token => undef }],
        'a wrong token'   => [401, { %post, token => 'em_none_none' }],
        "another's token" => [404, { %post, token => $token{globex} }],
        'an unknown path' => [404, { %post, path => '/api/counters/acme' }],
        'no such route'   => [404, { path => '/nowhere' }],
        'a wrong method'  => [405, { %post, method => 'GET' }],
        'no JSON'         => [400, { %post, body => '{' }],
        'no counter'      => [404, { operation('acme', 'get', 'refused') }],
        'below zero'      => [409, { operation('acme', 'decrement', 'x') }],
    );
    my %flying = map { $_ => $mux->start(%{ $told{$_}[1] }) }
        sort keys %told;
    for my $what (sort keys %told) {
        my $answer = $mux->answer($flying{$what});
        is $answer->{status}, $told{$what}[0], "$what: $told{$what}[0]";
        is $answer->{allow}, 'POST', 'Allow' if $what eq 'a wrong method';
    }
    is $mux->request(%post), numbers(1, 1, 0), 'the mux goes on';
};

subtest 'bodies up to 4096 bytes' => sub {
    my $mux = mux();
    my %post  = operation('acme', 'increment', 'body');
    my $space = 4096 - length $post{body};
    is $mux->request(%post, body => $post{body} . ' ' x $space),
        numbers(1, 1, 0), 'as large as may be';
    my $waits = $mux->start(operation('acme', 'increment', 'body_behind'));
    is $mux->told($waits), numbers(1, 1, 0), 'another behind it';
    $mux->start(%post, body => $post{body} . ' ' x ($space + 1));
    ok $mux->closed(10), 'one more: closed';
    is $acme->told('get', 'body'), numbers(1, 1, 0), 'and not applied';
};

subtest 'other routes' => sub {
    my $mux = mux();
    my $event = sub {
        return sprintf '{"event_id":"%s","type":"account.connected",'
            . '"ts":"2026-09-01T12:00:00Z",'
            . '"attributes":{"masterAccountId":"%s"}}', $_[0], $_[1] // 's';
    };
    my %post = (method => 'POST', path => '/v1/events', token => $token{acme},
        type => 'application/json');
    my @flying = map { $mux->start(%post, body => $event->("t$_")) } 1 .. 50;
    my $healthy = $mux->start(path => '/healthz');
    my $metrics = $mux->start(path => '/metrics');
    my $many = '[' . join(',', map { $event->("z$_") } 1 .. 500) . ']';
    IO::Compress::Gzip::gzip(\$many, \my $packed) or die;
    cmp_ok length $packed, '<', 4096, 'a body that is small when packed';
    my $gzip = $mux->start(%post, encoding => 'gzip', body => $packed);
    for my $i (1 .. 50) {
        my $answer = $mux->answer($flying[$i - 1]);
        like $answer->{body}, qr/"accepted":1,.*"t$i"/, "event t$i";
    }
    like $mux->told($gzip), qr/^200 .*"accepted":500,/, 'all that was in it';
    like $mux->told($healthy), qr/^200 /, '/healthz';
    like $mux->told($metrics),
        qr/^200 .*^edgemeter_mux_requests_in_flight [1-9]/ms, '/metrics';
    like $mux->request(path => '/v1/events/t7', token => $token{acme}),
        qr/^200 .*"t7"/, 'an event is read';
    like $mux->request(path => '/v1/query', token => $token{acme},
        args => 'meter=nothing'), qr/^4\d\d .*"error"/, '/v1/query answers';
};

# --- CANCEL and the end of a mux --------------------------------------

subtest 'CANCEL' => sub {
    my $mux = mux();
    is $mux->request(operation('acme', 'increment', 'cancel')),
        numbers(1, 1, 0), 'a counter';
    my $flying  = metric('mux_requests_in_flight');
    my $aborted = metric('requests_aborted_total');
    my $locker  = $acme->lock_bucket($stack, 'cancel');
    my $begun = $mux->start(operation('acme', 'increment', 'cancel'));
    $mux->sent;
    $acme->wait_blocked($stack);
    my @waiting = map { $mux->start(operation('acme', $_, 'cancel',
        amount => 10)) } qw(increment decrement increment increment increment);
    $mux->sent;
    reaches('bucket_queue_operations', 5, 'five wait for the next batch');
    my $answered = $mux->start(operation('acme', 'increment', 'free_of_it'));
    $mux->cancel($waiting[$_]) for 0 .. 3;
    $mux->cancel(4711);
    $mux->sent;
    reaches('bucket_queue_operations', 2, 'four are taken back');
    is metric('requests_aborted_total'), $aborted + 4, 'counted';
    $acme->unlock($stack, $locker);
    is $mux->told($begun), numbers(2, 2, 0), 'the one that had begun';
    is $mux->told($waiting[4]), numbers(12, 12, 0), 'the one that stayed';
    is $mux->told($answered), numbers(1, 1, 0), 'and the one behind';
    is $mux->request(operation('acme', 'get', 'cancel')),
        numbers(12, 12, 0), 'those that had not begun are not applied';
    $mux->cancel($begun);
    is $mux->request(path => '/healthz'), $HEALTHY,
        'CANCEL of what is answered does nothing';

    # One that has begun is applied; its answer is nobody's.
    $locker = $acme->lock_bucket($stack, 'cancel');
    $begun  = $mux->start(operation('acme', 'increment', 'cancel'));
    $mux->sent;
    $acme->wait_blocked($stack);
    $mux->cancel($begun);
    $mux->sent;
    reaches('mux_requests_in_flight', $flying, 'nothing is in flight');
    $acme->unlock($stack, $locker);
    is $mux->request(operation('acme', 'increment', 'cancel')),
        numbers(14, 14, 0), 'what had begun counts';
    ok !%{ $mux->{answers} } && !$mux->flying, 'nothing else was answered';
};

# nginx has muxes of its own, and some of them come late.
subtest 'metrics, and a mux that goes away' => sub {
    my $muxes = metric('muxes');
    my $one    = mux();
    my $two    = mux();
    reaches('muxes', $muxes + 2, 'two more');
    my $total   = metric('mux_requests_total');
    my $aborted = metric('requests_aborted_total');
    my $flying  = metric('mux_requests_in_flight');
    my $now = $acme->told('get', 'cancel');
    my $locker = $acme->lock_bucket($stack, 'cancel');
    my $begun  = $two->start(operation('acme', 'increment', 'cancel'));
    $two->sent;
    $acme->wait_blocked($stack);
    $one->start(operation('acme', 'increment', 'cancel')) for 1 .. 100;
    $one->sent;
    reaches('mux_requests_in_flight', $flying + 101, 'in flight');
    cmp_ok metric('mux_requests_total'), '>=', $total + 101, 'counted';
    $one->close;
    reaches('muxes', $muxes + 1, 'one is gone');
    reaches('mux_requests_in_flight', $flying + 1, 'and all that it had');
    is metric('requests_aborted_total'), $aborted + 100, 'aborted';
    $acme->unlock($stack, $locker);
    like $two->told($begun), qr/^200 /, 'the other one is answered';
    my ($net) = $now =~ /"net":"(\d+)"/;
    like $acme->told('get', 'cancel'), qr/"net":"@{[ $net + 1 ]}"/,
        'what had not begun is not applied';
};

subtest 'garbage ends a mux, and only that' => sub {
    my $frame = \&Edgemeter::FakeAggregator::frame;
    my $good  = mux();
    my %bad   = (
        http     => "GET / HTTP/1.1\r\nHost: x\r\n\r\n" . "\n" x 40,
        crc      => $frame->(12, '', crc => 1),
        message  => $frame->(12, 'no fields', seq => 9),
        critical => $frame->(99, '', flags => 1),
        response => $frame->(13, '', seq => 9),
        hello    => $frame->(1, ''),
        drain    => $frame->(9, ''),
        again    => Edgemeter::SocketClient::encode(
            operation('acme', 'increment', 'garbage'), number => 1),
    );
    my $locker = $acme->lock_bucket($stack, 'hot');
    my $waits  = $good->start(operation('acme', 'incrementSync', 'hot'));
    $good->sent;
    $acme->wait_blocked($stack);
    my $flying = metric('mux_requests_in_flight');
    for my $name (sort keys %bad) {
        my $errors  = metric('protocol_errors_total');
        my $aborted = metric('requests_aborted_total');
        my $mux     = mux();
        $mux->start(operation('acme', 'incrementSync', 'hot'));
        $mux->put($bad{$name});
        ok $mux->closed(10), "$name: closed";
        is metric('protocol_errors_total'), $errors + 1, 'counted';
        is metric('requests_aborted_total'), $aborted + 1,
            'what it waited for is cancelled';
    }
    like $stack->log('meterd'),
        qr/"level":"warn","subsystem":"mux","message":"bad frame"/, 'logged';
    is metric('mux_requests_in_flight'), $flying, 'the other one waits';
    my $mux = mux();
    $mux->put($frame->(99, 'skip me', flags => 0));
    is $mux->request(path => '/healthz'), $HEALTHY,
        'an unknown type that may be skipped is';
    $acme->unlock($stack, $locker);
    like $good->told($waits), qr/^200 /, 'and is answered';

    my $session = Edgemeter::SocketClient->new($stack->socket);
    $session->request(path => '/healthz');
    $session->send($frame->(14, ''));
    is $session->receive->{type}, 6, 'MUX behind a request: NACK';
    ok $session->closed(10), 'then closed';
    $session = Edgemeter::SocketClient->new($stack->socket);
    $session->send($frame->(15, '', seq => 1));
    is $session->receive->{type}, 6, 'CANCEL without a mux: NACK';
    for my $type (14, 15) {
        my $link = Edgemeter::LinkClient->new($stack->socket);
        is $link->hello->{type}, 'HELLO_ACK', 'a ring';
        $link->send($type, '');
        ok !$link->wait_for('none', 10) && $link->closed(0),
            "type $type on its link: closed";
    }
};

# --- limits -------------------------------------------------------------

# True: taken.
sub reload {
    my ($queue) = @_;
    my $path = $stack->place->path('meterd.yaml');
    open my $in, '<', $path or die "$path: $!\n";
    my $text = do { local $/; <$in> };
    $text =~ s/operationQueue: \d+/operationQueue: $queue/ or die;
    Edgemeter::Place::replace_file($path, 0640, $stack->account, $text);
    my $good = metric('config_reloads_total');
    $stack->part('meterd')->signal('HUP');
    wait_until { metric('config_reloads_total') > $good } 10,
        'the file is read';
    return;
}

subtest 'a full queue' => sub {
    my $mux = mux();
    reload(20);
    $mux->request(operation('acme', 'increment', 'queue'));
    my $locker = $acme->lock_bucket($stack, 'queue');
    my $begun  = $mux->start(operation('acme', 'increment', 'queue'));
    $mux->sent;
    $acme->wait_blocked($stack);
    my @flying = map { $mux->start(operation('acme', 'increment', 'queue')) }
        1 .. 50;
    for my $i (20 .. 49) {
        my $answer = $mux->answer($flying[$i]);
        is "$answer->{status} $answer->{body}", $FULL, "$i has no place";
        is $answer->{retry}, 1, 'with Retry-After';
    }
    is $mux->flying, 21, 'the others wait';
    $acme->unlock($stack, $locker);
    is $mux->told($begun), numbers(2, 2, 0), 'the first one';
    is $mux->told($flying[$_]), numbers(3 + $_, 3 + $_, 0), "$_, in its turn"
        for 0 .. 19;
    is $acme->told('get', 'queue'), numbers(22, 22, 0),
        'what was refused was not applied';
    reload(QUEUE);
};

subtest 'answers that nobody reads' => sub {
    my $deaf  = mux();
    my $good  = mux();
    my $total = metric('mux_requests_total');
    my $mib   = resident_mib();
    $deaf->start(path => '/metrics') for 1 .. 5000;
    wait_until {
        1 while $deaf->push_only > 0;
        my $before = $total;
        $total = metric('mux_requests_total');
        $total == $before
    } 20, 'meterd takes no more of it';
    cmp_ok length $deaf->{out}, '>', 0, 'most of it was not taken';
    my @flying = map { $good->start(operation('acme', 'increment', 'hears')) }
        1 .. 200;
    my $asked = now();
    ok $good->settle(10), 'others are served';
    cmp_ok now() - $asked, '<', 5, 'at once';
    if ($stack->{program} !~ /asan/) {
        cmp_ok resident_mib() - $mib, '<', 16, 'in little memory';
    }
    ok $deaf->settle(30), 'and it, too, once it listens';
    my $good_answers = grep { $_->{status} == 200 }
        values %{ $deaf->{answers} };
    is $good_answers, 5000, 'with all of its answers';
};

subtest MANY . ' writes at once on two muxes' => sub {
    my @muxes = (mux(), mux());
    my $flying = metric('mux_requests_in_flight');
    my $locker = $acme->lock_bucket($stack, 'hot');
    my $first  = mux();
    $first->start(operation('acme', 'increment', 'hot'));
    $first->sent;
    $acme->wait_blocked($stack);
    my $mib = resident_mib();
    for my $i (1 .. MANY) {
        $muxes[$i % 2]->start(operation('globex', 'increment',
            'many' . $i % 7, amount => 1 + $i % 3));
    }
    $_->sent(30) for @muxes;
    reaches('mux_requests_in_flight', $flying + MANY + 1,
        'all are in flight');
    diag sprintf 'bytes for each: %.0f',
        (resident_mib() - $mib) * (1 << 20) / MANY
        if $ENV{TEST_VERBOSE};
    is $stack->http->get('/healthz')->{status}, 200, 'alive';
    $acme->unlock($stack, $locker);
    ok $_->settle(60), 'all are answered' for @muxes, $first;
    my %told;
    $told{ $_->{status} }++ for map { values %{ $_->{answers} } } @muxes;
    is_deeply \%told, { 200 => MANY }, 'and applied';
    my $sum = 0;
    $sum += 1 + $_ % 3 for 1 .. MANY;
    is $stack->query("SELECT sum(added) FROM meter.bucket_counter WHERE"
        . " tenant = 'globex' AND name LIKE 'many%'"), $sum, 'each once';
};

subtest 'more than a mux takes at once' => sub {
    my $mux    = mux();
    my $flying = metric('mux_requests_in_flight');
    my $locker = $acme->lock_bucket($stack, 'hot');
    $mux->start(operation('acme', 'increment', 'hot'));
    $mux->sent;
    $acme->wait_blocked($stack);
    $mux->start(operation('acme', 'increment', 'more'))
        for 2 .. IN_ONE;
    my @late = map { $mux->start(operation('acme', @$_)) }
        (map { ['increment', 'more'] } 1 .. 2000), ['get', 'hot'];
    my $full = metric('bucket_queue_full_total');
    ok $mux->wait_for(sub { $mux->flying <= IN_ONE }, 20),
        'what is too much is answered while all others wait';
    is metric('mux_requests_in_flight'), $flying + IN_ONE,
        'as many as may be are in flight';
    is metric('bucket_queue_full_total'), $full + @late, 'counted';
    my %told;
    $told{ "$_->{status} $_->{body} " . ($_->{retry} // 0) }++
        for map { $mux->answer($_) // {} } @late;
    is_deeply \%told, { "$FULL 1" => scalar @late },
        'as when the queue is full';
    is mux()->request(path => '/healthz'), $HEALTHY, 'others go on';
    $acme->unlock($stack, $locker);
    ok $mux->settle(60), 'all others are answered';
    is $acme->told('get', 'more'), numbers(IN_ONE - 1, IN_ONE - 1, 0),
        'each once, and none that was refused';
};

# --- the end of meterd --------------------------------------------------

sub start_meterd {
    $stack->start_part('meterd');
    $stack->wait_meterd;
    $stack->wait_healthy;
    return;
}

sub sum_of {
    return $stack->query('SELECT coalesce(sum(added), 0) FROM'
        . " meter.bucket_counter WHERE tenant = 'acme' AND name = '$_[0]'");
}

subtest 'SIGTERM with writes in flight' => sub {
    my ($leaves, $stays, $idle) = map { mux() } 1 .. 3;
    my $half = Edgemeter::MuxClient->connect($stack->socket);
    $half->put(substr Edgemeter::FakeAggregator::frame(14, ''), 0, 20);
    $half->sent;
    my $locker = $acme->lock_bucket($stack, 'hot');
    $leaves->start(operation('acme', 'increment', 'hot'));
    $leaves->sent;
    $acme->wait_blocked($stack);
    for my $i (1 .. 3000) {
        $leaves->start(operation('acme', 'increment', 'term'));
        $stays->start(operation('acme', $i % 50 ? 'increment'
            : 'incrementSync', 'term'));
    }
    $_->sent for $leaves, $stays;
    wait_until { metric('mux_requests_in_flight') >= 6001 } 20,
        'all have arrived';
    my $daemon = $stack->part('meterd');
    $daemon->signal('TERM');
    ok $_->wait_for(sub { $_->{is_drained} }, 10), 'DRAIN comes'
        for $leaves, $stays, $idle;
    ok $_->flying >= 2900, 'before the answers' for $leaves, $stays;
    my $late = $leaves->start(operation('acme', 'increment', 'late'));
    $leaves->sent;
    $half->put(substr Edgemeter::FakeAggregator::frame(14, ''), 20);
    $half->put(Edgemeter::SocketClient::encode(number => 5,
        operation('acme', 'increment', 'half')));
    $half->{flying}{5} = 1;
    ok $half->wait_for(sub { $half->{is_open} && $half->{is_drained} }, 10),
        'a mux that had begun is told, too';
    $acme->unlock($stack, $locker);
    ok $_->settle(20), 'all are answered' for $leaves, $stays, $half;
    my %told;
    $told{ $_->{status} }++
        for map { values %{ $_->{answers} } } $leaves, $stays;
    is_deeply \%told, { 200 => 6002 }, 'and applied';
    is $leaves->told($late), numbers(1, 1, 0), 'also the one behind DRAIN';
    is $half->told(5), numbers(1, 1, 0), 'and on the late mux';
    my $answered = now();
    $_->close for $leaves, $half;
    ok $stays->closed(10) && $idle->closed(10),
        'those that stay are closed';
    ok poll_until(sub { !$daemon->alive }, 20), 'meterd ends';
    cmp_ok now() - $answered, '<', 5, 'quickly';
    is $daemon->status, 0, 'and well';
    is sum_of('term'), 6000, 'each once';
    start_meterd();
};

# The worker knows nothing of what was in flight: whoever has a key asks again.
subtest 'kill -9 with keyed writes in flight through nginx' => sub {
    my $total = 3000;
    my @todo  = 1 .. $total;
    my $child = fork // die $!;
    if ($child == 0) {
        my $again = 0;
        run_clients(map { {
            port  => $stack->port,
            token => $token{acme},
            next  => sub {
                my $number = shift @todo // return;
                return { %{ write_request('increment', 'acme', 'killed', 0,
                    '2026-01-01T00:00:00Z', amount => 3,
                    key => "kill-$number") }, number => $number };
            },
            told => sub {
                my ($request, $answer) = @_;
                return if $answer->{status} == 200;
                push @todo, $request->{number};
                $again++;
            },
        } } 1 .. 64);
        POSIX::_exit($again > 0 ? 0 : 1);
    }
    my $mux_requests = sub {
        return $stack->http->get('/metrics')->{body}
            =~ /^edgemeter_edge_mux_requests_total (\d+)$/m ? $1 : 0;
    };
    for my $share (1, 2, 3) {
        wait_until { sum_of('killed') >= $share * 3 * $total / 5 } 30,
            'some are written';
        $stack->kill_part('meterd');
        $stack->start_part('meterd');
        $stack->wait_meterd;
    }
    waitpid $child, 0;
    is $?, 0, 'all are answered in the end, some when asked again';
    is sum_of('killed'), 3 * $total, 'each counts once';
    cmp_ok $mux_requests->(), '>', 500, 'on muxes of nginx';
    $stack->wait_healthy;
};

$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
unlike $stack->log('meterd'), qr/"level":"error","subsystem":"mux"/,
    'no error was logged';
done_testing;
