#!/usr/bin/perl

# 22-records.t - records of rings through ingest: numbers, replays, gaps,
# dead letters, losses, rewinds, the registry, deltas, withdrawal.
# record_client.c stands for the edge; this side moves the database and
# counts.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::RecordClient;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

my $stack = Edgemeter::Stack->for_test(
    rules => \<<'YAML')->start_schema;
idempotency: { futureSkew: 1h, pastSkew: 7d }
events:
  - { type: api.request, delta: true, required: [route] }
  - { type: api.plain }
  - { type: api.bytes, delta: true }
counters:
  - counterName: requests
    mode: persistent
    dimensions: [route]
    rules: [ { on: api.request, op: increment } ]
    idempotency: { requireEventId: true, scope: globalEventId }
  - counterName: bytes
    mode: persistent
    dimensions: []
    rules: [ { on: api.bytes, op: increment, by: size } ]
    idempotency: { requireEventId: true, scope: globalEventId }
YAML
my $client = Edgemeter::RecordClient->start($stack);

sub metric { return $client->ask("metric $_[0]", $_[0]) }

sub session {
    my ($number) = @_;
    my $uuid = sprintf('%02x', $number) x 16;
    return $stack->query("SELECT last_seq, accepted, duplicate, conflict,"
        . " rejected, lost FROM meter.edge_session WHERE session = '$uuid'")
        =~ s/\t/ /gr;
}

sub counter {
    my ($name, $dimensions) = @_;
    return $stack->query("SELECT value FROM meter.counter WHERE"
        . " counter_name = '$name' AND dimensions = '$dimensions'");
}

sub count_of {
    my ($from) = @_;
    return $stack->query("SELECT count(*) FROM $from");
}

# Every number of every session is in the books exactly once.
sub books_balance {
    my ($name) = @_;
    is $stack->query(<<'SQL'), "t\tt\tt\tt", "$name: the books balance";
WITH minted AS (SELECT session, seq FROM meter.event WHERE session IS NOT NULL),
covered AS (
    SELECT session, count(*) AS ledger, count(DISTINCT seq) AS numbers
    FROM minted GROUP BY session)
SELECT
    (SELECT bool_and(ledger = numbers) FROM covered),
    (SELECT bool_and(s.accepted = COALESCE((SELECT sum(count) FROM meter.event
        AS e WHERE e.session = s.session), 0)) FROM meter.edge_session AS s),
    (SELECT bool_and(last = (SELECT count(*) FROM meter.event AS e
        WHERE e.writer = w.writer)) FROM meter.writer_seq AS w),
    (SELECT count(*) FROM meter.event_registry)
        = (SELECT count(*) FROM meter.event WHERE flags & 32 = 0)
SQL
    return;
}

subtest 'hello, records, hello' => sub {
    is $client->ask('hello h 1 0', 'h'),
        'done last=0 verdicts=0/0/0/0 missing=0 counts=0/0/0/0',
        'a new session';
    is session(1), '0 0 0 0 0 0', 'has a row';
    is $client->ask("r EVENT a.route=/a times=3\nsend s 1 1", 's'),
        'done last=3 verdicts=3/0/0/0 missing=0 counts=3/0/0/0 codes=000',
        'three records';
    is session(1), '3 3 0 0 0 0', 'moved it';
    is counter('requests', '{"route":"/a"}'), 3, 'and were counted';
    is $client->ask("r EVENT a.route=/a times=40\nsend s 1 4", 's'),
        'done last=43 verdicts=43/0/0/0 missing=0 counts=40/0/0/0 codes='
        . '0' x 40, 'many records';
    is counter('requests', '{"route":"/a"}'), 43, 'were counted too';
    is $client->ask('hello h 1 0', 'h'),
        'done last=43 verdicts=43/0/0/0 missing=0 counts=0/0/0/0',
        'as the next hello hears';
    is $stack->query("SELECT node FROM meter.edge_session"), 'edge-1',
        'the node is named';
    my ($row) = $stack->query("SELECT event_id = 'edge-' || replace("
        . "session::text, '-', '') || '-' || seq || '-' ||"
        . " (extract(epoch FROM ts) * 1000000)::bigint, flags, count,"
        . " quantity, attributes FROM meter.event WHERE seq = 43");
    is $row, qq(t\t33\t1\t1.000000000\t{"route":"/a"}),
        'a ledger row names session, number and time';
    is count_of('meter.event_registry'), 0, 'minted ids need no registry';
    books_balance('plain');
};

subtest 'replays' => sub {
    my $replays = metric('edgemeter_edge_replays_total');
    is $client->ask("r EVENT a.route=/a times=3\nsend s 1 1", 's'),
        'done last=43 verdicts=43/0/0/0 missing=0 counts=0/0/0/0 codes=---',
        'old numbers have no effect';
    is $client->ask("r EVENT a.route=/a times=4\nsend s 1 42", 's'),
        'done last=45 verdicts=45/0/0/0 missing=0 counts=2/0/0/0 codes=--00',
        'new ones behind them have';
    is metric('edgemeter_edge_replays_total'), $replays + 5, 'counted';
    is $client->ask("r EVENT a.route=/a id=replay\nsend s 1 46", 's'),
        'done last=46 verdicts=46/0/0/0 missing=0 counts=1/0/0/0 codes=0',
        'a client\'s id';
    is $client->ask("r EVENT a.route=/a id=replay\nsend s 1 46", 's'),
        'done last=46 verdicts=46/0/0/0 missing=0 counts=0/0/0/0 codes=-',
        'comes again by its number';
    is count_of('meter.duplicate_audit'), 0, 'which is no duplicate';
    is $client->ask("r EVENT tenant= a.route=/a\nsend s 1 47", 's'),
        'done last=47 verdicts=46/0/0/1 missing=0 counts=0/0/0/1 codes=3',
        'a bad one';
    is $client->ask("r EVENT tenant= a.route=/a\nsend s 1 47", 's'),
        'done last=47 verdicts=46/0/0/1 missing=0 counts=0/0/0/0 codes=-',
        'comes again';
    is count_of('meter.dead_letter'), 1, 'and is one dead letter';
    books_balance('replays');
};

subtest 'gaps' => sub {
    my $gaps = metric('edgemeter_edge_gaps_total');
    is $client->ask("r EVENT a.route=/a times=2\nsend s 1 49", 's'),
        'gap counts=0/0/0/0 codes=--', 'a number is missing';
    is $client->ask("r EVENT a.route=/a\nsend s 9 1", 's'),
        'gap counts=0/0/0/0 codes=-', 'a session that never said hello';
    is metric('edgemeter_edge_gaps_total'), $gaps + 2, 'counted';
    is session(1), '47 46 0 0 1 0', 'nothing was taken';
    is_deeply [$client->ask_all(
        "r EVENT a.route=/a times=2\nsend a 1 48\n"
        . "r EVENT a.route=/a\nsend b 1 60\nr EVENT a.route=/a\nsend c 1 61\n"
        . "api d acme {\"event_id\":\"beside\",\"type\":\"api.plain\","
        . '"ts":"' . $client->now . '"}' . "\nhello e 1 0\n"
        . "r EVENT a.route=/a\nsend f 1 50", qw(a b c d e f))],
        [
            'done last=49 verdicts=48/0/0/1 missing=0 counts=2/0/0/0 codes=00',
            'gap counts=0/0/0/0 codes=-',
            'gap counts=0/0/0/0 codes=-',
            'done counts=1/0/0/0',
            'done last=49 verdicts=48/0/0/1 missing=0 counts=0/0/0/0',
            'done last=50 verdicts=49/0/0/1 missing=0 counts=1/0/0/0 codes=0',
        ], 'one batch: before it, the gap, beside it, and after a hello';
    is metric('edgemeter_edge_gaps_total'), $gaps + 3, 'one gap';
    $client->logged(qr/records of a ring are missing.*"expected":50,"seq":60/);
    books_balance('gaps');
};

subtest 'ids of clients' => sub {
    $client->ask('hello h 2 0', 'h');
    my $careful = metric('edgemeter_batches_careful_total');
    is $client->ask(
        "r EVENT a.route=/b id=one customer=c1\n"
        . "r EVENT a.route=/b id=one customer=c1 ts=5 a.status=500\n"
        . "r EVENT a.route=/b id=one customer=c2\n"
        . "r DUPNOTE a.route=/b id=one customer=c1\n"
        . "r EVENT a.route=/b id=edge-00000000000000000000000000000000-1-1\n"
        . "r EVENT a.route=/b id=%ff\n"
        . "r EVENT a.route=/b\nsend s 2 1", 's'),
        'done last=7 verdicts=4/2/1/0 missing=0 counts=4/2/1/0 codes=0121000',
        'first, again, other customer, note, and ids that are none';
    is metric('edgemeter_batches_careful_total'), $careful,
        'minted ids are not missed in the registry';
    is $stack->query("SELECT count(*), sum((payload IS NOT NULL)::int)"
        . " FROM meter.duplicate_audit WHERE event_id = 'one'"), "3\t3",
        'audited with what came';
    is counter('requests', '{"route":"/b"}'), 4, 'counted once each';
    is $client->ask("api x acme {\"event_id\":\"one\",\"type\":\"api.request\","
        . '"ts":"' . $client->now . '","customer":"c1",'
        . '"attributes":{"route":"/b"}}', 'x'), 'done counts=0/1/0/0',
        'the API meets the same id';
    is $client->ask("r EVENT a.route=/b id=calm times=30\nsend s 2 8", 's'),
        'done last=37 verdicts=5/31/1/0 missing=0 counts=1/29/0/0 codes=0'
        . '1' x 29, 'repeats in one frame';
    books_balance('ids');
};

subtest 'deltas' => sub {
    $client->ask('hello h 3 0', 'h');
    is $client->ask("r DELTA a.route=/d count=40 quantity=80.5\n"
        . "r DELTA type=api.bytes count=3 quantity=3 a.size=100\n"
        . "r DELTA type=api.plain count=2 quantity=2\n"
        . "r DELTA a.route=/d count=2\n"
        . "r DELTA a.route=/d count=0 quantity=1\nsend s 3 1", 's'),
        'done last=5 verdicts=43/0/0/4 missing=0 counts=2/0/0/3 codes=00333',
        'verdicts weigh as many requests as they stand for; a count of 0 none';
    is counter('requests', '{"route":"/d"}'), 40, 'counted';
    is counter('bytes', '{}'), 300, 'an amount in text, times the count';
    is $stack->query("SELECT count, quantity FROM meter.event WHERE"
        . " type = 'api.request' AND count > 1"), "40\t80.500000000",
        'count and sum in the ledger';
    is $client->ask("api x acme {\"event_id\":\"text\",\"type\":\"api.bytes\","
        . '"ts":"' . $client->now . '","attributes":{"size":"100"}}', 'x'),
        'done counts=0/0/0/1', 'the API is as strict as before';
    my $weights = join ' ', map { metric("edgemeter_edge_requests_${_}_total") }
        qw(accepted duplicate conflict rejected);
    is $weights, $stack->query("SELECT concat_ws(' ', sum(accepted),"
        . ' sum(duplicate), sum(conflict), sum(rejected))'
        . ' FROM meter.edge_session'), 'metrics say what the rows say';
    books_balance('deltas');
};

subtest 'what cannot be counted' => sub {
    $client->ask('hello h 4 0', 'h');
    my $dead = metric('edgemeter_dead_letters_total');
    my @cases = (
        ['tenant= a.route=/x',            '-',    'tenant is empty'],
        ['tenant=%ff a.route=/x',         '-',    'tenant is not UTF-8'],
        ['tenant=' . 'x' x 256,           '-',    'longer than 255'],
        ['raw=nothing',                   '-',    'not a captured event'],
        ['type=other a.route=/x',         'acme', 'unknown event type "other"'],
        ['a.route=/x quantity=1,2',       'acme', 'quantity'],
        ['a.route=/x quantity=-5',        'acme', 'quantity is negative: "-5"'],
        ['',                              'acme', 'attribute "route" is req'],
        ['a.route=/x ts=7200',            'acme', 'ahead of'],
        ['a.route=/x ts=-700000',         'acme', 'behind the'],
        ['a.route=/x customer=' . 'c' x 256, 'acme', 'customer is longer'],
        ['a.route=/x count=2',            'acme', 'count is 2'],
        ['type=api.bytes a.size=many',    'acme', 'attribute "size"'],
        ['a.route=' . 'r' x 1025,         'acme', 'longer than 1024'],
    );
    my @lines = map {"r EVENT $_->[0]"} @cases;
    is $client->ask(join("\n", @lines, 'send s 4 1'), 's'),
        'done last=14 verdicts=0/0/0/14 missing=0 counts=0/0/0/14 codes='
        . '3' x 14, 'all rejected, and the session moves';
    my @letters = $stack->query("SELECT tenant, reason, length(record) > 24,"
        . " recorded_at > now() - interval '1 minute' FROM meter.dead_letter"
        . " WHERE session = '" . '04' x 16 . "' ORDER BY seq");
    is scalar @letters, 14, 'each a dead letter';
    for my $i (0 .. $#cases) {
        my ($tenant, $reason, @rest) = split /\t/, $letters[$i];
        is $tenant, $cases[$i][1], "$reason: whose";
        like $reason, qr/\Q$cases[$i][2]\E/, 'why';
        is "@rest", 't t', 'whole, with its time';
    }
    is metric('edgemeter_dead_letters_total'), $dead + 14, 'counted';
    is $client->ask("r EVENT a.route=%c3%28 customer=a%00b a.long="
        . '%e2%82%ac' x 1000 . "\nsend s 4 15", 's'),
        'done last=15 verdicts=1/0/0/14 missing=0 counts=1/0/0/0 codes=0',
        'what can be kept is kept';
    is $stack->query("SELECT flags, customer, attributes LIKE"
        . q[ '%"route":"' || chr(65533) || '("}' FROM meter.event]
        . " WHERE session = '" . '04' x 16 . "' AND seq = 15"),
        "37\ta\x{ef}\x{bf}\x{bd}b\tt", 'replaced and flagged';
    books_balance('dead letters');
};

subtest 'frames that are none' => sub {
    is $client->ask("r EVENT a.route=/x\nspoil\nsend s 4 16", 's'),
        'bad counts=0/0/0/0 codes=-', 'a wrong checksum';
    is $client->ask("r PAD raw=0000\nsend s 4 16", 's'),
        'bad counts=0/0/0/0 codes=-', 'a PAD';
    is $client->ask('send s 4 16', 's'), 'bad counts=0/0/0/0', 'no record';
    is $client->ask("hello h 4 18446744073709551615", 'h'),
        'bad counts=0/0/0/0', 'a number out of range';
    like session(4), qr/^15 /, 'nothing was taken';
};

subtest 'losses' => sub {
    $client->ask('hello h 5 0', 'h');
    is $client->ask("r LOSSNOTE lost=7\nr EVENT a.route=/l\n"
        . "r LOSSNOTE raw=x\nsend s 5 1", 's'),
        'done last=3 verdicts=1/0/0/0 missing=0 counts=1/0/0/1 codes=-03',
        'a note of a loss, an event, a note that is none';
    is session(5), '3 1 0 0 0 7', 'in the session';
    is $stack->query('SELECT seq, node, count, reasons, first_at = last_at'
        . ' FROM meter.edge_loss'), "1\tedge-1\t7\t1\tt", 'in its own table';
    is metric('edgemeter_edge_requests_lost_total'), 7, 'in the metrics';
    is $client->ask("r LOSSNOTE lost=2\nsend s 5 4", 's'),
        'done last=4 verdicts=1/0/0/0 missing=0 counts=0/0/0/0 codes=-',
        'alone';
    is session(5), '4 1 0 0 0 9', 'added';
};

subtest 'the database went back' => sub {
    my $uuid = '05' x 16;
    $stack->query("UPDATE meter.edge_session SET last_seq = 2 WHERE"
        . " session = '$uuid'");
    is $client->ask('hello h 5 4', 'h'),
        'done last=3 verdicts=1/0/0/0 missing=1 counts=0/0/0/0',
        'one record is in no ring any more';
    is $stack->query("SELECT seq, count, reasons, first_at IS NULL FROM"
        . " meter.edge_loss WHERE session = '$uuid' AND seq = 3"),
        "3\t1\t8\tt", 'the loss is recorded';
    is metric('edgemeter_edge_records_missing_total'), 1, 'of one record';
    is $client->ask('hello h 5 2', 'h'),
        'done last=3 verdicts=1/0/0/0 missing=0 counts=0/0/0/0',
        'a ring that has more than is needed';
    is $client->ask("r LOSSNOTE lost=2\nsend s 5 4", 's'),
        'done last=4 verdicts=1/0/0/0 missing=0 counts=0/0/0/0 codes=-',
        'a loss that was told before the rewind';
    is $stack->query("SELECT count(*) FROM meter.edge_loss WHERE"
        . " session = '$uuid'"), 3, 'is not told twice';
    $stack->query("DELETE FROM meter.edge_session WHERE session = '$uuid'");
    is $client->ask("r EVENT a.route=/l\nsend s 5 5", 's'),
        'gap counts=0/0/0/0 codes=-', 'a row that is gone';
    is $client->ask('hello h 5 5', 'h'),
        'done last=4 verdicts=0/0/0/0 missing=4 counts=0/0/0/0',
        'is made again, with all that is missing';
    $stack->query("UPDATE meter.edge_session SET accepted = 1 WHERE"
        . " session = '$uuid'");
};

subtest 'the database refuses one record' => sub {
    $client->ask('hello h 6 0', 'h');
    $stack->query("ALTER TABLE meter.event ADD CONSTRAINT no_poison"
        . " CHECK (customer NOT LIKE 'poison%') NOT VALID");
    for my $type ('api.request', 'api.plain') {
        my ($last) = split / /, session(6);
        my $seq = $last + 1;
        my $got = $client->ask("r EVENT type=$type a.route=/p times=20\n"
            . "r EVENT type=$type a.route=/p customer=poison1\n"
            . "r EVENT type=$type a.route=/p times=20\nsend s 6 $seq", 's');
        like $got, qr{counts=40/0/0/1 codes=0{20}30{20}$},
            "$type: only that one";
        $last += 41;
        $seq = $last + 1;
        like $client->ask("r EVENT type=$type a.route=/p customer=poison2\n"
            . "send s 6 $seq", 's'), qr{^done last=$seq .* codes=3$},
            "$type: alone";
    }
    is session(6), '84 80 0 0 4 0', 'every number is covered';
    like $stack->query("SELECT string_agg(DISTINCT reason, '') FROM"
        . " meter.dead_letter WHERE session = '" . '06' x 16 . "'"),
        qr/SQLSTATE 23514/, 'the reason has the code';
    is $client->ask('api x acme [{"event_id":"poison","type":"api.plain",'
        . '"customer":"poison","ts":"' . $client->now . '"}]', 'x'),
        'done counts=0/0/0/1', 'an event of the API, alone, without counters';
    $stack->query("ALTER TABLE meter.dead_letter ADD CONSTRAINT no_letter"
        . " CHECK (reason NOT LIKE '%SQLSTATE%') NOT VALID");
    $client->tell("r EVENT a.route=/p customer=poison3\nsend stuck 6 85");
    $client->logged(qr/refuses the books of a ring/);
    $stack->query('ALTER TABLE meter.dead_letter DROP CONSTRAINT no_letter');
    like $client->answer('stuck'), qr{^done last=85 .* codes=3$},
        'a dead letter that cannot be kept is not given up';
    $stack->query('ALTER TABLE meter.event DROP CONSTRAINT no_poison');
    books_balance('refused');
};

subtest 'a counter that cannot take it' => sub {
    $client->ask('hello h 7 0', 'h');
    is $client->ask("r EVENT type=api.bytes a.size=9223372036854775000\n"
        . "r EVENT type=api.bytes a.size=1 id=big\n"
        . "r EVENT type=api.bytes a.size=9000\nsend s 7 1", 's'),
        'done last=3 verdicts=2/0/0/1 missing=0 counts=2/0/0/1 codes=003',
        'the one that would overflow';
    like $stack->query("SELECT reason FROM meter.dead_letter WHERE session"
        . " = '" . '07' x 16 . "'"), qr/would overflow/, 'is a dead letter';
    is counter('bytes', '{}'), '9223372036854775301', 'the others count';
    books_balance('overflow');
};

subtest 'a key registered while we wait for it' => sub {
    $client->ask('hello h 8 0', 'h');
    for my $case (
        ['api.request', 1,  1, 'done last=1 verdicts=0/1/0/0 missing=0'
            . ' counts=0/1/0/0 codes=1'],
        ['api.plain', 1,  2, 'done last=2 verdicts=0/2/0/0 missing=0'
            . ' counts=0/1/0/0 codes=1'],
        ['api.plain', 20, 3, 'done last=22 verdicts=19/3/0/0 missing=0'
            . ' counts=19/1/0/0 codes=1' . '0' x 19]) {
        my ($type, $size, $seq, $answer) = @$case;
        my $id = "race-$seq";
        my $record = "r EVENT type=$type a.route=/r id=$id";
        $client->ask("hello h 10 0", 'h');
        my ($last) = split / /, session(10);
        like $client->ask("$record\nsend s 10 " . ($last + 1), 's'),
            qr/codes=0$/, "$type: registered once";
        $stack->query('CREATE TABLE kept AS SELECT * FROM meter.event_registry'
            . ' WHERE first_seen_at = (SELECT max(first_seen_at) FROM'
            . ' meter.event_registry)');
        $stack->query('DELETE FROM meter.event_registry WHERE key IN'
            . ' (SELECT key FROM kept)');
        my $holder = $client->holder(
            'INSERT INTO meter.event_registry SELECT * FROM kept');
        my $more = $size - 1;
        is $client->ask($record . ($more
            ? "\nr EVENT type=$type a.route=/r times=$more" : '')
            . "\nsend s 8 $seq", 's'), $answer, "$type, $size: a duplicate";
        wait_until { !$holder->alive } 10, 'the other transaction ends';
        $stack->query('DROP TABLE kept');
    }
    books_balance('race');
};

subtest 'withdrawn' => sub {
    $client->ask('hello h 11 0', 'h');
    my $holder = $client->holder(
        'SELECT FROM meter.edge_session FOR UPDATE',
        "SELECT FROM pg_class WHERE relname = 'let_go'");
    $client->tell("r EVENT a.route=/w\nsend a 11 1");
    wait_until { $stack->query('SELECT count(*) FROM pg_locks WHERE'
        . ' NOT granted') > 0 } 10, 'a transaction waits';
    $client->tell("r EVENT a.route=/w times=2\nsend b 11 2\nwithdraw b\n"
        . 'withdraw a');
    $stack->query('CREATE TABLE let_go ()');
    is $client->ask('hello c 11 0', 'c'),
        'done last=1 verdicts=1/0/0/0 missing=0 counts=0/0/0/0',
        'one was on its way, those that no transaction had are not taken';
    $stack->query('DROP TABLE let_go');
    is $client->ask("r EVENT a.route=/w\nsend s 11 2", 's'),
        'done last=2 verdicts=2/0/0/0 missing=0 counts=1/0/0/0 codes=0',
        'the ring sends them again';
    books_balance('withdrawn');
};

subtest 'two lanes and one session' => sub {
    my $other = Edgemeter::RecordClient->start($stack, state => 'other');
    $client->ask('hello h 13 0', 'h');
    like $client->ask("r EVENT a.route=/two\nsend s 13 1", 's'),
        qr/^done last=1 /, 'a record';
    # The next one has its session's row and waits for a counter's.
    my $holder = $client->holder("SELECT FROM meter.counter WHERE"
        . q( dimensions = '{"route":"/two"}' FOR UPDATE),
        "SELECT FROM pg_class WHERE relname = 'let_go'");
    $client->tell("r EVENT a.route=/two\nsend old 13 2");
    wait_until { $stack->query('SELECT count(*) FROM pg_locks WHERE'
        . ' NOT granted') > 0 } 10, 'a transaction waits';
    $other->tell("hello new 13 0");
    wait_until { $stack->query('SELECT count(*) FROM pg_locks WHERE'
        . ' NOT granted') > 1 } 10, 'the hello of another lane waits too';
    $stack->query('CREATE TABLE let_go ()');
    is $other->answer('new'),
        'done last=2 verdicts=2/0/0/0 missing=0 counts=0/0/0/0',
        'and hears what was on its way';
    like $client->answer('old'), qr/^done last=2 /, 'which was committed';
    $stack->query('DROP TABLE let_go');
    is $other->ask("r EVENT a.route=/two times=2\nsend s 13 2", 's'),
        'done last=3 verdicts=3/0/0/0 missing=0 counts=1/0/0/0 codes=-0',
        'the other lane goes on';
    is $client->ask("r EVENT a.route=/two times=2\nsend s 13 3", 's'),
        'done last=4 verdicts=4/0/0/0 missing=0 counts=1/0/0/0 codes=-0',
        'and so could this one';
    is counter('requests', '{"route":"/two"}'), 4, 'each counted once';
    $other->tell('end');
    wait_until { !$other->alive } 20, 'the other client ends';
    books_balance('lanes');
};

subtest 'rings wait where the API does not' => sub {
    $client->ask('hello h 12 0', 'h');
    $stack->query('REVOKE UPDATE ON meter.edge_session FROM meter_writer');
    my $late = metric('edgemeter_answers_late_total');
    $client->tell("r EVENT a.route=/w\nsend ring 12 1");
    $client->logged(qr/transactions do not go through/);
    is $client->ask('api x acme {"event_id":"late","type":"api.plain",'
        . '"ts":"' . $client->now . '"}', 'x'), 'unavailable counts=0/0/0/0',
        'an event of the API is given up after its time';
    is metric('edgemeter_answers_late_total'), $late + 1, 'it alone';
    $stack->query('GRANT UPDATE ON meter.edge_session TO meter_writer');
    is $client->answer('ring'),
        'done last=1 verdicts=1/0/0/0 missing=0 counts=1/0/0/0 codes=0',
        'the record was kept';
    books_balance('waited');
};

subtest 'the database goes away' => sub {
    my $epoch = $client->ask('epoch', 'epoch');
    isnt $epoch, '0', 'an incarnation';
    $stack->cluster->stop('immediate');
    $client->tell("r EVENT a.route=/away times=20\nsend away 12 2");
    $stack->start_part('postgres');
    is $client->answer('away'), 'done last=21 verdicts=21/0/0/0 missing=0'
        . ' counts=20/0/0/0 codes=' . '0' x 20, 'and comes back';
    is $client->ask('epoch', 'epoch'), $epoch, 'the same incarnation';
    books_balance('away');
};

$client->tell('end');
wait_until { !$client->alive } 20, 'the client ends';
is $client->status, 0, 'the client ended well';
done_testing;
