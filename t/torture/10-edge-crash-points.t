# kill -9 of nginx workers at every named point of the capture half, while
# clients are served: what was answered is counted, once.
#
# TORTURE_KILLS: how often at each point (1). With more, every point is
# checked by itself.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use Test::More;
use Edgemeter::CrashFile;
use Edgemeter::EdgeLoad;
use Edgemeter::EdgeVerify qw(verify_edge wait_drained edge_metric);
use Edgemeter::Stack;
use Edgemeter::Wait qw(now pause poll_until);

my $kills = $ENV{TORTURE_KILLS} || 1;

# Points that traffic alone does not reach: 13-edge-away.t and the unit test
# of the claim get there.
my %ELSEWHERE = map { $_ => 1 } qw(loss_before_free renew_mid);

my $crash = Edgemeter::CrashFile->new;
my $stack = Edgemeter::Stack->for_test(
    rules      => \Edgemeter::EdgeLoad::rules(),
    nginx_conf => \Edgemeter::EdgeLoad::conf(outbox => '16m'),
    nginx_env  => $crash->env,
)->start;

sub points {
    my $root = Edgemeter::Stack::root();
    my %point;
    for my $path (glob "$root/shared/*.c $root/ngx_module/*.c") {
        open my $file, '<', $path or die "$path: $!";
        while (<$file>) {
            $point{$1} = 1 while /METER_CRASH_POINT\("(\w+)"\)/g;
        }
    }
    return grep { !$ELSEWHERE{$_} } sort keys %point;
}

sub workers {
    my $master = $stack->part_pid('nginx');
    return grep { $_ != $master }
        Edgemeter::Process::session_members($master);
}

# True when a worker died there. Claims happen only after a death, rings are
# given back when a worker ends: what is not reached by itself is helped along.
sub kill_at {
    my ($point) = @_;
    my $fired = $crash->fired;
    $crash->arm($point, 1 + int rand 4);
    for my $try (1 .. 10) {
        return 1 if poll_until { $crash->fired > $fired } 0.5;
        my @workers = workers();
        if ($try % 2) {
            kill 'KILL', $workers[rand @workers] if @workers;
        }
        else {
            kill 'HUP', $stack->part_pid('nginx');
        }
    }
    $crash->disarm;
    return $crash->fired > $fired;
}

my @points = points();
cmp_ok scalar @points, '>=', 25, scalar(@points) . ' points';

my (%killed, $load, %told);
for my $point (@points) {
    if (!$load) {
        my $name = $kills > 1 ? $point =~ tr/_/-/r : 'all';
        $load = Edgemeter::EdgeLoad->new(
            stack   => $stack,
            tenants => ["$name-a", "$name-b"],
        )->start;
    }
    for (1 .. $kills) {
        $killed{$point} += kill_at($point);
        my $before = $load->progress;
        poll_until { $load->progress > $before + 200 } 5;
    }
    cmp_ok $killed{$point}, '>=', 1, "$point: killed $killed{$point} times";
    next unless $kills > 1;
    $load->stop;
    wait_drained($stack);
    verify_edge($stack, $load->told, $point);
    undef $load;
}
if ($load) {
    $load->stop;
    wait_drained($stack);
    verify_edge($stack, $load->told);
}
is edge_metric($stack, 'edgemeter_edge_requests_unrecorded_total'), 0,
    'nothing was lost';
my $sum = 0;
$sum += $_ for values %killed;
diag "$sum kills: " . join ', ', map {"$_ $killed{$_}"} @points
    if $kills > 1;

# What nginx itself says of killed workers aside.
my @alerts = grep { /\[(?:alert|emerg|crit)\]/ && !/exited on signal 9/ }
    split /\n/, $stack->log('nginx-error');
is_deeply \@alerts, [], 'no alert in the error log';
$stack->stop;
done_testing;
