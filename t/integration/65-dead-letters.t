#!/usr/bin/perl

# 65-dead-letters.t - `meterd dead-letter`: rejected records of rings are
# listed and shown, and booked exactly once when the rules have been mended,
# while meterd goes on.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use JSON::PP ();
use Test::More;
use Edgemeter::LinkClient qw(event delta dupnote lossnote minted_id);
use Edgemeter::Node;
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until poll_until);

# Before, one of the types is missing.
my $after = <<'YAML';
events:
  - { type: api.request, required: [route] }
  - { type: api.new, required: [route], delta: true }
counters:
  - counterName: requests
    mode: persistent
    dimensions: [route]
    rules:
      - { on: api.request, op: increment }
      - { on: api.new, op: increment }
    idempotency: { requireEventId: true, scope: globalEventId }
YAML
my $before = $after =~ s/^.*api\.new.*\n//mgr;

my $stack = Edgemeter::Stack->for_test(rules => \$before);
$stack->start_schema;
my $scratch = $stack->place->path('tmp');
my %node = map {
    $_ => Edgemeter::Node->start($stack, name => $_)->wait_ready
} qw(a b);
my $JSON = JSON::PP->new->utf8;

sub rules {
    my ($name, $text) = @_;
    my $path = "$scratch/$name.rules";
    Edgemeter::Place::replace_file($path, 0644, $stack->account, $text);
    return $path;
}

my $old = rules(old => $before);
my $new = rules(new => $after);

# The command as on the host of a node, with these rules.
sub command {
    my ($rules, $host, @words) = @_;
    return [$stack->{program}, 'dead-letter', @words, '-c', $rules, '-c',
        "$scratch/$host.yaml"];
}

sub dead_letter {
    my ($rules, @words) = @_;
    my ($status, $out, $err) = Edgemeter::Process::capture(
        command => command($rules, 'a', @words), user => $stack->account);
    return ($status & 127 || $status >> 8, $out, $err);
}

sub link_to {
    my ($name, %arg) = @_;
    my $link = Edgemeter::LinkClient->new($node{$name}->socket, %arg)
        // die "nobody listens\n";
    my $ack = $link->hello(head => 1000, node => 'gw-7');
    die "no HELLO_ACK\n" unless $ack && $ack->{type} eq 'HELLO_ACK';
    $link->{next} = $ack->{last_seq} + 1;
    return $link;
}

# Sends records; gives back their codes.
sub send_all {
    my ($link, @records) = @_;
    my $first = $link->{next};
    $link->{next} += @records;
    $link->data($first, @records);
    my $code = $link->codes_upto($link->{next} - 1) // {};
    return join ' ', map { $code->{$_} // '?' } $first .. $link->{next} - 1;
}

sub uuid { return Edgemeter::LinkClient::uuid($_[0]{session}) }

sub identity {
    my ($link, $seq) = @_;
    return unpack('H*', $link->{session}) . "-$seq";
}

sub totals {
    my ($link) = @_;
    return $stack->query(
        'SELECT last_seq, accepted, duplicate, conflict, rejected, lost FROM'
            . " meter.edge_session WHERE session = '" . uuid($link) . "'")
        =~ s/\t/ /gr;
}

sub letters {
    my ($link) = @_;
    return join ' ', $stack->query('SELECT seq FROM meter.dead_letter'
        . ($link ? " WHERE session = '" . uuid($link) . "'" : '')
        . ' ORDER BY session, seq');
}

sub booked {
    my ($link) = @_;
    return join ' ', $stack->query('SELECT seq FROM meter.event'
        . " WHERE session = '" . uuid($link) . "' ORDER BY seq, writer");
}

sub counter {
    my ($route) = @_;
    return $stack->query('SELECT COALESCE(sum(value), 0) FROM meter.counter'
        . qq( WHERE dimensions = '{"route":"$route"}'));
}

# What holds whatever happened: counted is booked, once, with dense numbers.
sub books_balance {
    my ($name) = @_;
    my %rule = (
        'sessions and ledger' => q{
            SELECT s.session FROM meter.edge_session s
              LEFT JOIN (SELECT session, sum(count) n FROM meter.event
                          GROUP BY 1) e USING (session)
             WHERE s.accepted <> COALESCE(e.n, 0)},
        'no number twice' => q{
            SELECT seq FROM meter.event GROUP BY session, seq
            HAVING count(*) > 1},
        'booked or a letter' => q{
            SELECT e.seq FROM meter.event e
              JOIN meter.dead_letter d USING (session, seq)},
        'counters and ledger' => q{
            SELECT dimensions FROM
                (SELECT dimensions, sum(value) v FROM meter.counter
                  GROUP BY 1) c
                FULL JOIN
                (SELECT jsonb_build_object('route',
                        attributes::jsonb->'route') d, sum(count) n
                   FROM meter.event GROUP BY 1) e
                ON c.dimensions::jsonb = e.d
             WHERE c.v IS DISTINCT FROM e.n},
        'ids and ledger' => q{
            SELECT count(*) FROM meter.event WHERE flags & 32 = 0
            HAVING count(*) <> (SELECT count(*) FROM meter.event_registry)},
        'dense numbers' => q{
            SELECT writer FROM meter.writer_seq w
             WHERE last <> (SELECT count(*) FROM meter.event e
                             WHERE e.writer = w.writer)
                OR last <> (SELECT COALESCE(max(writer_seq), 0)
                              FROM meter.event e WHERE e.writer = w.writer)},
    );
    for my $what (sort keys %rule) {
        is join('; ', $stack->query($rule{$what})), '', "$name: $what";
    }
    return;
}

my $link = link_to('a');
my %same = (type => 'api.new', attributes => { route => '/id' });

subtest 'letters come to be' => sub {
    is send_all($link,
        event(attributes => { route => '/plain' }),
        event(type => 'api.new', attributes => { route => '/new' },
            customer => "c\x1b[31m", quantity => '2.5'),
        event(quantity => 'many'),
        event(%same, event_id => 'free'),
        delta(type => 'api.new', count => 40, quantity => '60.5',
            attributes => { route => '/sum' }),
        event(%same, event_id => 'taken'),
        event(%same, event_id => 'other', customer => 'us'),
        [event => 'nothing'],
        dupnote(%same, event_id => 'noted'),
        ), 'accepted' . ' rejected' x 8, 'a verdict each';
    is totals($link), '9 1 0 0 47 0', 'rejected requests are counted';
    is letters($link), '2 3 4 5 6 7 8 9', 'each of them a letter';
};

subtest 'list' => sub {
    my ($status, $out, $err) = dead_letter($old, 'list');
    is $status, 0, 'status 0';
    is $err, '', 'nothing on stderr';
    my @lines = split /\n/, $out;
    like shift @lines, qr/^RECORDED +TENANT +IDENTITY +TYPE +REASON$/, 'a head';
    my $last = pop @lines;
    is scalar @lines, 8, 'a line each';
    my $session = unpack 'H*', $link->{session};
    like $lines[0], qr/^20\S+Z\ +acme\ +$session-9\ +api\.new\ +
        unknown\ event\ type\ "api\.new"$/x, 'newest first';
    like $lines[7], qr/ $session-2 +api\.new +unknown/, 'oldest last';
    like $lines[1], qr/  - +$session-8 +- +not a captured event$/,
        'one that nobody can read, and no tenant';
    like $last, qr/^8\ in\ all:\ 6\ unknown\ event\ type\ "api\.new";
        \ 1\ not\ a\ captured\ event;\ 1\ quantity\ .*"many"$/x, 'a summary';

    ($status, $out) = dead_letter($old, 'list', '--limit', 2);
    is scalar(() = $out =~ /^20/mg), 2, '--limit';
    like $out, qr/^8 in all/m, 'does not limit the summary';
    ($status, $out) = dead_letter($old, 'list', '--tenant', '-');
    is scalar(() = $out =~ /^20/mg), 1, '--tenant';
    like $out, qr/^1 in all/m, 'limits it';
    ($status, $out) = dead_letter($old, 'list', '--since',
        '2100-01-01T00:00:00Z');
    like $out, qr/\A.*\n0 in all\n\z/, '--since';

    ($status, $out) = dead_letter($old, 'list', '--json', '--limit', 3);
    my $list = $JSON->decode($out);
    is scalar @{ $list->{letters} }, 3, 'JSON';
    is $list->{total}, 8, 'with the total';
    is $list->{letters}[2]{identity}, "$session-7", 'and identities';
    is_deeply $list->{reasons}[0], { reason => 'unknown event type "api.new"',
        letters => 6 }, 'and reasons';
};

subtest 'show' => sub {
    my ($status, $out) = dead_letter($old, 'show', identity($link, 2));
    is $status, 0, 'status 0';
    like $out, qr/^identity +\Q@{[identity($link, 2)]}\E$/m, 'whose';
    like $out, qr/^reason +unknown event type "api\.new"$/m, 'why';
    like $out, qr/^node +gw-7$/m, 'where';
    like $out, qr/^record +event, \d+ bytes$/m, 'what';
    my ($json) = $out =~ /^event +(\{.*\})$/m;
    is_deeply $JSON->decode($json), {
        tenant => 'acme', type => 'api.new',
        ts => '2026-09-01T12:00:00.000000Z',
        customer => "c\x1b[31m", quantity => '2.5', count => 1, flags => 1,
        attributes => { route => '/new' },
    }, 'the whole event';
    unlike $out, qr/\x1b/, 'nothing for the terminal to obey';
    my $dashed = uuid($link) . '-5';
    ($status, $out) = dead_letter($old, 'show', '--json', $dashed);
    my $letter = $JSON->decode($out);
    is $letter->{kind}, 'delta', 'JSON, by a UUID';
    is $letter->{event}{count}, 40, 'a delta';
    ($status, $out) = dead_letter($old, 'show', identity($link, 8));
    like $out, qr/^bytes +"[0-9a-f]+"$/m, 'what cannot be read, as digits';
    ($status, $out, my $err) = dead_letter($old, 'show', identity($link, 1));
    is $status, 1, 'no letter: 1';
    like $err, qr/no dead letter/, 'and a reason';
    is $out, '', 'and nothing else';
};

subtest 'usage' => sub {
    my $id = identity($link, 2);
    for my $words ([], ['frobnicate'], ['list', $id], ['show'],
        ['show', 'x'], ['show', "$id-"], ['show', $id, '--tenant', 'acme'],
        ['list', '--since', 'yesterday'], ['list', '--limit', '0'],
        ['list', '--all'], ['list', '--limit', '1x'], ['replay'],
        ['replay', $id, '--all'], ['replay', '--all', '--tenant', 'acme'],
        ['replay', '--all', '--json'], ['replay', $id, 'more'],
        ['replay', '--nope']) {
        my ($status, $out, $err) = dead_letter($new, @$words);
        is $status, 2, "@$words: status 2";
        is $out, '', 'nothing on stdout';
        isnt $err, '', 'a reason';
    }
    my ($status, $out) = dead_letter($old, '--help');
    is $status, 0, 'help';
    like $out, qr/^usage: meterd dead-letter list/, 'on stdout';
};

subtest 'the rules are as they were' => sub {
    my ($status, $out) = dead_letter($old, 'replay', '--all', '--dry-run');
    is $status, 1, 'a dry run: 1';
    like $out, qr/^dry run: 0 acceptable, 8 rejected$/m, 'nothing would go';
    ok !-e $node{a}->state_dir . '/replay', 'and leaves nothing behind';
    ($status, $out) = dead_letter($old, 'replay', '--tenant', 'acme');
    is $status, 1, 'a real one: 1';
    is scalar(() = $out =~ /^\Q@{[unpack 'H*', $link->{session}]}\E-\d+
        \ stays:\ (?:unknown|quantity)/mgx), 7, 'each is told with its reason';
    like $out, qr/^replayed: 0 accepted, 0 duplicate, 0 conflict; 7 rejected$/m,
        'counts';
    is totals($link), '9 1 0 0 47 0', 'nothing has moved';
    is letters($link), '2 3 4 5 6 7 8 9', 'all are there';
    books_balance('old rules');
};

subtest 'the rules are mended' => sub {
    Edgemeter::Place::replace_file(($stack->config_arguments)[1], 0644,
        $stack->account, $after);
    for my $name (sort keys %node) {
        $node{$name}->process->signal('HUP');
        ok poll_until(sub {
            $node{$name}->metric('edgemeter_config_reloads_total') > 0
        }, 10), "$name knows them";
    }
    my ($status, $out) = dead_letter($new, 'replay', '--all', '--dry-run');
    is $status, 1, 'a dry run: 1';
    like $out, qr/^dry run: 6 acceptable, 2 rejected$/m, 'most would go';
    is letters($link), '2 3 4 5 6 7 8 9', 'all are still there';
};

subtest 'one letter' => sub {
    my ($status, $out, $err) = dead_letter($new, 'replay', identity($link, 2));
    is $status, 0, 'status 0';
    is $err, '', 'nothing on stderr';
    is $out, "replayed: 1 accepted, 0 duplicate, 0 conflict; 0 rejected\n",
        'counted';
    is $stack->query('SELECT event_id, quantity, count, tenant FROM'
            . " meter.event WHERE session = '" . uuid($link)
            . "' AND seq = 2"),
        minted_id($link->{session}, 2) . "\t2.500000000\t1\tacme",
        'in the ledger under its own identity';
    is counter('/new'), 1, 'in the counter';
    is totals($link), '9 2 0 0 46 0', 'in the session';
    is $stack->query("SELECT node FROM meter.edge_session WHERE session = '"
            . uuid($link) . "'"), 'gw-7', 'whose node it leaves alone';
    is letters($link), '3 4 5 6 7 8 9', 'and no letter any more';
    ($status, $out, $err) = dead_letter($new, 'replay', identity($link, 2));
    is $status, 1, 'again: 1';
    like $err, qr/no dead letter/, 'it is gone';
    is counter('/new'), 1, 'and counts no more';
    books_balance('one');
};

subtest 'ids that came meanwhile, and the rest' => sub {
    my $more = link_to('b');
    is send_all($more, event(%same, event_id => 'taken'),
        event(%same, event_id => 'other', customer => 'them')),
        'accepted accepted', 'two ids are registered';
    my ($status, $out) = dead_letter($new, 'replay', '--tenant', 'acme');
    is $status, 1, 'one cannot go: 1';
    like $out, qr/^\Q@{[identity($link, 3)]}\E stays: quantity/m, 'it is told';
    like $out, qr/^replayed: 3 accepted, 1 duplicate, 1 conflict; 1 rejected$/m,
        'counts';
    is totals($link), '9 44 1 1 2 0', 'in requests';
    is letters($link), '3 8', 'two stay';
    is booked($link), '1 2 4 5 9', 'those that are accepted are booked';
    is counter('/sum'), 40, 'a delta stands for its requests';
    is join(' ', $stack->query('SELECT event_id, verdict FROM'
            . ' meter.duplicate_audit ORDER BY event_id')),
        "other\t2 taken\t1", 'the others are audited';
    is $stack->query('SELECT bool_and(first_seen_at < duplicate_seen_at)'
            . ' FROM meter.duplicate_audit'), 't', 'as seen again';
    books_balance('ids');
    $link->close;
    my $again = Edgemeter::LinkClient->new($node{a}->socket,
        session => $link->{session});
    my $ack = $again->hello(head => 1000, node => 'gw-7');
    is_deeply [@$ack{qw(last_seq verdicts)}], [9, [44, 1, 1, 2]],
        'the ring hears of it when it comes again';
};

# A tenant with many letters, and a ring that goes on while they are replayed.
sub many {
    my ($tenant, $count, $ids) = @_;
    my $ring = link_to('a');
    my @records = map {
        event(tenant => $tenant, type => 'api.later',
            attributes => { route => "/$tenant" },
            $_ % 3 == 0 ? (event_id => "$tenant-" . $_ % $ids) : ())
    } 1 .. $count;
    is send_all($ring, @records), join(' ', ('rejected') x $count),
        "$count letters of $tenant";
    return $ring;
}

my $later = rules(later => $after =~ s/api\.new/api.later/gr);

subtest 'many at a time' => sub {
    my $ring = many(busy => 300, 30);
    my @commands = (
        (map { command($later, $_, 'replay', '--tenant', 'busy') }
            qw(a b a b)),
        command($later, 'b', 'replay', '--all'),
    );
    my @replays = map {
        Edgemeter::Process->spawn(name => "replay$_",
            log => "$scratch/replay$_.log", user => $stack->account,
            command => $commands[$_])
    } 0 .. $#commands;
    my $sent = 0;
    wait_until {
        $sent++;
        send_all($ring, event(attributes => { route => '/busy-ring' }));
        !grep { $_->alive } @replays
    } 120, 'all replays end';
    my %sum;
    for my $i (0 .. $#replays) {
        open my $file, '<', "$scratch/replay$i.log" or die $!;
        my $text = do { local $/; <$file> };
        my ($line) = $text =~ /^replayed: (.*)$/m;
        ok defined $line, "replay $i came to its end" or diag $text;
        $sum{$2} += $1 while ($line // '') =~ /(\d+) (\w+)/g;
        is $replays[$i]->status >> 8, $i == $#replays ? 1 : 0, 'its status';
    }
    # 200 minted, 10 ids of 10 each.
    is $sum{accepted}, 210, 'each is accepted by one of them';
    is $sum{duplicate}, 90, 'repeats of an id are duplicates';
    is letters($ring), '', 'none is left';
    is counter('/busy'), 210, 'counted';
    is counter('/busy-ring'), $sent, 'the ring went on';
    is totals($ring), join(' ', 300 + $sent, 210 + $sent, 90, 0, 0, 0),
        'and its session agrees';
    books_balance('many');
};

subtest 'it dies on the way' => sub {
    # Whether the letter in hand is booked then; the one before it is.
    my @points = (
        [after_read        => 0], [after_session_lock => 0],
        [after_letter      => 0], [after_known        => 0],
        [after_ledger      => 0], [after_counters     => 0],
        [before_commit     => 0], [after_commit_sent  => undef],
        [after_commit      => 1], [before_answer      => 1],
    );
    my $count = 3 * @points;
    my $ring  = many(dying => $count, 1_000_000);
    my $left  = $count;
    for my $point (@points) {
        my ($where, $is_booked) = @$point;
        my ($status) = Edgemeter::Process::capture(
            command => command($later, 'a', 'replay', '--tenant', 'dying'),
            user => $stack->account,
            env => { METERD_CRASH_POINT => "$where:2" });
        is $status & 127, 9, "$where: killed";
        wait_until {
            $stack->query("SELECT count(*) FROM pg_stat_activity WHERE"
                . " application_name = 'meterd lane-0'") == 2
        } 20, 'its connection is gone';
        my $now = split ' ', letters($ring);
        is $now, $left - 1 - ($is_booked // $left - 1 - $now),
            'what was committed is booked';
        ok $now == $left - 1 || $now == $left - 2, 'no other is touched';
        $left = $now;
        books_balance($where);
    }
    my ($status) = dead_letter($later, 'replay', '--tenant', 'dying');
    is $status, 0, 'and in the end all are booked';
    is letters($ring), '', 'none is left';
    is counter('/dying'), $count, 'once each';
    is totals($ring), "$count $count 0 0 0 0", 'and in the session';
    books_balance('the end');
};

subtest 'what the database refuses stays' => sub {
    my $ring = many(poor => 2, 1_000_000);
    $stack->query("ALTER TABLE meter.event ADD CONSTRAINT poor"
        . " CHECK (tenant <> 'poor') NOT VALID");
    my ($status, $out) = dead_letter($later, 'replay', '--tenant', 'poor');
    is $status, 1, 'status 1';
    is scalar(() = $out =~ /stays: the database cannot store .* 23514/g), 2,
        'with the reason';
    is letters($ring), '1 2', 'they are there';
    is totals($ring), '2 0 0 0 2 0', 'and rejected';
    $stack->query('ALTER TABLE meter.event DROP CONSTRAINT poor');
    is +(dead_letter($later, 'replay', '--tenant', 'poor'))[0], 0,
        'until it does not';
    is totals($ring), '2 2 0 0 0 0', 'booked';
    books_balance('refused');
};

subtest 'a letter does not grow old' => sub {
    my $days = 86_400 * 1_000_000;
    my $ring = link_to('a');
    my $ts = (time - 20 * 86_400) * 1_000_000;
    is send_all($ring, map {
            event(tenant => 'aged', type => 'api.later', ts => $ts - $_ * $days,
                attributes => { route => '/aged' })
        } 1, 9), 'rejected rejected', 'two letters';
    $stack->query("UPDATE meter.dead_letter SET recorded_at = recorded_at"
        . " - interval '20 days' WHERE tenant = 'aged'");
    my $strict = rules(strict => ($after =~ s/api\.new/api.later/gr)
        . "idempotency: { pastSkew: 7d }\n");
    my ($status, $out) = dead_letter($strict, 'replay', '--tenant', 'aged');
    is $status, 1, 'status 1';
    like $out, qr/^\Q@{[identity($ring, 2)]}\E stays: ts is .* behind/m,
        'too old even when it came';
    is booked($ring), '1', 'the other is not too old now';
    is $stack->query("SELECT part_day FROM meter.event WHERE tenant = 'aged'"),
        $stack->query('SELECT to_timestamp(' . ($ts - $days) / 1e6
            . ')::date'), 'on its own day';
    is +(dead_letter($later, 'replay', identity($ring, 2)))[0], 0,
        'rules that do not mind';
    books_balance('aged');
};

subtest 'a letter that it cannot bear' => sub {
    my $ring = link_to('a');
    is send_all($ring, map {
            event(tenant => 'poison', type => 'api.later', customer => $_,
                attributes => { route => '/poison' })
        } qw(hemlock water)), 'rejected rejected', 'two letters';
    my $replay = sub {
        return Edgemeter::Process::capture(
            command => command($later, 'a', 'replay', '--tenant', 'poison'),
            user => $stack->account,
            env => { METERD_TEST_POISON => 'hemlock' });
    };
    for my $try (1 .. 3) {
        my ($status) = $replay->();
        ok $status & 127 || $status >> 8 > 1, "crash $try";
        is letters($ring), '1 2', 'nothing is touched';
    }
    my ($status, $out, $err) = $replay->();
    is $status >> 8, 1, 'then it is passed over: 1';
    like $err, qr/a record was in hand/, 'and named';
    like $out, qr/^\Q@{[identity($ring, 1)]}\E stays: set aside unread/m,
        'as unread';
    is booked($ring), '2', 'the other one is booked';
    unlink $node{a}->state_dir . '/replay/poison' or die $!;
    is +(dead_letter($later, 'replay', '--tenant', 'poison'))[0], 0,
        'a program that can bear it books it';
    is counter('/poison'), 2, 'once each';
    books_balance('poison');
};

subtest 'a session that is forgotten' => sub {
    my $ring = many(lost => 2, 1_000_000);
    $ring->close;
    $stack->query("DELETE FROM meter.edge_session WHERE session = '"
        . uuid($ring) . "'");
    my ($status, $out) = dead_letter($later, 'show', identity($ring, 1));
    like $out, qr/^node +-$/m, 'has no node';
    is +(dead_letter($later, 'replay', '--tenant', 'lost'))[0], 0,
        'its letters are booked all the same';
    is booked($ring), '1 2', 'once each';
    is counter('/lost'), 2, 'and counted';
};

subtest 'it takes a while' => sub {
    my $ring = many(slow => 3, 1_000_000);
    my $locker = Edgemeter::Process->spawn(
        name => 'locker', log => "$scratch/locker.log",
        user => $stack->account,
        command => [$stack->cluster->{bin} . '/psql', '-q', '--dbname',
            $stack->database_url, '-c', "BEGIN; SELECT FROM meter.edge_session"
                . " WHERE session = '" . uuid($ring) . "' FOR UPDATE;"
                . ' SELECT pg_sleep(4); COMMIT'],
    );
    wait_until {
        $stack->query("SELECT count(*) FROM pg_stat_activity"
            . " WHERE query LIKE '%pg_sleep%' AND wait_event = 'PgSleep'")
    } 10, 'someone holds the session';
    my ($status, $out, $err) = dead_letter($later, 'replay', '--tenant',
        'slow');
    is $status, 0, 'it waits';
    is $err, "meterd dead-letter: 1 of 3 letters\n", 'and says how far it is';
    is booked($ring), '1 2 3', 'and books';
    wait_until { !$locker->alive } 10, 'the session is free';
};

# A letter as meterd would have left it.
sub plant {
    my ($ring, $seq, $record) = @_;
    my $hex = unpack 'H*', $record;
    $stack->query("INSERT INTO meter.dead_letter VALUES ('planted', '"
        . uuid($ring) . qq(', $seq, 'set aside', '\\x$hex', now\(\)\)));
    return;
}

subtest 'letters of other kinds' => sub {
    my $ring = link_to('a');
    is send_all($ring, map { event() } 1 .. 6), join(' ', ('accepted') x 6),
        'a ring';
    my $record = \&Edgemeter::LinkClient::record;
    my $event = event(tenant => 'planted', type => 'api.later',
        attributes => { route => '/planted' });
    plant($ring, 1, $record->(1, @{ lossnote(count => 7) }));
    plant($ring, 2, 'torn');
    plant($ring, 3, $record->(4, @$event));
    plant($ring, 5, $record->(5, @$event)) for 1, 2;
    plant($ring, 6, $record->(6, @$event) . 'x');
    $stack->query("UPDATE meter.edge_session SET rejected = 1 WHERE session"
        . " = '" . uuid($ring) . "'");
    $stack->query("DELETE FROM meter.event WHERE session = '" . uuid($ring)
        . "' AND seq = 5");
    my ($status, $out) = dead_letter($later, 'replay', '--tenant', 'planted');
    is $status, 1, 'status 1';
    like $out, qr/^replayed: 2 accepted, .*; 3 rejected$/m, 'counts';
    unlike $out, qr/gone/, 'two rows of one letter are one';
    like $out, qr/^\Q@{[identity($ring, $_)]}\E stays: the record is damaged$/m,
        "damaged: $_" for 2, 3, 6;
    is letters($ring), '2 3 6', 'a loss and one that is there twice are taken';
    is $stack->query("SELECT seq, node, count FROM meter.edge_loss WHERE"
            . " session = '" . uuid($ring) . "'"), "1\tgw-7\t7",
        'the loss is on record';
    is totals($ring), '6 7 0 0 0 7', 'and in the session';
    is counter('/planted'), 1, 'the event counts once';
    ($status, $out) = dead_letter($later, 'list', '--tenant', 'planted');
    is $status, 0, 'damaged ones are listed';
};

subtest 'no database' => sub {
    $_->process->stop('TERM', 20) for values %node;
    $stack->cluster->stop('fast');
    my ($status, $out, $err) = dead_letter($later, 'replay', '--all');
    is $status, 1, 'status 1';
    is $out, '', 'nothing is told';
    like $err, qr/connection/, 'but why';
};

$stack->stop;
done_testing;
