# A reload storm, changed sizes and worker counts, and a binary upgrade,
# while metered routes are served.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use Test::More;
use Edgemeter::EdgeLoad;
use Edgemeter::EdgeVerify qw(verify_edge wait_drained edge_metric);
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(now pause wait_until poll_until);

# A master that was started in the foreground takes no new binary.
my %BASE = (daemon => 'on', outbox => '32m');

my $seconds = $ENV{TORTURE_SECONDS} || 5;
my $stack   = Edgemeter::Stack->for_test(
    rules      => \Edgemeter::EdgeLoad::rules(),
    nginx_conf => \Edgemeter::EdgeLoad::conf(%BASE),
)->start;
my $conf = $stack->place->path('nginx.conf');

sub configure {
    my (%arg) = @_;
    my $text = Edgemeter::EdgeLoad::conf(%BASE, %arg);
    my %value = (
        RUN_DIR => $stack->place->state,
        PORT    => $stack->port,
        MODULE  => $stack->{module},
    );
    open my $file, '<', $conf or die $!;
    my ($module) = do { local $/; <$file> } =~ /load_module (\S+);/;
    $value{MODULE} = $module;
    $text =~ s/\@(RUN_DIR|PORT|MODULE)\@/$value{$1}/g;
    Edgemeter::Place::replace_file($conf, 0644, undef, $text);
    return;
}

sub reloads { return () = $stack->log('nginx-error') =~ /reconfiguring/g }

my $load = Edgemeter::EdgeLoad->new(stack => $stack)->start;
my $asked = 0;

# 200 in a minute, every one with something else.
my @shape = (
    {}, { workers => 1 }, { workers => 3 }, { outbox => '16m' },
    { zone => '128k' }, { outbox => '24m', workers => 4 },
);
for (my $end = now() + $seconds; now() < $end;) {
    configure(%{ $shape[$asked % @shape] });
    kill 'HUP', $stack->part_pid('nginx');
    $asked++;
    pause(0.3);
}
cmp_ok $asked, '>=', 3 * $seconds, "$asked reloads in $seconds s";
cmp_ok scalar(reloads()), '>=', $asked / 2, 'nginx took them';
configure();
kill 'HUP', $stack->part_pid('nginx');

# A new binary takes over; the old one is told to go when it serves.
my $old = $stack->part_pid('nginx');
kill 'USR2', $old;
wait_until { -e $stack->place->path('nginx.pid.oldbin') } 10,
    'a new master has started';
wait_until { $stack->part('nginx')->adopt_successor } 10, 'it has its pid file';
isnt $stack->part_pid('nginx'), $old, 'another master';
my $before = $load->progress;
wait_until { $load->progress > $before + 2000 } 20, 'both serve';
kill 'WINCH', $old;
$before = $load->progress;
wait_until { $load->progress > $before + 2000 } 20, 'the new one serves';
kill 'QUIT', $old;
wait_until { !Edgemeter::Process::pid_alive($old) } 20, 'the old one has ended';
$load->stop;
wait_drained($stack);
verify_edge($stack, $load->told);
is edge_metric($stack, 'edgemeter_edge_requests_unrecorded_total'), 0,
    'nothing was lost';

my @alerts = grep {/\[(?:alert|emerg|crit)\]/}
    split /\n/, $stack->log('nginx-error');
is_deeply \@alerts, [], 'no alert in the error log';

# Old workers do not stay for ever, and their files do not either.
my @left = glob $stack->place->path('outbox') . '/*';
cmp_ok scalar @left, '<=', 32, scalar(@left) . ' files in the outbox';
$stack->stop;
done_testing;
