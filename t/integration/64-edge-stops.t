#!/usr/bin/perl

# 64-edge-stops.t - how nginx ends or stands still: told to stop at once, cut
# off by worker_shutdown_timeout, a worker that is held up in the middle of a
# store; and what nginx finds when it goes on: the ring of a dead worker, more
# records than may be sent, rings of another boot of the kernel, torn ones,
# those of another version.

use strict;
use warnings;
use File::Copy ();
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::CrashFile;
use Edgemeter::EdgeLoad;
use Edgemeter::EdgeVerify qw(verify_edge wait_drained edge_metric);
use Edgemeter::LinkClient;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until poll_until now);

use constant {
    SIZE       => 8 << 20,
    OTHER_BOOT => '00112233445566778899aabbccddeeff',
};

my $crash = Edgemeter::CrashFile->new;
my $stack = Edgemeter::Stack->for_test(
    rules      => \Edgemeter::EdgeLoad::rules(),
    nginx_conf => \Edgemeter::EdgeLoad::conf(
        outbox => '8m',
        main   => 'worker_shutdown_timeout 300ms;',
        more   => 'meter_drain_timeout 60s;'),
    nginx_env => $crash->env,
)->start;
my $outbox  = $stack->place->path('outbox');
my $clients = Edgemeter::EdgeLoad->new(stack => $stack);

sub workers {
    my $master = $stack->part_pid('nginx');
    return grep { $_ != $master }
        Edgemeter::Process::session_members($master);
}

# Requests with ids, each on a connection of its own; how many were answered
# before the first one that was not, in time.
sub served {
    my ($name, $count) = @_;
    for my $n (1 .. $count) {
        my $socket = $clients->connect or return $n - 1;
        my $answer = '';
        eval {
            local $SIG{ALRM} = sub { die "late\n" };
            alarm 5;
            syswrite $socket, "GET /id?n=$name-$n&tenant=acme HTTP/1.1\r\n"
                . "Host: a\r\nConnection: close\r\n\r\n";
            sysread $socket, $answer, 4096;
            alarm 0;
        };
        alarm 0;
        return $n - 1 if $answer !~ m{^HTTP/1\.1 200};
    }
    return $count;
}

sub counted {
    my ($name) = @_;
    return $stack->query("SELECT count(*) FROM meter.event"
        . " WHERE event_id LIKE '$name-%'");
}

sub alerts {
    return [grep { /\[(?:alert|emerg|crit)\]/ && !/exited on signal 9/ }
            split /\n/, $stack->log('nginx-error')];
}

subtest 'TERM: no time for anything' => sub {
    my $load = Edgemeter::EdgeLoad->new(stack => $stack)->start;
    for my $round (1 .. 3) {
        my $before = $load->progress;
        wait_until { $load->progress > $before + 5000 } 30, 'answers come';
        kill 'TERM', $stack->part_pid('nginx');
        wait_until { !$stack->alive('nginx') } 20, 'nginx is gone';
        $stack->start_part('nginx');
        $stack->wait_healthy;
    }
    $load->stop;
    wait_drained($stack);
    verify_edge($stack, $load->told);
    is edge_metric($stack, 'edgemeter_edge_requests_unrecorded_total'), 0,
        'nothing was lost';
};

subtest 'worker_shutdown_timeout closes the links' => sub {
    wait_drained($stack);
    kill 'STOP', $stack->part_pid('meterd');
    my %old = map { $_ => 1 } workers();
    is served('cut', 20), 20, 'answered while meterd stands still';
    my $begun = now();
    kill 'HUP', $stack->part_pid('nginx');
    ok poll_until(sub { !grep { $old{$_} } workers() }, 30),
        'the old workers end';
    cmp_ok now() - $begun, '<', 10, 'though they could wait a minute';
    kill 'CONT', $stack->part_pid('meterd');
    wait_drained($stack);
    is counted('cut'), 20, 'and others deliver what they had';
    is_deeply alerts(), [], 'no connection was left open';
};

subtest 'the ring of a dead worker, while spares are there' => sub {
    wait_until {
        edge_metric($stack, 'edgemeter_edge_outbox_rings{state="spare"}')
    } 20, 'the reload has left spares';
    my $claimed = edge_metric($stack, 'edgemeter_edge_rings_claimed_total');
    $stack->kill_part('meterd');
    is served('dead', 20), 20, 'answered while meterd is away';
    kill 'KILL', workers();
    my $begun = now();
    wait_until {
        edge_metric($stack, 'edgemeter_edge_rings_claimed_total') > $claimed
            && !edge_metric($stack,
            'edgemeter_edge_outbox_rings{state="orphan"}')
    } 30, 'another worker has it';
    cmp_ok now() - $begun, '<', 10, 'within seconds';
    $stack->start_part('meterd');
    $stack->wait_healthy;
    wait_drained($stack);
    is counted('dead'), 20, 'all is counted';
    is edge_metric($stack, 'edgemeter_edge_rings_adopted_total'), 0,
        'without the help of meterd';
};

subtest 'more waits than meterd gives credit for' => sub {
    $stack->kill_part('meterd');
    my $socket = $clients->connect;
    my $answers = 0;
    for my $turn (1 .. 400) {
        syswrite $socket, join '', map {
            "GET /event?n=many-$turn-$_&tenant=acme HTTP/1.1\r\nHost: a\r\n\r\n"
        } 1 .. 50;
        my $got = '';
        while ((() = $got =~ m{HTTP/1\.1 200}g) < 50) {
            sysread $socket, $got, 65536, length $got or die "cut off\n";
        }
        $answers += 50;
    }
    is $answers, 20_000, 'requests on one connection, of one worker';
    $stack->start_part('meterd');
    $stack->wait_healthy;
    wait_drained($stack);
    is $stack->query("SELECT count(*) FROM meter.event"
        . " WHERE attributes LIKE '%\"many-%'"), 20_000, 'all are counted';
    is edge_metric($stack, 'edgemeter_protocol_errors_total'), 0,
        'none was sent past the credit';
};

# It holds nothing that another worker waits for.
for my $point (qw(zone_half_written ring_before_head slot_mid_body)) {
    subtest "a worker stands still at $point" => sub {
        my $fired = $crash->fired;
        my $path = $point eq 'slot_mid_body' ? 'slot' : 'id';
        $crash->arm($point, 1, Edgemeter::CrashFile::STOP());
        my $hung = $clients->connect;
        syswrite $hung, "GET /$path?n=$point-0&tenant=acme HTTP/1.1\r\n"
            . "Host: a\r\n\r\n";
        wait_until { $crash->fired > $fired } 10, 'it came there';
        is served($point, 100), 100, 'the others answer';
        kill 'CONT', workers();
        my $got = sysread $hung, my $answer, 4096;
        ok $got, 'its own client is answered in the end';
        wait_drained($stack);
        is counted($point), $path eq 'id' ? 101 : 100, 'each counts once';
    };
}

# Ring files as workers of another time left them, written by ring_client.c.

my $client = $stack->place->path('tmp') . '/ring_client';
File::Copy::copy(Edgemeter::Stack::root() . '/build/integration/ring_client',
    $client) or die "ring_client: $!\n";
chmod 0755, $client;

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

sub of_session {
    my ($what, $session) = @_;
    return scalar $stack->query("SELECT $what session = '"
        . Edgemeter::LinkClient::uuid(pack 'H*', $session) . "'");
}

# Nothing is left to send in it, under a session that is not this one.
sub renewed {
    my ($name, $made) = @_;
    my $now;
    wait_until {
        $now = ring($name, 'show');
        $now->{session} ne $made->{session} && $now->{busy} == 0;
    } 20, 'it is a spare one, under a new session';
    return $now->{session};
}

my $EVENTS = 'count(*), count(DISTINCT seq),'
    . ' count(*) FILTER (WHERE flags & 2 <> 0) FROM meter.event WHERE';
my $LOSSES = 'sum(count), bit_or(reasons) FROM meter.edge_loss WHERE';

subtest 'a ring of another boot' => sub {
    my $made = ring('00000000000000b0', 'make:' . SIZE . ':' . OTHER_BOOT,
        'event:3', 'answered:2', 'add:/c:5', 'show');
    my $next = renewed('00000000000000b0', $made);
    is of_session($EVENTS, $made->{session}), "3\t3\t0",
        'records come in, entries do not';
    is of_session($LOSSES, $next), "7\t4", 'they are possibly lost';
    like $stack->log('nginx-error') . $stack->log('meterd'),
        qr/is.of.another.boot:.7.requests.that.were.not.recorded.yet.may.be
            |has.lost.requests.*"lost_requests":7/x,
        'which is said, by whoever took the ring';
};

subtest 'a torn ring' => sub {
    my $made = ring('00000000000000f0', 'make:' . SIZE, 'event:6',
        'answered:1', 'flip:4', 'show');
    my $next = renewed('00000000000000f0', $made);
    is of_session($EVENTS, $made->{session}), "3\t3\t0",
        'what verifies comes in';
    is of_session($EVENTS, $next), "1\t1\t1", 'the slot too';
    is of_session($LOSSES, $next), "3\t2", 'the rest is lost';
    like $stack->log('nginx-error') . $stack->log('meterd'),
        qr/3.records.do.not.verify.and.are.lost
            |has.lost.requests.*"torn_records":3/x,
        'which is said, by whoever took the ring';
};

subtest 'a ring of another version' => sub {
    ring('00000000000000e0', 'make:' . SIZE, 'event:1', 'version:2');
    wait_until {
        $stack->log('nginx-error') =~ /was made by another version, it is left/
    } 20, 'it is left alone, and that is said';
    is served('beside', 5), 5, 'others are used';
    unlink "$outbox/ring-00000000000000e0";
};

wait_drained($stack);
is edge_metric($stack, 'edgemeter_edge_conservation_gap'), 0,
    'the sums agree';
is_deeply alerts(), [], 'no alert in the error log';
$stack->stop;
done_testing;
