#!/usr/bin/perl

# 64-outbox-disk.t - the disk of the outbox is full: a worker that finds no
# room for a ring goes on without one and counts what it misses, nobody dies
# of a page that cannot be had, and with room again all is told.
#
# A full disk is a small memory file system, which only root can mount.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use Test::More;
use Edgemeter::EdgeLoad;
use Edgemeter::EdgeVerify qw(verify_sessions wait_drained edge_metric);
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until poll_until);

my $stack = Edgemeter::Stack->for_test(
    rules      => \Edgemeter::EdgeLoad::rules(),
    nginx_conf => \Edgemeter::EdgeLoad::conf(outbox => '2m'),
);
$stack->prepare;
my $outbox = $stack->place->path('outbox');
my $mode = sprintf 'size=3m,mode=0770,uid=%d,gid=%d', $stack->account->uid,
    $stack->account->gid;
my $mounted = $> == 0
    && system("mount -t tmpfs -o $mode tmpfs " . quotemeta($outbox)
        . ' 2>/dev/null') == 0;

END {
    if ($mounted) {
        local ($?, $!, $@);
        $stack->stop;
        system 'umount', $outbox;
    }
}

plan skip_all => 'a full disk needs a small file system,'
    . ' and this user cannot mount one' unless $mounted;
$stack->start;

sub rings {
    my ($state) = @_;
    return edge_metric($stack, "edgemeter_edge_outbox_rings{state=\"$state\"}");
}

sub workers {
    my $master = $stack->part_pid('nginx');
    return grep { $_ != $master }
        Edgemeter::Process::session_members($master);
}

sub has_ring {
    my ($pid) = @_;
    return 0 + grep { (readlink // '') =~ m{/ring-} } glob "/proc/$pid/fd/*";
}

# Two that try at the same moment may both fail, and try again.
wait_until { rings('owned') == 1 } 30, 'there is room for one ring only';
for my $line (qr{no room for a ring of 2097152 bytes},
    qr{no ring can be had in "\Q$outbox\E", requests are not recorded}) {
    ok poll_until(sub { $stack->log('nginx-error') =~ $line }, 10),
        "said: $line";
}
wait_until { join(' ', map { -s } glob "$outbox/{ring,tmp}-*") eq 2 << 20 } 10,
    'nothing is left of the other';

# Load on one worker alone, until a metric moves, then something else before
# the others go on; what the clients were told.
sub load_until {
    my ($holds_ring, $metric, $then) = @_;
    my @others = grep { has_ring($_) != $holds_ring } workers();
    kill 'STOP', @others;
    my $load = Edgemeter::EdgeLoad->new(stack => $stack, name => $metric,
        modes => [qw(event slot)])->start;
    wait_until { edge_metric($stack, $metric) } 60, "$metric moves";
    $load->stop;
    $then->() if $then;
    kill 'CONT', @others;
    return map { values %$_ } map { values %$_ } values %{ $load->told };
}

# Everything that was preallocated can be filled; then requests are lost.
$stack->kill_part('meterd');
my @fates = load_until(1, 'edgemeter_edge_requests_unrecorded_total');

# Those of a worker without a ring outlive everybody who knows of them.
push @fates, load_until(0, 'edgemeter_edge_missed_total', sub {
    my $metric = 'edgemeter_edge_requests_unrecorded_total';
    my $lost = edge_metric($stack, $metric);
    my @all  = ($stack->part_pid('nginx'), workers());
    kill 'KILL', @all;
    wait_until { !grep { Edgemeter::Process::pid_alive($_) } @all } 10,
        'all of nginx is dead';
    $stack->kill_part('nginx');
    $stack->start_part('nginx');
    wait_until { rings('owned') } 10, 'the ring has an owner again';
    is edge_metric($stack, $metric), $lost, "$lost are not forgotten";
});
unlike $stack->log('nginx-error'), qr/exited on signal (?!9\b)/,
    'no worker died by itself';

ok system('mount', '-o', 'remount,size=16m', $outbox) == 0,
    'the disk has room again';
wait_until { rings('owned') == 2 } 10, 'both workers have a ring';
$stack->start_part('meterd');
$stack->wait_healthy;
wait_drained($stack);

is scalar(grep { !$_->{answered} } @fates), 0, 'every request was answered';
wait_until {
    $stack->query('SELECT coalesce(sum(count), 0) FROM meter.edge_loss')
        == edge_metric($stack, 'edgemeter_edge_requests_unrecorded_total')
} 20, 'the loss is on record';
my $lost    = $stack->query('SELECT sum(count) FROM meter.edge_loss');
my $counted = $stack->query('SELECT count(*) FROM meter.event');
cmp_ok $counted, '>', 1000, "$counted requests are counted";
is $counted + $lost, scalar @fates, "with the $lost lost ones these are all";
verify_sessions($stack);
done_testing;
