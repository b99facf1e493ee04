# Two meterd that are killed all the time, anywhere and at the steps of flush
# and rollup, and a PostgreSQL that is now and then, under events of all ages:
# no bucket of any level is off by one. The short form, with all steps, is
# t/integration/98-series-histories.t.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::SeriesHistory;
use Edgemeter::Wait qw(now pause);

my $seconds = $ENV{TORTURE_SECONDS} || 20;
plan skip_all => 'as t/integration/98-series-histories.t does'
    if $seconds < 20;
my $seed    = $ENV{HISTORY_SEED} // time;
diag "HISTORY_SEED=$seed";
srand $seed;
my $history = Edgemeter::SeriesHistory->start(seed => $seed, clients => 6);
my @points  = @Edgemeter::SeriesHistory::POINTS;
my (%died, $lost);
my $kills = 0;

for (my $end = now() + $seconds; now() < $end || keys %died < @points;) {
    my ($point) = grep { !$died{$_} } @points;
    $point //= $points[rand @points];
    my ($one, $other) = rand() < 0.5 ? qw(a b) : qw(b a);
    $history->arm($one, $point, 1 + int rand 3);
    pause(rand);
    $history->retention(1) if $kills % 5 == 4;
    if ($kills % 6 == 5) {
        $history->stack->cluster->stop('immediate');
        $history->stack->start_part('postgres');
    }
    if ($kills++ % 7 == 6) {
        $history->lose_node($other);
        $lost++;
    }
    else {
        $history->kill_node($other);
    }
    $died{$point}++ if $history->wait_dead($one);
    $history->node($one)->wait_ready(60);
    last if now() > $end + 120;
}
$history->stop;
is $history->{failed} // 0, 0, 'all clients ended well';
ok $died{$_}, "$_: died " . ($died{$_} // 0) . ' times' for @points;
$history->quiesce(120);
$history->verify;
is $history->stack->query(
    'SELECT count(*) FROM meter.writer WHERE retired_at IS NOT NULL'),
    $lost // 0, 'those who did not come back are retired';
diag "$history->{accepted} events, $history->{deaths} deaths";
done_testing;
