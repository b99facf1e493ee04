#!/usr/bin/perl

# 104-bucket-kills.t - two meterd on one database under clients that write
# counters. Each dies at the steps of a transaction, one of them has its COMMITs
# cut off, connections and PostgreSQL go away: what has a key counts once, and
# what has none is within what was said. The long form, at random, is
# t/torture/15-buckets.t.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::CounterBreaker;
use Edgemeter::CounterClients qw(run_clients write_request);
use Edgemeter::Wait qw(now wait_until);

my $breaker = Edgemeter::CounterBreaker->start(every => 60);

# Nobody dies and nobody gives up: which COMMITs have succeeded is found out, so
# that everything is answered and exact without any key.
subtest 'cut COMMITs alone' => sub {
    my $node = $breaker->node(1);
    my $end  = now() + 60;
    my (%told, %sum);
    run_clients(map {
        my $client = $_;
        {   port  => $node->port,
            token => $node->token('globex'),
            next  => sub {
                return if $breaker->cuts >= 12 || now() > $end;
                my $name = 'cut' . int rand 4;
                return { %{ write_request(
                    $client % 3 ? 'increment' : 'incrementSync', 'globex',
                    $name, 0, '2026-01-01T00:00:00Z') }, name => $name };
            },
            told => sub {
                my ($request, $answer) = @_;
                $told{ $answer->{status} }++;
                $sum{ $request->{name} }++ if $answer->{status} == 200;
            },
        }
    } 1 .. 24);
    cmp_ok $breaker->cuts, '>=', 12, 'four cuts of each kind';
    is join(' ', grep { !/^(?:200|429)$/ } sort keys %told), '',
        "$told{200} are applied, the others had no place";
    my %stored = map { split /\t/ } $node->query('SELECT name, added'
            . " FROM meter.bucket_counter WHERE tenant = 'globex'");
    is_deeply \%stored, \%sum, 'each counts once';
};

my $load = $breaker->load;

$load->wait_more(500);
for my $point (@Edgemeter::CounterBreaker::POINTS) {
    for my $node (0, 1) {
        ok $breaker->crash($node, $point, 1 + $node), "died: $point";
        $load->wait_more(300);
    }
}
cmp_ok $breaker->end_backends, '>', 0, 'connections are ended';
$load->wait_more(300);
$breaker->kill($_) for 0, 1;
$load->wait_more(300);
$breaker->restart_postgres;
$load->wait_more(300);
my $cuts = $breaker->cuts;
wait_until { $breaker->cuts >= $cuts + 6 } 60, 'two cuts of each kind';
$load->wait_more(300);
$load->stop;

my %cuts = $breaker->proxy->cuts;
cmp_ok $cuts{$_}, '>=', 6, "cut $cuts{$_} times: $_" for sort keys %cuts;
$load->verify;
my $count = $load->{count};
cmp_ok $count->{'plain unknown'} // 0, '>', 0, 'some were without an answer';
cmp_ok $count->{'own again'} // 0, '>', 0, 'some were repeated';
done_testing;
