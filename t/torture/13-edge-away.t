# meterd is away for a while: the outbox takes everything up to its size;
# past that requests are lost and counted (pass) or refused (reject). Tiny
# ring, tiny zone. Worker memory stays flat.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use Test::More;
use Edgemeter::CrashFile;
use Edgemeter::EdgeLoad;
use Edgemeter::EdgeVerify qw(verify_edge verify_sessions wait_drained
    edge_metric);
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(now pause wait_until poll_until);

my $seconds = $ENV{TORTURE_SECONDS} || 5;
my $crash   = Edgemeter::CrashFile->new;
my $stack   = Edgemeter::Stack->for_test(
    rules      => \Edgemeter::EdgeLoad::rules(),
    nginx_conf => \Edgemeter::EdgeLoad::conf(
        outbox => '256k', zone => '32k', more => 'meter_overflow reject;'),
    nginx_env => $crash->env,
)->start;

sub workers {
    my $master = $stack->part_pid('nginx');
    return grep { $_ != $master }
        Edgemeter::Process::session_members($master);
}

sub resident_kb {
    my $sum = 0;
    for my $pid (workers()) {
        open my $file, '<', "/proc/$pid/smaps_rollup" or next;
        while (<$file>) {
            $sum += $1 if /^Private_(?:Clean|Dirty):\s+(\d+)/;
        }
    }
    return $sum;
}

# reject: what is answered 200 is counted; the others are told 503.
my $load = Edgemeter::EdgeLoad->new(stack => $stack)->start;
my $before = $load->progress;
wait_until { $load->progress > $before + 2000 } 30, 'answers come';
$stack->kill_part('meterd');
my $refused = wait_until {
    edge_metric($stack, 'edgemeter_edge_refused_total')
} 60, 'the outbox is full: requests are refused';
my $early = resident_kb();
pause($seconds);
my $late = resident_kb();
cmp_ok $late, '<', $early + 512, "worker memory is flat: $early, $late kB";
$stack->start_part('meterd');
$before = edge_metric($stack, 'edgemeter_edge_refused_total');
wait_until { $load->progress > 0 } 30, 'answers come again';
$load->stop;
$stack->wait_healthy;
wait_drained($stack);
my $told = $load->told;
my $fates = 0;
for my $mode (values %$told) {
    $fates += grep { $_->{refused} } map { values %$_ } values %$mode;
}
cmp_ok $fates, '>', 0, 'clients were refused';
verify_edge($stack, $told, 'reject');
is edge_metric($stack, 'edgemeter_edge_requests_unrecorded_total'), 0,
    'nothing was lost';
$stack->stop;

# pass: everything is served, and what could not be recorded is known. A
# worker dies while it tells so.
$stack = Edgemeter::Stack->for_test(
    rules      => \Edgemeter::EdgeLoad::rules(),
    nginx_conf => \Edgemeter::EdgeLoad::conf(
        outbox => '256k', zone => '32k', workers => 1),
    nginx_env => $crash->env,
)->start;
$load = Edgemeter::EdgeLoad->new(stack => $stack, modes => ['event'])->start;
$stack->kill_part('meterd');
wait_until {
    (edge_metric($stack, 'edgemeter_edge_requests_unrecorded_total') // 0)
        > 1000
} 60, 'the outbox is full: requests are lost';
my $fired = $crash->fired;
$crash->arm('loss_before_free', 1);
$stack->start_part('meterd');
wait_until { $crash->fired > $fired } 30, 'a worker died telling its loss';
$load->stop;
$stack->wait_healthy;
wait_drained($stack);
my ($answered, $unknown) = (0, 0);
for my $tenant (values %{ $load->told->{event} }) {
    $answered += grep { $_->{answered} } values %$tenant;
    $unknown  += grep { $_->{unknown} } values %$tenant;
}
my $counted = $stack->query(
    "SELECT count(*) FROM meter.event WHERE type = 'edge.request'");
wait_until {
    $stack->query('SELECT coalesce(sum(count), 0) FROM meter.edge_loss')
        == edge_metric($stack, 'edgemeter_edge_requests_unrecorded_total')
} 20, 'the loss is on record';
my $lost = $stack->query('SELECT sum(count) FROM meter.edge_loss');
cmp_ok $lost, '>', 1000, "$lost requests are on record as lost";
ok $answered <= $counted + $lost && $counted + $lost <= $answered + $unknown,
    'counted and lost make all that were answered'
    or diag "$answered answered, $unknown unknown, $counted counted,"
    . " $lost lost";
verify_sessions($stack, 'pass: ');
$stack->stop;
done_testing;
