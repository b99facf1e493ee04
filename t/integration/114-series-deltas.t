#!/usr/bin/perl

# 114-series-deltas.t - events that stand for several requests (deltas of the
# edge): a series counts each of them as often as its count says, live, folded
# again after a death, and in all levels.

use strict;
use warnings;
use File::Copy ();
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::Node;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until poll_until);

use constant SIZE => 1 << 20;

my $rules = <<'YAML';
events: [ { type: api.delta, delta: true } ]
series:
  - { name: requests, kind: counter, on: [api.delta], dimensions: [route] }
  - { name: bytes, kind: counter, on: [api.delta], value: quantity, dimensions: [route] }
YAML
my $stack = Edgemeter::Stack->for_test(rules => \$rules);
$stack->start_schema;
my $scratch = $stack->place->path('tmp');
my $outbox  = "$scratch/rings";
mkdir $outbox, 0770;
$stack->account->own($outbox);

my $client = "$scratch/ring_client";
File::Copy::copy(Edgemeter::Stack::root() . '/build/integration/ring_client',
    $client) or die "ring_client: $!\n";
chmod 0755, $client;

sub start {
    my (%env) = @_;
    return Edgemeter::Node->start($stack, name => 'a',
        yaml => { outbox => "'$outbox'" },
        env => { METERD_TEST_ADOPT_MS => 300, METERD_TEST_FLUSH_MS => 300,
            %env });
}

# A worker that has counted so many requests of each route and is gone; one
# request has a quantity of 1.5.
sub ring {
    my ($name, %requests) = @_;
    my ($status, $out, $err) = Edgemeter::Process::capture(
        command => [$client, "$outbox/ring-$name", 'make:' . SIZE,
            map {"add:$_:$requests{$_}"} sort keys %requests],
        user => $stack->account,
    );
    is $status, 0, "ring $name" or diag $err . $out;
    return;
}

# "route count sum" in a level, of all routes.
sub series {
    my ($level, $name) = @_;
    return join ', ', map {s/\t/ /gr} $stack->query(<<"SQL");
SELECT k.dimensions::jsonb ->> 'route', sum(s.count), trim_scale(sum(s.sum))
FROM meter.series_$level AS s
INNER JOIN meter.series_key AS k USING (tenant, series, version, dimension_key)
WHERE s.series = '$name'
GROUP BY 1
ORDER BY 1
SQL
}

sub is_settled {
    my ($events) = @_;
    my $left = '';
    ok +(poll_until {
        $left = $stack->query(q{SELECT (SELECT count(*) FROM meter.event),
            (SELECT coalesce(sum(s.last - f.upto), 0) FROM meter.writer_seq s
                JOIN meter.writer_flush f USING (writer)),
            (SELECT count(*) FROM meter.series_dirty)});
        $left eq "$events\t0\t0";
    } 30), "$events events are in all levels" or diag $left;
    return;
}

my $node = start()->wait_ready;
ring('one', a => 5, b => 1);
is_settled(2);
is $stack->query('SELECT max(count) FROM meter.event'), 5,
    'one event stands for five';
is series('5s', 'requests'), 'a 5 7.5, b 1 1.5', 'a series counts five';
is series('5s', 'bytes'), 'a 5 7.5, b 1 1.5', 'and adds their quantity up';

# Accepted by one that dies in its flush: read again from the ledger.
$node->process->stop('TERM', 20);
$node = start(METERD_CRASH_POINT => 'inside_flush');
ring('two', a => 700, c => 12);
wait_until { !$node->process->alive } 30, 'it dies in the flush';
is series('5s', 'requests'), 'a 5 7.5, b 1 1.5', 'nothing of it is there';
$node = start()->wait_ready;
is_settled(4);
like $node->log, qr/"recovered","events":2,/, 'folded again';
for my $level (qw(5s 1m 1h 1d 7d)) {
    is series($level, 'requests'), 'a 705 1057.5, b 1 1.5, c 12 18',
        "$level: all of them";
}
is series('7d', 'bytes'), 'a 705 1057.5, b 1 1.5, c 12 18', 'and their sum';
done_testing;
