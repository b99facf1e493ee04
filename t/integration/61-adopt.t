#!/usr/bin/perl

# 61-adopt.t - rings whose workers are gone, and no nginx to take them: meterd
# drains them. The rings are written by ring_client.c, which ends as a killed
# worker does.

use strict;
use warnings;
use File::Copy ();
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use IPC::Open2;
use Test::More;
use Edgemeter::LinkClient;
use Edgemeter::Node;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until poll_until now);

use constant {
    SIZE       => 1 << 20,
    OTHER_BOOT => '00112233445566778899aabbccddeeff',
};

my $rules = <<'YAML';
events:
  - { type: api.request, required: [route] }
  - { type: api.delta, delta: true }
YAML

my $stack = Edgemeter::Stack->for_test(rules => \$rules);
$stack->start_schema;
my $scratch = $stack->place->path('tmp');
my $outbox  = "$scratch/rings";
mkdir $outbox, 0770;
$stack->account->own($outbox);

my $client = "$scratch/ring_client";
File::Copy::copy(Edgemeter::Stack::root() . '/build/integration/ring_client',
    $client) or die "ring_client: $!\n";
chmod 0755, $client;

my %quick = (METERD_TEST_ADOPT_MS => 300);

sub start {
    my (%env) = @_;
    return Edgemeter::Node->start($stack, name => 'adopter',
        yaml => { outbox => "'$outbox'" }, env => { %quick, %env });
}

# Runs the words on a ring; gives back what it said, by name.
sub ring {
    my ($name, @words) = @_;
    my ($status, $out, $err) = Edgemeter::Process::capture(
        command => [$client, "$outbox/ring-$name", @words],
        user    => $stack->account,
    );
    die "ring_client: $err$out" if $status != 0;
    return { map { split / /, $_, 2 } split /\n/, $out };
}

sub show { return ring($_[0], 'show') }

sub uuid { return Edgemeter::LinkClient::uuid(pack 'H*', $_[0]) }

sub spare {
    my ($name, $seconds) = @_;
    return poll_until { show($name)->{busy} == 0 } $seconds // 15;
}

sub events {
    my ($session) = @_;
    return scalar $stack->query('SELECT count(*), count(DISTINCT seq),'
        . " count(*) FILTER (WHERE flags & 2 <> 0) FROM meter.event WHERE"
        . " session = '" . uuid($session) . "'");
}

sub totals {
    my ($session) = @_;
    return scalar $stack->query('SELECT last_seq, accepted, lost FROM'
        . " meter.edge_session WHERE session = '" . uuid($session) . "'");
}

sub losses {
    my ($session) = @_;
    return scalar $stack->query('SELECT count, reasons FROM meter.edge_loss'
        . " WHERE session = '" . uuid($session) . "' ORDER BY seq");
}

my $node = start()->wait_ready;

subtest 'records, slots, cells, a loss' => sub {
    my $made = ring('full', 'make:' . SIZE, 'event:3', 'id:adopted-1',
        'ack:2', 'answered:2', 'reserved:3', 'add:/a:5', 'add:/b:1', 'lost:4',
        'show');
    is "$made->{busy} $made->{head} $made->{acked}", '1 5 2',
        'four records, two of them acked';
    ok spare('full'), 'it is adopted and drained';
    my $got = show('full');
    is $got->{session}, $made->{session}, 'under the same session';
    is $got->{acked}, 9, 'two slots, two cells and the loss are records';
    is $got->{head}, 10, 'and no more';
    # 1 and 2 were called durable, but this database never had them.
    is totals($made->{session}), "9\t12\t4", 'all is counted';
    is events($made->{session}), "8\t8\t4",
        'once, the slots and cells as recovered';
    is losses($made->{session}), "4\t1", 'the loss is on record';
    is $stack->query("SELECT sum(count), sum(quantity) FROM meter.event"
            . " WHERE type = 'api.delta'"), "6\t9.000000000", 'the cells too';
    is $got->{verdicts}, '12 0 0 0', 'the ring knows its verdicts';
    is $got->{lost}, 4, 'and its loss';
    is $node->metric('edgemeter_edge_rings_adopted_total'), 1, 'counted';
    is $node->metric('edgemeter_edge_rewinds_total'), 1,
        'that it had been told more, too';
    ok poll_until(sub { $node->metric('edgemeter_edge_orphans') == 0 }, 5),
        'no orphan is left';
};

subtest 'a ring with an owner' => sub {
    my $pid = open2(my $out, my $in, $client, "$outbox/ring-owned",
        'make:' . SIZE, 'event:1', 'hold');
    is scalar <$out>, "held\n", 'it has an owner';
    ok poll_until(sub { $node->log =~ m{ring-owned.*Permission denied} }, 5),
        'a file that cannot be opened is said' if $stack->account->{drop};
    $stack->account->own("$outbox/ring-owned");
    my $made = ring('orphan', 'make:' . SIZE, 'event:1', 'show');
    ok spare('orphan'), 'another one is drained meanwhile';
    is show('owned')->{busy}, 1, 'this one is left to him';
    is events(show('owned')->{session}), "0\t0\t0", 'nothing was taken';
    close $in;
    waitpid $pid, 0;
    ok spare('owned'), 'when he is gone it is drained';
    is events(show('owned')->{session}), "1\t1\t0", 'his record is there';
};

subtest 'another boot' => sub {
    my $made = ring('boot', 'make:' . SIZE . ':' . OTHER_BOOT, 'event:3',
        'answered:2', 'add:/c:5', 'show');
    ok spare('boot'), 'drained';
    is events($made->{session}), "3\t3\t0", 'records come in, entries do not';
    is losses($made->{session}), "7\t4", 'they are possibly lost';
    is show('boot')->{session}, $made->{session},
        'whoever takes it next begins a new session';
};

subtest 'a torn record' => sub {
    my $made = ring('torn', 'make:' . SIZE, 'event:6', 'answered:1',
        'flip:4', 'show');
    ok spare('torn'), 'drained';
    is events($made->{session}), "3\t3\t0", 'what verifies comes in';
    my $got = show('torn');
    isnt $got->{session}, $made->{session}, 'the rest under a new session:';
    is events($got->{session}), "1\t1\t1", 'the slot';
    is losses($got->{session}), "3\t2", 'and the loss';
    like $node->log, qr/has lost requests.*"torn_records":3/, 'it is said';
};

subtest 'the database went back' => sub {
    my $made = ring('rewind', 'make:' . SIZE, 'event:5', 'show');
    my $session = uuid($made->{session});
    ok spare('rewind'), 'drained';
    $stack->query("DELETE FROM meter.event WHERE session = '$session'"
        . " AND seq > 2; UPDATE meter.edge_session SET last_seq = 2,"
        . " accepted = 2 WHERE session = '$session'");
    my $before = $node->metric('edgemeter_edge_rewinds_total');
    ring('rewind', 'claim', 'event:1');
    ok spare('rewind'), 'drained again';
    is events($made->{session}), "6\t6\t0", 'what was lost is back';
    is totals($made->{session}), "6\t6\t0", 'once';
    is $node->metric('edgemeter_edge_rewinds_total') - $before, 1, 'counted';
};

subtest 'a file that was rolled back' => sub {
    my $made = ring('old', 'make:' . SIZE, 'event:2', 'show');
    ok spare('old'), 'drained';
    $stack->query('UPDATE meter.edge_session SET last_seq = 9 WHERE session ='
        . " '" . uuid($made->{session}) . "'");
    my $before = $node->metric('edgemeter_edge_rollbacks_total');
    ring('old', 'claim', 'event:1', 'answered:1');
    ok spare('old'), 'drained again';
    is $node->metric('edgemeter_edge_rollbacks_total') - $before, 1,
        'counted';
    my $got = show('old');
    isnt $got->{session}, $made->{session}, 'it has a new session';
    is events($got->{session}), "1\t1\t1", 'for what was still to come';
};

subtest 'files that are not touched' => sub {
    ring('version', 'make:' . SIZE, 'event:1', 'version:2');
    ring('writable', 'make:' . SIZE, 'event:1');
    chmod 0666, "$outbox/ring-writable";
    ring('stranger', 'make:' . SIZE, 'event:1');
    ring('real', 'make:' . SIZE, 'event:1');
    rename "$outbox/ring-real", "$outbox/real" or die $!;
    symlink "$outbox/real", "$outbox/ring-symlink" or die $!;
    my $drops = $stack->account->{drop};
    chown 12345, -1, "$outbox/ring-stranger" if $drops;
    chmod 0664, "$outbox/ring-stranger";
    my @left = ('version', 'writable', $drops ? 'stranger' : ());
    for my $name (@left) {
        ok poll_until(sub {
            $node->log =~ m{is left alone[^\n]*/ring-$name"}
        }, 10), "$name: left alone, and said so";
    }
    my $made = ring('last', 'make:' . SIZE, 'event:1', 'show');
    ok spare('last'), 'others go on';
    for my $name (@left) {
        my @said = $node->log =~ m{is left alone[^\n]*/ring-$name"}g;
        is scalar @said, 1, "$name: said once";
        is show($name)->{busy}, 1, 'as it was';
    }
    is ring('symlink', 'show')->{busy}, 1, 'nor is a link followed';
    ok poll_until(sub { $node->metric('edgemeter_edge_orphans') == 0 }, 5),
        'these are no orphans';
    unlink glob "$outbox/*";
};

subtest 'more than fits at once' => sub {
    my @made = map {
        ring("many-$_", 'make:' . 8 * SIZE, 'event:20000', 'show')
    } 1 .. 6;
    ok spare("many-$_", 60), "ring $_ of six" for 1 .. 6;
    is events($_->{session}), "20000\t20000\t0", 'every record once'
        for @made;
};

# Whether somebody has it locked; looking at /proc/locks does not touch it.
sub is_locked {
    my ($inode) = @_;
    open my $locks, '<', '/proc/locks' or die "/proc/locks: $!\n";
    return scalar grep {/FLOCK.*:$inode /} <$locks>;
}

subtest 'others are answered while a large ring is verified' => sub {
    ring('hold', 'make:' . 64 * SIZE, 'event:350000');
    my $inode = (stat "$outbox/ring-hold")[1];
    rename "$outbox/ring-hold", "$outbox/ring-large" or die $!;
    my ($answered, $longest, $end) = (0, 0, now() + 60);
    until ($node->log =~ m{is drained[^\n]*/ring-large"} || now() > $end) {
        my $asked = now();
        $node->ask(path => '/healthz');
        next if !is_locked($inode);
        $answered++;
        $longest = now() - $asked if now() - $asked > $longest;
    }
    cmp_ok $answered, '>=', 3, 'many times';
    note "$answered answers, the longest after $longest s";
    $node->process->stop('TERM', 20);
    unlink "$outbox/ring-large";
    $node = start()->wait_ready;
};

subtest 'a file that is removed while it is drained' => sub {
    # Nothing is committed meanwhile, so that it is not drained too soon.
    my $locker = Edgemeter::Process->spawn(
        name => 'locker', log => "$scratch/locker.log",
        user => $stack->account,
        command => [$stack->cluster->{bin} . '/psql', '-q', '--dbname',
            $stack->database_url, '-c', 'BEGIN; LOCK TABLE meter.event'
                . ' IN EXCLUSIVE MODE; SELECT pg_sleep(600)']);
    wait_until {
        $stack->query("SELECT count(*) FROM pg_locks WHERE granted AND"
            . " mode = 'ExclusiveLock' AND relation = 'meter.event'::regclass")
    } 30, 'the ledger is locked';
    my $made = ring('removed', 'make:' . 32 * SIZE, 'event:60000', 'show');
    my $inode = (stat "$outbox/ring-removed")[1];
    wait_until { is_locked($inode) } 60, 'it is being drained';
    unlink "$outbox/ring-removed" or die;
    ok poll_until(sub { $node->log =~ /was removed while it is drained/ }, 30),
        'it says so';
    $stack->query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        . " WHERE query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()");
    ok poll_until(sub { events($made->{session}) eq "60000\t60000\t0" }, 60),
        'every record, once';
    ok poll_until(sub { !$node->metric('edgemeter_edge_orphans_removed') }, 10),
        'and then nothing is at stake';
};

subtest 'the database is away, and SIGTERM' => sub {
    $stack->cluster->stop('immediate');
    wait_until { $node->metric('edgemeter_database_up') == 0 } 10, 'away';
    my $made = ring('away', 'make:' . SIZE, 'event:10', 'show');
    ok poll_until(sub { $node->metric('edgemeter_edge_orphans') == 1 }, 10),
        'an orphan is seen';
    ok poll_until(
        sub { $node->metric('edgemeter_edge_orphan_oldest_seconds') >= 2 },
        10), 'it grows old';
    ring('away', 'claim');    # dies if it were locked
    pass 'but it can still be taken by a worker';
    $stack->start_part('postgres');
    ok spare('away', 30), 'then it is drained';

    my $big = ring('big', 'make:' . 64 * SIZE, 'event:150000', 'show');
    wait_until { show('big')->{acked} > 0 } 30, 'half way';
    is $node->process->stop('TERM', 20), 1, 'meterd ends';
    is $node->process->status, 0, 'well';
    my $left = show('big');
    is $left->{busy}, 1, 'the ring is an orphan still';
    cmp_ok $left->{acked}, '<', 150000, 'with records';
    $node = start()->wait_ready;
    ok spare('big', 60), 'the next meterd goes on';
    is events($big->{session}), "150000\t150000\t0", 'every record once';
};

# Adopters die too, and the next one goes on where they were.
for my $point (qw(adopt_after_claim adopt_before_release claim_before_emit
    claim_mid_emit before_commit after_commit renew_mid)) {
    subtest "meterd dies at $point" => sub {
        $node->process->stop('TERM', 15);
        unlink glob "$outbox/*";
        $node = start(METERD_CRASH_POINT => $point)->wait_ready;
        my @torn = $point eq 'renew_mid' ? 'flip:3' : ();
        my $made = ring($point, 'make:' . SIZE, 'event:3', 'answered:2',
            'add:/d:3', 'lost:2', @torn, 'show');
        ok poll_until(sub { !$node->process->alive }, 20), 'it dies';
        $node = start()->wait_ready;
        ok spare($point), 'the next one drains it';
        my $got = show($point);
        if (@torn) {
            is events($made->{session}), "2\t2\t0", 'what verified';
            is events($got->{session}), "3\t3\t3", 'and the entries';
            is losses($got->{session}), "3\t3", 'and the loss';
        }
        else {
            is events($made->{session}), "6\t6\t3", 'everything once';
            is losses($made->{session}), "2\t1", 'the loss too';
            is totals($made->{session}), "7\t8\t2", 'and in the totals';
        }
    };
}

$node->process->stop('TERM', 15);
$node->discard;

# Without the short cut for tests nobody is robbed of his ring too early.
subtest 'ten seconds' => sub {
    %quick = ();
    $node = start()->wait_ready;
    my $begun = now();
    ring('slow', 'make:' . SIZE, 'event:1');
    ok spare('slow', 40), 'drained';
    cmp_ok now() - $begun, '>=', 9.5, 'after ten seconds';
    cmp_ok now() - $begun, '<', 25, 'and not much more';
};

$node->discard;
$stack->stop;
done_testing;
