#!/usr/bin/perl

# 63-rewind.t - the database goes back in time: a standby that missed the
# last commits is promoted. Rings send again what they still have, ids that
# the zone calls durable are not swallowed, and what is gone is told by number.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::EdgeLoad;
use Edgemeter::EdgeVerify qw(wait_drained edge_metric);
use Edgemeter::Place;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

my $stack = Edgemeter::Stack->for_test(
    rules      => \Edgemeter::EdgeLoad::rules(),
    nginx_conf => \Edgemeter::EdgeLoad::conf(workers => 1, outbox => '256k'),
)->start;
my $data = $stack->place->path('data');

sub requests {
    my ($mode, $name, $count) = @_;
    my $http = $stack->http;
    for my $n (1 .. $count) {
        my $got = $http->get("/$mode?n=$name-$n&tenant=acme&key=0");
        die "status $got->{status}\n" unless $got->{status} == 200;
    }
    return;
}

sub counted {
    my ($name) = @_;
    return join ' ', $stack->query(
        "SELECT count(*), count(DISTINCT coalesce(attributes::json ->> 'n',
                event_id)) FROM meter.event
          WHERE attributes::json ->> 'n' LIKE '$name-%'
             OR event_id LIKE '$name-%'") =~ /\d+/g;
}

# A copy of the cluster as it is now: what the standby will know.
sub copy_cluster {
    $stack->cluster->stop('fast');
    system('cp', '-a', $data, "$data.copy") == 0 or die "cp failed\n";
    $stack->start_part('postgres');
    wait_able();
    return;
}

# meterd commits again.
sub wait_able {
    $stack->wait_healthy;
    wait_until { $stack->http->get('/readyz')->{status} == 200 } 30, 'ready';
    return;
}

# The server is gone; the copy takes its place as the new primary.
sub fail_over {
    $stack->cluster->stop('immediate');
    rename $data, "$data.lost-" . time . int rand 1e6 or die $!;
    rename "$data.copy", $data or die $!;
    open my $signal, '>', "$data/standby.signal" or die $!;
    close $signal;
    $stack->account->own("$data/standby.signal");
    $stack->start_part('postgres');
    wait_until {
        eval { $stack->query('SELECT pg_promote(); SELECT pg_is_in_recovery()')
                =~ /f$/ }
    } 30, 'the standby is promoted';
    wait_able();
    return;
}

subtest 'rings have everything' => sub {
    requests(event => 'before', 20);
    requests(id    => 'known',  10);
    wait_drained($stack);
    copy_cluster();
    requests(event => 'after',  30);
    requests(id    => 'fresh',  10);
    wait_drained($stack);
    is counted('after'), '30 30', 'committed';
    is counted('fresh'), '10 10', 'ids too';
    requests(id => 'fresh', 1);
    wait_drained($stack);
    my $repeats = edge_metric($stack,
        'edgemeter_edge_verdicts_total{verdict="duplicate"}');

    fail_over();
    wait_until { counted('after') eq '30 30' } 30,
        'what the database forgot came again, without new traffic';
    is counted('before'), '20 20', 'and nothing else';
    wait_until { counted('fresh') eq '10 10' } 30, 'ids too';
    wait_drained($stack);
    is edge_metric($stack, 'edgemeter_edge_rewinds_total'), 1, 'noticed';
    is edge_metric($stack, 'edgemeter_edge_records_missing_total'), 0,
        'nothing is missing';
    like $stack->log('nginx-error'), qr/went back in time/, 'alarm at the edge';

    # The zone called these durable; their event was gone for a while.
    requests(id => 'fresh', 10);
    requests(id => 'known', 10);
    wait_drained($stack);
    is counted('fresh'), '10 10', 'repeats change nothing';
    is counted('known'), '10 10', 'old ones neither';
    is $stack->query("SELECT count(*) FROM meter.duplicate_audit"
            . " WHERE event_id LIKE 'known-%'"), 10, 'they are audited';
    is edge_metric($stack, 'edgemeter_edge_conservation_gap'), 0,
        'the sums agree';
};

subtest 'more was forgotten than a ring holds' => sub {
    my $rewinds = edge_metric($stack, 'edgemeter_edge_rewinds_total');
    copy_cluster();
    requests(event => 'many', 2500);
    wait_drained($stack);
    is counted('many'), '2500 2500', 'committed';
    fail_over();
    requests(event => 'last', 1);
    wait_until { counted('last') eq '1 1' } 30, 'it goes on';
    wait_drained($stack);
    my ($left) = split / /, counted('many');
    my $missing = edge_metric($stack, 'edgemeter_edge_records_missing_total');
    cmp_ok $missing, '>', 0, 'some are missing';
    is $left + $missing, 2500, 'exactly those that are not there';
    is $stack->query('SELECT sum(count) FROM meter.edge_loss'
            . ' WHERE reasons = 8'), $missing, 'on record';
    is edge_metric($stack, 'edgemeter_edge_rewinds_total'), $rewinds + 1,
        'one rewind';
};

sub workers {
    my ($count) = @_;
    my $conf = $stack->place->path('nginx.conf');
    open my $in, '<', $conf or die $!;
    my $text = do { local $/; <$in> };
    $text =~ s/worker_processes \d+/worker_processes $count/ or die;
    Edgemeter::Place::replace_file($conf, 0644, undef, $text);
    kill 'HUP', $stack->part_pid('nginx');
    wait_until {
        edge_metric($stack, 'edgemeter_edge_outbox_rings{state="owned"}')
            == $count
    } 20, "$count workers";
    return;
}

# The last owner of a ring has gone; the others know that the database is
# another one.
subtest 'a ring that nobody uses any more' => sub {
    workers(4);
    copy_cluster();
    for my $n (1 .. 60) {
        my $got = $stack->http->get("/event?n=spare-$n&tenant=acme&key=0");
        die "status $got->{status}\n" unless $got->{status} == 200;
    }
    wait_drained($stack);
    workers(1);
    cmp_ok edge_metric($stack, 'edgemeter_edge_outbox_rings{state="spare"}'),
        '>=', 1, 'spares';
    is counted('spare'), '60 60', 'committed';
    fail_over();
    wait_until { counted('spare') eq '60 60' } 30, 'all came again';
    pass 'what spares had delivered came again';
};

$stack->stop;
done_testing;
