# Deaths and stops of whole processes while metered routes are served: a
# worker, the master, meterd, PostgreSQL, everything at once.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use Test::More;
use Edgemeter::EdgeLoad;
use Edgemeter::EdgeVerify qw(verify_edge wait_drained edge_metric);
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(now pause poll_until wait_until);

my $seconds = $ENV{TORTURE_SECONDS} || 5;
my $stack   = Edgemeter::Stack->for_test(
    rules      => \Edgemeter::EdgeLoad::rules(),
    nginx_conf => \Edgemeter::EdgeLoad::conf(outbox => '32m'),
)->start;

sub workers {
    my $master = $stack->part_pid('nginx') or return;
    return grep { $_ != $master }
        Edgemeter::Process::session_members($master);
}

sub restart_all {
    $stack->start_part('postgres') unless $stack->alive('postgres');
    $stack->start_part('meterd')   unless $stack->alive('meterd');
    $stack->start_part('nginx')    unless $stack->alive('nginx');
    $stack->wait_healthy;
    return;
}

my %FAULT = (
    worker => sub {
        my @workers = workers();
        kill 'KILL', $workers[rand @workers];
    },
    workers => sub { kill 'KILL', workers() },
    stopped => sub {
        my @workers = workers();
        my $pid     = $workers[rand @workers];
        kill 'STOP', $pid;
        pause(0.5 + rand);
        kill 'CONT', $pid;
    },
    master => sub {
        $stack->kill_part('nginx');
        $stack->start_part('nginx');
    },
    meterd => sub {
        $stack->kill_part('meterd');
        pause(rand);
        $stack->start_part('meterd');
    },
    meterd_stopped => sub {
        kill 'STOP', $stack->part_pid('meterd');
        pause(0.5 + rand);
        kill 'CONT', $stack->part_pid('meterd');
    },
    postgres => sub {
        $stack->cluster->stop('immediate');
        $stack->start_part('postgres');
    },
    everything => sub {
        my @workers = workers();
        kill 'KILL', @workers, grep {defined}
            map { $stack->part_pid($_) } qw(nginx meterd);
        $stack->cluster->stop('immediate');
        poll_until { !$stack->alive('nginx') && !$stack->alive('meterd') } 10;
    },
);

my %done;
my $load = Edgemeter::EdgeLoad->new(stack => $stack)->start;
my @names = sort keys %FAULT;
for (my $end = now() + $seconds; now() < $end || keys %done < @names;) {
    my ($name) = (grep { !$done{$_} } @names)[0] // $names[rand @names];
    my $before = $load->progress;
    wait_until { $load->progress > $before + 3000 } 30, 'answers come';
    $FAULT{$name}->();
    restart_all();
    $done{$name}++;
}
$load->stop;
wait_drained($stack);
ok $done{$_}, "$_: $done{$_} times" for @names;
verify_edge($stack, $load->told);
is edge_metric($stack, 'edgemeter_edge_requests_unrecorded_total'), 0,
    'nothing was lost';
$stack->stop;
done_testing;
