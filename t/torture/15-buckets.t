# Two meterd that are killed all the time, anywhere and at the steps of a
# transaction, connections that are ended or cut in the middle of a COMMIT, and
# a PostgreSQL that is restarted now and then, under clients that write
# counters: what has a key counts once, what has none is within what was said.
# The short form, with all steps, is t/integration/104-bucket-kills.t.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::CounterBreaker;
use Edgemeter::Wait qw(now pause);

my $seconds = $ENV{TORTURE_SECONDS} || 20;
plan skip_all => 'as t/integration/104-bucket-kills.t does' if $seconds < 20;
my $seed = $ENV{HISTORY_SEED} // time;
diag "HISTORY_SEED=$seed";
srand $seed;
my $breaker = Edgemeter::CounterBreaker->start(every => 100);
my $load    = $breaker->load;
my @points  = @Edgemeter::CounterBreaker::POINTS;
my (%died, $kills, $ended, $restarts);
my @ways = (
    sub {
        my $point = $points[rand @points];
        $died{$point}++ if $breaker->crash(int rand 2, $point, 1 + int rand 9);
    },
    sub { $breaker->kill(int rand 2); $kills++ },
    sub { $ended += $breaker->end_backends },
    sub { $breaker->restart_postgres; $restarts++ },
);

for (my $end = now() + $seconds; now() < $end || keys %died < @points;) {
    pause(rand 0.5);
    $ways[rand() < 0.4 ? 0 : rand @ways]->();
    $load->wait_more(100, 90) if rand() < 0.3;
    last if now() > $end + 120;
}
$load->stop;
ok $died{$_}, "$_: died " . ($died{$_} // 0) . ' times' for @points;
my %cuts = $breaker->proxy->cuts;
cmp_ok $cuts{$_}, '>', 0, "cut $cuts{$_} times: $_" for sort keys %cuts;
$load->verify;
diag sprintf '%d kills, %d connections ended, %d restarts', $kills // 0,
    $ended // 0, $restarts // 0;
done_testing;
