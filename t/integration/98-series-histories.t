#!/usr/bin/perl

# 98-series-histories.t - events late, repeated and contradicted on two meterd
# that die at every step of what follows a commit: afterwards every bucket of
# every level is what another program makes of the answers.
#
#   clients -> meterd a, b -> series_5s, 1m, 1h, 1d, 7d
#      +-----> [model] ------> the same

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::SeriesHistory;
use Edgemeter::SeriesModel qw(stored_floors);
use Edgemeter::Wait qw(wait_until);

my $seed    = $ENV{HISTORY_SEED} // 98;
# Its tail is looked for every six seconds instead of every thirty.
my $history = Edgemeter::SeriesHistory->start(seed => $seed,
    env => { METERD_TEST_ORPHAN_MS => 12_000 });
note "HISTORY_SEED=$seed";

sub more {
    my ($count) = @_;
    my $before = $history->answered;
    wait_until { $history->answered > $before + $count } 60, 'events come';
    return;
}

# One host is gone for good; the other one finds its tail while all the rest
# goes on. Levels lose their oldest days in the middle of it.
more(1000);
$history->lose_node('a');
ok $history->retention, 'retention has raised the floors';

# Both at once, each somewhere else.
srand $seed;
my @points = @Edgemeter::SeriesHistory::POINTS;
while (my ($one, $other) = splice @points, 0, 2) {
    $history->arm('a', $one,   1 + int rand 2);
    $history->arm('b', $other, 1 + int rand 2);
    ok $history->wait_dead('a'), "died: $one";
    ok $history->wait_dead('b'), "died: $other";
    $history->node($_)->wait_ready(60) for qw(a b);
    more(1000);
}
$history->kill_node('b');
$history->stop;
is $history->{failed} // 0, 0, 'all clients ended well';

$history->quiesce;
$history->verify;
cmp_ok $history->{accepted}, '>', 1000,
    "$history->{accepted} events (HISTORY_SEED=$seed)";
my $floors = stored_floors($history->stack);
cmp_ok $floors->{'5s'}, '>', $floors->{'1h'}, 'some were below the floor';
is $history->stack->query(
    'SELECT count(*) FROM meter.writer WHERE retired_at IS NOT NULL'), 1,
    'who did not come back is retired';
done_testing;
