#!/usr/bin/perl

# 113-series-full.t - no room: twice limits.seriesCells are held because a
# flush cannot go on. Then the next batch of events waits, without an answer
# and without a loss, and goes on when the flush has made room.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::SeriesNodes;
use Edgemeter::Wait qw(wait_until);

use constant { CELLS => 50, BATCH => 20 };

my $nodes = Edgemeter::SeriesNodes->new;
my $node  = $nodes->start('a', yaml => { limits =>
        sprintf('{ seriesCells: %d, batchEvents: %d }', CELLS, BATCH) });

sub ledger { return $nodes->query('SELECT count(*) FROM meter.event') }

sub cells { return $node->metric('edgemeter_series_cells') }

# A flush by the clock that has nothing in it may wait in front: then what is
# held is counted from the batch behind it.
my @waiting;
my $sent = 0;
$nodes->holding('LOCK TABLE meter.writer_flush IN EXCLUSIVE MODE', sub {
    until ($node->metric('edgemeter_series_stalls_total')) {
        die "never full\n" if $sent >= 40 * BATCH;
        $nodes->send('a', BATCH, 1009);
        $sent += BATCH;
    }
    wait_until { cells() >= 2 * CELLS } 10, 'it is full';
    my $held = cells();
    cmp_ok $held, '<=', 2 * CELLS + BATCH,
        "full, by no more than a batch: $held cells";
    is ledger(), $sent, 'everything before is accepted';

    for (1 .. 3) {
        my $client = $node->client;
        $client->send($node->encode_events('acme',
            $nodes->events(BATCH, 1009)));
        push @waiting, $client;
    }
    $nodes->wait_held;
    wait_until { $node->metric('edgemeter_queue_events') == 3 * BATCH } 10,
        'the next ones are queued';
    is ledger(), $sent, 'and not begun';
    is cells(), $held, 'nothing is folded';
    is $node->ask(path => '/healthz')->{status}, 200, 'it lives';
});
is $_->receive->{status}, 200, 'one that waited is accepted' for @waiting;
is ledger(), $sent + 3 * BATCH, 'all are in the ledger';
$nodes->is_right('afterwards');
cmp_ok $node->metric('edgemeter_series_early_flushes_total'), '>', 0,
    'flushed early';
is $node->metric('edgemeter_series_unfit_events_total')
    + $node->metric('edgemeter_series_recovered_events_total'), 0,
    'from memory alone';
$nodes->end('a', 'TERM');
is $node->process->status, 0, 'a good end';
done_testing;
