#!/usr/bin/perl

# 23-record-crashes.t - ingest dies with records of a ring in hand: at every
# step of the transaction, where the ring then sends again and everything is
# there once; and of a record that it cannot bear, which is set aside after
# three crashes while the others go on.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::RecordClient;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

my $stack = Edgemeter::Stack->for_test(rules => \<<'YAML')->start_schema;
events:
  - { type: api.request, delta: true }
counters:
  - counterName: requests
    mode: persistent
    dimensions: [route]
    rules: [ { on: api.request, op: increment } ]
    idempotency: { requireEventId: true, scope: globalEventId }
YAML

sub client { return Edgemeter::RecordClient->start($stack, env => {@_}) }

sub gone {
    my ($client) = @_;
    wait_until { !$client->alive } 20, 'the client is gone';
    return;
}

sub finish {
    my ($client) = @_;
    $client->tell('end');
    gone($client);
    is $client->status, 0, 'the client ended well';
    return;
}

sub last_seq {
    my ($client, $session) = @_;
    my ($last) = $client->ask("hello h $session 0", 'h') =~ /last=(\d+)/;
    return $last;
}

# Numbers of one session in the tables: ledger, dead letters, losses, audit,
# counter.
sub tables {
    my ($session) = @_;
    my $uuid = sprintf('%02x', $session) x 16;
    return $stack->query(<<"SQL") =~ s/\t/ /gr;
SELECT (SELECT count(*) FROM meter.event WHERE session = '$uuid'),
    (SELECT count(*) FROM meter.dead_letter WHERE session = '$uuid'),
    (SELECT count(*) FROM meter.edge_loss WHERE session = '$uuid'),
    (SELECT count(*) FROM meter.duplicate_audit
        WHERE event_id = 'id-$session'),
    (SELECT COALESCE(sum(value), 0) FROM meter.counter
        WHERE dimensions = '{"route":"/$session"}')
SQL
}

# In order; what is known of the transaction when the process is gone.
my @points = (
    [after_read            => 'no'],
    [before_begin          => 'no'],
    [after_session_lock    => 'no'],
    [after_known           => 'no'],
    [after_registry        => 'no'],
    [after_ledger          => 'no'],
    [after_audit           => 'no'],
    [after_counters        => 'no'],
    [after_dead_letter     => 'no'],
    [after_session_advance => 'no'],
    [before_commit         => 'no'],
    [after_commit_sent     => 'maybe'],
    [after_commit          => 'yes'],
    [before_answer         => 'yes'],
);

# An id, the same again, minted ones, a dead letter, a loss.
sub frame {
    my ($session, $minted) = @_;
    return join "\n", map {"r $_"} "EVENT id=id-$session a.route=/$session",
        "EVENT id=id-$session a.route=/$session",
        "DELTA count=$minted quantity=$minted a.route=/$session",
        "EVENT a.route=/$session times=$minted",
        "EVENT tenant= a.route=/$session", 'LOSSNOTE lost=3';
}

subtest 'every step' => sub {
    my $session = 0;
    # 2: few records go by INSERT; 50: more go by COPY.
    for my $minted (2, 50) {
        for my $point (@points) {
            my ($where, $committed) = @$point;
            my $name = "$where, $minted";
            my $count = $minted + 5;
            $session++;
            # The hello itself passes most points: it takes the first hit.
            my $hits = $where =~ /after_(?:read|registry|ledger|audit|counters
                |dead_letter)/x ? 1 : 2;
            my $dying = client(METERD_CRASH_POINT => "$where:$hits");
            is $dying->ask("hello h $session 0", 'h'),
                'done last=0 verdicts=0/0/0/0 missing=0 counts=0/0/0/0',
                "$name: hello";
            $dying->tell(frame($session, $minted) . "\nsend s $session 1");
            gone($dying);

            my $client = client();
            my $last = last_seq($client, $session);
            if ($committed eq 'maybe') {
                ok $last == 0 || $last == $count, 'all or nothing';
            }
            else {
                is $last, $committed eq 'yes' ? $count : 0,
                    "committed: $committed";
            }
            # A ring that has heard nothing sends everything again.
            my $codes = $last ? '-' x $count : '010' . '0' x $minted . '3-';
            like $client->ask(frame($session, $minted) . "\nsend s $session 1",
                's'), qr{^done\ last=$count\ verdicts=@{[2 * $minted + 1]}
                /1/0/1\ .*\ codes=$codes$}x, 'sent again';
            is tables($session), join(' ', $minted + 2, 1, 1, 1,
                2 * $minted + 1), 'once in every table';
            $client->tell('end');
            gone($client);
        }
    }
};

subtest 'a record that cannot be read' => sub {
    my @env = (METERD_TEST_POISON => 'hemlock');
    my $frame = "r EVENT a.route=/100 times=3\n"
        . "r DELTA a.route=/100 count=7 quantity=7 customer=hemlock\n"
        . "r EVENT a.route=/100 times=3\nsend s 100 1";
    for my $try (1 .. 3) {
        my $client = client(@env);
        $client->ask('hello h 100 0', 'h');
        $client->tell($frame);
        gone($client);
        is $client->status & 127, 6, "crash $try";
        is tables(100), '0 0 0 0 0', 'nothing was counted';
    }
    my $client = client(@env);
    $client->ask('hello h 100 0', 'h');
    like $client->ask($frame, 's'),
        qr{^done last=7 verdicts=6/0/0/7 .* codes=0003000$},
        'then it is set aside, and the others go on';
    is $client->ask('metric edgemeter_poison_records_total',
        'edgemeter_poison_records_total'), 1, 'counted';
    is tables(100), '6 1 0 0 6', 'once in every table';
    is $stack->query("SELECT tenant, seq, reason, position('hemlock'::bytea in"
        . " record) > 0 FROM meter.dead_letter WHERE session = '"
        . '64' x 16 . "'"),
        "-\t4\tset aside unread after 3 crashes\tt", 'kept whole';
    like $client->ask("r EVENT a.route=/100 times=3\nsend s 100 8", 's'),
        qr/^done last=10 /, 'the ring goes on';
    finish($client);
};

subtest 'a record that cannot be stored' => sub {
    my @env = (METERD_TEST_POISON_COMMIT => 'hemlock');
    my $frame = "r EVENT a.route=/101 times=12\n"
        . "r EVENT a.route=/101 customer=hemlock\n"
        . "r EVENT a.route=/101 times=12\nsend s 101 %d";
    my $client = client(@env);
    $client->ask('hello h 101 0', 'h');
    $client->tell(sprintf $frame, 1);
    gone($client);
    is $client->status & 127, 6, 'a crash that names nobody';
    is tables(101), '0 0 0 0 0', 'nothing was counted';

    # From now on records go one by one: those before it get through.
    for my $try (1 .. 3) {
        $client = client(@env);
        like $client->text, qr/records are stored one by one/, 'cautious';
        $client->ask('hello h 101 0', 'h');
        $client->tell(sprintf $frame, 1);
        gone($client);
        is $client->status & 127, 6, "crash $try";
        is tables(101), '12 0 0 0 12', 'what lies before it is counted';
    }
    $client = client(@env);
    is last_seq($client, 101), 12, 'so far';
    like $client->ask(sprintf($frame, 1), 's'),
        qr{^done last=25 verdicts=24/0/0/1 .* codes=-{12}30{12}$},
        'then it is set aside, and the others go on';
    is tables(101), '24 1 0 0 24', 'once in every table';
    finish($client);

    $client = client(@env);
    unlike $client->text, qr/one by one/, 'after an orderly end no caution';
    finish($client);
};

subtest 'a kill is nobody\'s fault' => sub {
    for my $try (1 .. 4) {
        my $client = client(METERD_CRASH_POINT => 'after_ledger');
        $client->ask('hello h 102 0', 'h');
        $client->tell("r EVENT a.route=/102 times=2\nsend s 102 1");
        gone($client);
        is $client->status & 127, 9, "kill $try";
    }
    my $client = client();
    unlike $client->text, qr/one by one/, 'no caution';
    $client->ask('hello h 102 0', 'h');
    like $client->ask("r EVENT a.route=/102 times=2\nsend s 102 1", 's'),
        qr{^done last=2 verdicts=2/0/0/0 .* codes=00$}, 'both are counted';
    finish($client);
};

is $stack->query(<<'SQL'), "t\tt\tt", 'the books balance';
SELECT (SELECT bool_and(last = (SELECT count(*) FROM meter.event AS e
        WHERE e.writer = w.writer)) FROM meter.writer_seq AS w),
    (SELECT bool_and(s.accepted = (SELECT sum(count) FROM meter.event AS e
        WHERE e.session = s.session)) FROM meter.edge_session AS s),
    (SELECT bool_and(s.last_seq = (SELECT count(*) FROM meter.event AS e
        WHERE e.session = s.session)
        + (SELECT count(*) FROM meter.dead_letter AS d
        WHERE d.session = s.session)
        + (SELECT count(*) FROM meter.edge_loss AS l
        WHERE l.session = s.session) + s.duplicate)
    FROM meter.edge_session AS s)
SQL
done_testing;
