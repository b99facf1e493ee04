#!/usr/bin/perl

# 60-link.t - the link between a ring and meterd, spoken by a second reading
# of docs/protocol.md: hello, records, results, credit, and everything a
# broken or old worker may do.

use strict;
use warnings;
use FindBin;
use IO::Select;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::LinkClient qw(event delta dupnote lossnote minted_id);
use Edgemeter::Node;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until poll_until now);

my $rules = <<'YAML';
events:
  - { type: api.request, required: [route] }
  - { type: api.delta, delta: true }
counters:
  - counterName: requests
    mode: persistent
    dimensions: [route]
    floorAtZero: false
    rules:
      - { on: api.request, op: increment }
      - { on: api.delta, op: increment }
YAML

my $stack = Edgemeter::Stack->for_test(rules => \$rules);
$stack->start_schema;
my $node = Edgemeter::Node->start($stack, name => 'a')->wait_ready;

sub link_to {
    my ($to, %arg) = @_;
    return Edgemeter::LinkClient->new($to->socket, %arg)
        // die "nobody listens\n";
}

# A ring of its own, open.
sub opened {
    my (%hello) = @_;
    my $link = link_to($node);
    my $ack  = $link->hello(%hello);
    die "no HELLO_ACK\n" unless $ack && $ack->{type} eq 'HELLO_ACK';
    return ($link, $ack);
}

sub uuid { return Edgemeter::LinkClient::uuid($_[0]{session}) }

sub stored {
    my ($link) = @_;
    return scalar $stack->query('SELECT event_id FROM meter.event'
        . " WHERE session = '" . uuid($link) . "' ORDER BY seq");
}

sub totals {
    my ($link) = @_;
    return scalar $stack->query(
        'SELECT last_seq, accepted, duplicate, conflict, rejected, lost'
            . " FROM meter.edge_session WHERE session = '"
            . uuid($link) . "'");
}

sub rows {
    my ($from) = @_;
    return $stack->query("SELECT count(*) FROM meter.$from");
}

sub counter {
    my ($route) = @_;
    return $stack->query('SELECT value FROM meter.counter WHERE'
        . qq( dimensions = '{"route":"$route"}'));
}

# How much a metric grows while something happens.
sub grows {
    my ($name, $action) = @_;
    my $before = $node->metric("edgemeter_$name");
    $action->();
    return $node->metric("edgemeter_$name") - $before;
}

# Sends a frame and is closed without a word, and counted.
sub refused {
    my ($what, $link, @frame) = @_;
    is grows(protocol_errors_total => sub {
        $link->send(@frame);
        ok $link->closed(10), "$what: closed";
    }), 1, 'and counted';
    return;
}

# Holds up every transaction of a ring until it is let go.
sub lock_sessions {
    my $locker = Edgemeter::Process->spawn(
        name => 'locker', log => $stack->place->path('tmp') . '/locker.log',
        user => $stack->account,
        command => [$stack->cluster->{bin} . '/psql', '-q', '--dbname',
            $stack->database_url, '-c',
            'BEGIN; LOCK TABLE meter.edge_session IN ACCESS EXCLUSIVE MODE;'
                . ' SELECT pg_sleep(120); COMMIT'],
    );
    wait_until {
        $stack->query("SELECT count(*) FROM pg_stat_activity"
            . " WHERE query LIKE '%pg_sleep%' AND wait_event = 'PgSleep'")
    } 10, 'the lock is held';
    return $locker;
}

sub unlock_sessions {
    my ($locker) = @_;
    $stack->query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        . " WHERE query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()");
    wait_until { !$locker->alive } 10, 'the lock is gone';
    return;
}

# These two only wait; the end of this file looks at them.
my ($silent) = opened();
my ($half) = opened();
$half->send_bytes(substr Edgemeter::FakeAggregator::frame(3, 'x' x 100,
        tag => $half->tag, seq => 1, count => 1), 0, 70);
my $half_since = now();

subtest 'hello, records, results' => sub {
    my $link = link_to($node);
    my $ack = $link->hello(head => 4, node => 'gw-7');
    is $ack->{type}, 'HELLO_ACK', 'answered';
    is_deeply [@$ack{qw(version last_seq)}], [1, 0], 'a new session';
    cmp_ok $ack->{seq_limit}, '>=', 256, 'with credit';
    ok $ack->{db_epoch}, 'which database';
    is $ack->{config_version}, $node->metric('edgemeter_config_version'),
        'which rules';
    like $ack->{instance}, qr{^a/\d+$}, 'which meterd';
    cmp_ok abs($ack->{server_time} / 1e6 - time), '<', 60, 'what time it is';

    $link->data(1, map { event(attributes => { route => '/plain' }) } 1 .. 3);
    my $result = $link->receive;
    is $result->{type}, 'RESULT', 'a result';
    is_deeply [@$result{qw(durable_upto first_seq codes seq count)}],
        [3, 1, [('accepted') x 3], 1, 3], 'of all three';
    is stored($link), join("\n", map { minted_id($link->{session}, $_) }
            1 .. 3), 'under minted ids';
    is counter('/plain'), 3, 'and counted';
    is totals($link), "3\t3\t0\t0\t0\t0", 'and summed up';
    is $stack->query("SELECT node FROM meter.edge_session WHERE session = '"
            . uuid($link) . "'"), 'gw-7', 'with the node it said';
    is $node->metric('edgemeter_edge_rings'), 3, 'three rings are open';

    $link->send('PING', '', seq => 77);
    is_deeply [@{ $link->receive }{qw(type seq)}], ['PONG', 77], 'PING';
    $link->send('BYE');
    ok $link->closed, 'BYE';
    ok poll_until(sub { $node->metric('edgemeter_edge_rings') == 2 }, 5),
        'the ring is closed';
};

subtest 'a ring comes again' => sub {
    my ($link) = opened(head => 4);
    $link->data(1, event(), event(), event());
    ok $link->wait_for('RESULT'), 'three records';
    $link->close;
    my $again = link_to($node, session => $link->{session});
    my $ack = $again->hello(head => 4);
    is $ack->{last_seq}, 3, 'meterd knows how far it was';
    is_deeply $ack->{verdicts}, [3, 0, 0, 0], 'and with what verdicts';

    is grows(edge_gaps_total => sub {
        $again->data(1, event(), event(), event());
        is_deeply [@{ $again->receive }{qw(type code value)}],
            ['NACK', 'gap', 4], 'what it has it does not take: GAP';
        $again->data(6, event());
        is_deeply [@{ $again->receive }{qw(type code value)}],
            ['NACK', 'gap', 4], 'nor what comes too early';
    }), 2, 'counted';
    my @lines = grep { /records are not the next ones/ }
        split /\n/, $node->log;
    is scalar @lines, 1, 'said once per connection';
    $again->data(4, event());
    is $again->wait_for('RESULT')->{durable_upto}, 4, 'the next one it takes';
    is totals($again), "4\t4\t0\t0\t0\t0", 'nothing twice';
};

subtest 'two connections of one ring' => sub {
    my ($old) = opened(head => 3);
    my $locker = lock_sessions();
    $old->data(1, event());
    $old->data(2, event());
    my $new = link_to($node, session => $old->{session});
    is grows(edge_fenced_total => sub {
        $new->send_hello(head => 3);
        is_deeply [@{ $old->receive }{qw(type code)}], ['NACK', 'fenced'],
            'the older one is fenced';
    }), 1, 'counted';
    ok $old->closed, 'and closed';
    unlock_sessions($locker);
    my $ack = $new->receive;
    is $ack->{type}, 'HELLO_ACK', 'the newer one opens behind what was at work';
    $new->data($ack->{last_seq} + 1,
        map { event() } $ack->{last_seq} + 1 .. 2);
    ok $new->codes_upto(2), 'and goes on' if $ack->{last_seq} < 2;
    is totals($new), "2\t2\t0\t0\t0\t0", 'everything once';
};

subtest 'two daemons, one ring: real replays' => sub {
    my $other = Edgemeter::Node->start($stack, name => 'b')->wait_ready;
    my ($here) = opened(head => 6);
    my $there = link_to($other, session => $here->{session});
    is $there->hello(head => 6)->{last_seq}, 0, 'both think it is at 0';
    my $audits = rows('duplicate_audit');
    my @records = map { event(event_id => "twice-$_") } 1 .. 5;
    $here->data(1, @records[0 .. 2]);
    is_deeply $here->codes_upto(3), { map { $_ => 'accepted' } 1 .. 3 },
        'one brings three';
    $there->data(1, @records);
    is_deeply $there->codes_upto(5),
        { 1 => 'none', 2 => 'none', 3 => 'none', 4 => 'accepted',
        5 => 'accepted' }, 'the other five: three had come before';
    $here->data(4, @records[3, 4]);
    is_deeply $here->codes_upto(5), { 4 => 'none', 5 => 'none' },
        'the first brings the rest again';
    is totals($here), "5\t5\t0\t0\t0\t0", 'five in all';
    is rows('duplicate_audit'), $audits, 'replays are no duplicates';
    is $other->metric('edgemeter_edge_replays_total'), 3, 'but counted';
    $there->close;
    is $other->process->stop('TERM', 15), 1, 'it ends';
};

subtest 'what the records say' => sub {
    my ($link) = opened(head => 20);
    my $ts = 1_788_264_000_000_000;
    my %same = (event_id => 'order-1', attributes => { route => '/ids' });
    my @records = (
        event(%same),
        event(%same),
        event(%same, customer => 'somebody else'),
        event(event_id => 'x', type => 'no.such'),
        event(event_id => 'y', quantity => 'many'),
        event(attributes => { other => 1 }),
        dupnote(%same),
        dupnote(event_id => 'order-2', attributes => { route => '/ids' }),
        delta(type => 'api.delta', count => 40, quantity => '60.5',
            attributes => { route => '/sum' }),
        lossnote(count => 7, reasons => 1, first => $ts, last => $ts + 1e6),
        delta(type => 'api.request', count => 2),
    );
    my $letters = rows('dead_letter');
    $link->data(1, @records);
    my $code = $link->codes_upto(scalar @records);
    is_deeply [map { $code->{$_} } 1 .. @records],
        [qw(accepted duplicate conflict rejected rejected rejected duplicate
            accepted accepted none rejected)], 'a verdict each';
    is counter('/ids'), 2, 'ids count once';
    is_deeply [$stack->query('SELECT verdict FROM meter.duplicate_audit WHERE'
            . " event_id = 'order-1' ORDER BY item")], [1, 2, 1],
        'duplicates, conflicts and notices are audited';
    is rows("event_registry"), rows("event WHERE event_id NOT LIKE 'edge-%'"),
        'client ids are in the registry';
    my @letter = $stack->query('SELECT seq, tenant, reason FROM'
        . " meter.dead_letter WHERE session = '" . uuid($link)
        . "' ORDER BY seq");
    is rows('dead_letter') - $letters, 4, 'four dead letters';
    like $letter[0], qr/^4\tacme\t.*type/, 'an unknown type';
    like $letter[1], qr/^5\tacme\t.*quantity/, 'no decimal';
    like $letter[2], qr/^6\tacme\t.*route/, 'a missing attribute';
    like $letter[3], qr/^11\tacme\t/, 'a delta of a type that has none';
    is $stack->query('SELECT count, quantity FROM meter.event WHERE session ='
            . " '" . uuid($link) . "' AND seq = 9"), "40\t60.500000000",
        'a delta in the ledger';
    is counter('/sum'), 40, 'counts its requests';
    is $stack->query('SELECT count, reasons, first_at, last_at - first_at'
            . " FROM meter.edge_loss WHERE session = '" . uuid($link)
            . "' AND seq = 10"),
        "7\t1\t2026-09-01 12:00:00+00\t00:00:01", 'a loss is on record';
    is totals($link), "11\t42\t2\t1\t5\t7", 'totals are in requests';
};

subtest 'credit' => sub {
    my @idle = map { (opened())[0] } 1 .. 200;
    my ($link, $ack) = opened(head => 5000);
    my $limit = $ack->{seq_limit};
    cmp_ok $limit, '<=', 131_072 / 200, 'many rings, little credit each';
    cmp_ok $limit, '>=', 256, 'but some';
    my $body = event(attributes => { route => '/credit' });
    $link->data(1, ($body) x $limit);
    my ($durable, $credit) = (0, $limit);
    while ($durable < $limit || $credit < $limit + $limit / 4) {
        my $message = $link->receive(10) or last;
        $durable = $message->{durable_upto} // $durable;
        $credit  = $message->{seq_limit} // $credit;
    }
    is $durable, $limit, 'all it had is durable';
    cmp_ok $credit, '>=', $limit + $limit / 4, 'and gives new credit';
    $link->data($limit + 1, ($body) x ($credit - $limit));
    ok $link->codes_upto($credit), 'to the last record';
    is grows(protocol_errors_total => sub {
        $link->data($credit + 1, ($body) x 2000);
        1 while $link->receive(10);
    }), 1, 'a record past it is a protocol error';
    is +(split /\t/, totals($link))[0], $credit, 'and not taken';
    $_->close for @idle;
};

subtest 'versions, unknown frames and fields' => sub {
    my $link = link_to($node);
    is $link->hello(min => 1, max => 9)->{version}, 1, '1 to 9: 1';
    $link = link_to($node);
    is_deeply [@{ $link->hello(min => 2, max => 9) }{qw(type code version)}],
        ['NACK', 'version', 1], '2 to 9: none';
    ok $link->closed, 'and closed';

    my $field = \&Edgemeter::LinkClient::field;
    $link = link_to($node);
    is $link->hello(more => $field->(60, 'news'))->{type}, 'HELLO_ACK',
        'an unknown field is skipped';
    $link->send(99, 'something new');
    $link->send('DRAIN');
    $link->send('PONG');
    $link->data(1, event(more => $field->(61, 'more news')));
    is $link->wait_for('RESULT')->{durable_upto}, 1,
        'so is an unknown frame, and a field in a record';
    refused('an unknown critical frame', $link, 99, '', flags => 1);
    $link = link_to($node);
    refused('an unknown critical field', $link, 'HELLO',
        $link->hello_payload(more => $field->(60 | 0x8000, 'news')));
};

subtest 'what a worker must not send' => sub {
    my $link = link_to($node);
    refused('HELLO with another tag', $link, 'HELLO', $link->hello_payload,
        tag => 5);
    for my $numbers ({ head => 0 }, { head => 3, acked => 3 },
        { head => 3, oldest => 4 }) {
        $link = link_to($node);
        refused('HELLO with ' . join(' ', %$numbers), $link, 'HELLO',
            $link->hello_payload(%$numbers));
    }
    my %bad = (
        'a bad checksum'    => ['DATA', 'x', crc => 1],
        'another tag'       => ['PING', '',  tag => 5],
        'DATA of nothing'   => ['DATA', '',  seq => 1],
        'no records'        => ['DATA', 'x' x 64, seq => 1, count => 1],
        'a second HELLO'    => ['HELLO', $link->hello_payload],
        'a RESULT'          => ['RESULT', ''],
        'a REQUEST'         => ['REQUEST', ''],
        'more than it says' => ['DATA',
            join('', map { Edgemeter::LinkClient::record($_, @{ event() }) }
                1 .. 2), seq => 1, count => 1],
        'numbers that jump' => ['DATA',
            join('', map { Edgemeter::LinkClient::record($_, @{ event() }) }
                1, 3), seq => 1, count => 2],
    );
    for my $what (sort keys %bad) {
        my ($ring) = opened();
        refused($what, $ring, @{ $bad{$what} });
        is totals($ring), "0\t0\t0\t0\t0\t0", 'nothing is taken';
    }
    my $early = link_to($node);
    my $locker = lock_sessions();
    $early->send_hello(head => 2);
    refused('DATA before HELLO_ACK', $early, 'DATA',
        Edgemeter::LinkClient::record(1, @{ event() }), seq => 1, count => 1);
    unlock_sessions($locker);
};

subtest 'a worker that does not read' => sub {
    my ($link) = opened();
    my $pings = Edgemeter::FakeAggregator::frame(7, '', flags => 0,
        tag => $link->tag) x 1000;
    my $socket = $link->{socket};
    my $sent = 0;
    $socket->blocking(0);
    while ($sent < 1 << 26 && IO::Select->new($socket)->can_write(1)) {
        my $at = $sent % length $pings;
        $sent += syswrite($socket, $pings, length($pings) - $at, $at) // 0;
    }
    $socket->blocking(1);
    cmp_ok $sent, '<', 4 << 20, 'is not read from for ever';
    my $whole = int $sent / 40;
    my $got = grep { ($link->receive(10) // {})->{type} eq 'PONG' } 1 .. $whole;
    is $got, $whole, 'but gets every answer once it does';
};

subtest 'the database goes back' => sub {
    my ($link) = opened(head => 8);
    $link->data(1, map { event() } 1 .. 5);
    ok $link->codes_upto(5), 'five are durable';
    my $session = uuid($link);
    $stack->query("UPDATE meter.edge_session SET last_seq = 2, accepted = 2"
        . " WHERE session = '$session';"
        . " DELETE FROM meter.event WHERE session = '$session' AND seq > 2");
    $link->data(6, event());
    is_deeply [@{ $link->receive }{qw(type code)}], ['NACK', 'retry_after'],
        'what it gets next is not the next: start over';
    ok $link->closed, 'closed';

    my $again = link_to($node, session => $link->{session});
    is grows(edge_rewinds_total => sub {
        is $again->hello(head => 8, acked => 5)->{last_seq}, 2, 'it is at 2';
    }), 1, 'a rewind is counted';
    like $node->log, qr/holds less than a ring was told.*"acked":5.*:2\}/,
        'and said with both numbers';
    $again->data(3, event());
    is $again->wait_for('RESULT')->{durable_upto}, 3,
        'what the ring still has is taken again';
    my $third = link_to($node, session => $link->{session});
    is $third->hello(head => 8, acked => 4, oldest => 5)->{last_seq}, 4,
        'what it has no more is given up';
    is $node->metric('edgemeter_edge_records_missing_total'), 1, 'counted';
    is $stack->query('SELECT count, reasons FROM meter.edge_loss WHERE'
            . " session = '$session'"), "1\t8", 'and on record';
    $third->data(5, map { event() } 5 .. 7);
    ok $third->codes_upto(7), 'the rest follows';

    my $older = link_to($node, session => $link->{session});
    is grows(edge_rollbacks_total => sub {
        is $older->hello(head => 3, acked => 1)->{last_seq}, 7,
            'a ring file that is older than the database hears it';
    }), 1, 'and it is counted';
};

subtest 'the database is away' => sub {
    my ($link) = opened(head => 3);
    $stack->cluster->stop('immediate');
    $link->data(1, event(), event());
    my $hello = link_to($node);
    $hello->send_hello;
    for my $waiting ($link, $hello) {
        $waiting->send('PING', '', seq => $_) for 1 .. 3;
        is $waiting->receive(5)->{type}, 'PONG', 'PING is answered';
        is $waiting->receive(5)->{seq}, $_, 'again' for 2, 3;
    }
    $stack->start_part('postgres');
    is $hello->receive->{type}, 'HELLO_ACK', 'the hello waited';
    is_deeply $link->codes_upto(2), { 1 => 'accepted', 2 => 'accepted' },
        'so did the records';
    is totals($link), "2\t2\t0\t0\t0\t0", 'and came in once';
    $node->wait_ready;
};

subtest 'half a frame and silence' => sub {
    ok $half->closed(40), 'half a frame is not waited for';
    my $after = now() - $half_since;
    cmp_ok $after, '>=', 29, "in less than half a minute ($after s)"
        if $after < 35;
    $silent->send('PING', '', seq => 1);
    is $silent->receive->{type}, 'PONG', 'a silent link stays';
};

subtest 'the end' => sub {
    my ($idle) = opened();
    my ($busy) = opened(head => 5);
    my $locker = lock_sessions();
    $busy->data(1, event(), event());
    my $waiting = link_to($node);
    $waiting->send_hello;
    $waiting->send('PING');
    is $waiting->receive->{type}, 'PONG', 'one waits for its HELLO_ACK';
    $node->process->signal('TERM');
    is $idle->receive->{type}, 'DRAIN', 'nothing at work: DRAIN';
    is $idle->receive->{type}, 'BYE', 'and BYE';
    ok $idle->closed, 'closed';
    is_deeply [@{ $waiting->receive }{qw(type code)}],
        ['NACK', 'retry_after'], 'no HELLO_ACK yet: later';
    is $waiting->receive->{type}, 'BYE', 'BYE';

    is $busy->receive->{type}, 'DRAIN', 'records at work: DRAIN';
    $busy->data(3, event());
    is_deeply [@{ $busy->receive }{qw(type code)}],
        ['NACK', 'retry_after'], 'no more of them';
    $busy->send('PING');
    is $busy->receive->{type}, 'PONG', 'PING is answered';
    unlock_sessions($locker);
    is $busy->receive->{durable_upto}, 2, 'the result still comes';
    is $busy->receive->{type}, 'BYE', 'then BYE';
    ok $busy->closed, 'closed';
    wait_until { !$node->process->alive } 15, 'meterd is gone';
    is $node->process->status, 0, 'it ended well';
    is totals($busy), "2\t2\t0\t0\t0\t0", 'and took what it said';
};

$stack->stop;
done_testing;
