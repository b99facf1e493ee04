#!/usr/bin/perl

# 111-series-floors.t - what a flush thinks to know and what has changed since:
# floors that retention raised meanwhile, partitions that are gone.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use POSIX ();
use Test::More;
use Edgemeter::SeriesNodes;

my $DAY   = 86_400;
my $today = $DAY * POSIX::floor(time / $DAY);
my $nodes = Edgemeter::SeriesNodes->new;
my $node  = $nodes->start('a', env => { METERD_TEST_FLUSH_MS => 300 });
my $sent  = 0;

sub day { return POSIX::strftime('%Y-%m-%d', gmtime($today - $DAY * $_[0])) }

# Two samples of the first 5 s of a day, so many days ago.
sub late {
    my ($ago) = @_;
    my $got = $node->post('acme', [map {
        { event_id => 'late' . $sent++, type => 'old', quantity => 3,
            ts => day($ago) . "T00:00:0${_}Z" } } 1, 2]);
    is $got->{status}, 200, "taken, $ago days late";
    return;
}

# "rows count sum" of a day in a level.
sub level {
    my ($level, $ago) = @_;
    my $day = day($ago);
    return $nodes->query("SELECT count(*), coalesce(sum(count), 0),"
        . " coalesce(sum(sum), 0)::int FROM meter.series_$level WHERE"
        . " series = 'old' AND bucket >= '${day}Z'"
        . " AND bucket < '${day}Z'::timestamptz + interval '1 day'")
        =~ s/\t/ /gr;
}

sub floor_raise {
    my ($level, $ago) = @_;
    return "UPDATE meter.partition_floor SET floor = '" . day($ago)
        . "' WHERE parent = 'series_$level'";
}

late(3);
$nodes->is_flushed('before');
is level('5s', 3), '1 2 6', 'a late event has its 5 s';

# The partition is there and known; only the floor says no.
subtest 'a floor raised since the last flush' => sub {
    $nodes->query(floor_raise('5s', 2));
    late(3);
    $nodes->is_flushed('raised');
    is level('5s', 3), '1 2 6', '5s got nothing more';
    is level('1m', 3) =~ s/^\d+ //r, '4 12', '1m did';
};

# The flush has begun with the floors it knew, and waits for retention.
subtest 'a floor raised during a flush' => sub {
    late(4);
    $nodes->is_flushed('4 days');
    is level('1m', 4) =~ s/^\d+ //r, '2 6', '1m has it';
    $nodes->holding(floor_raise('1m', 2), sub {
        late(4);
        late(1);
        $nodes->wait_held;
    });
    $nodes->is_flushed('meanwhile');
    is level('1m', 4) =~ s/^\d+ //r, '2 6', '1m got nothing more';
    is level('1h', 4), '1 4 12', '1h did';
    is level('5s', 1), '1 2 6', 'what is above the floors is in 5s';
    is $node->metric('edgemeter_series_flush_failures_total'), 0,
        'and no flush has failed';
};

# Retention of another host has dropped it, or a person has.
subtest 'a partition that is gone' => sub {
    my $name = 'meter.series_5s_' . day(1) =~ s/-//gr;
    $nodes->query("DROP TABLE $name");
    late(1);
    late(0);
    $nodes->is_flushed('without its partition');
    is level('5s', 1), '1 2 6', 'it is made again';
    is level('5s', 0), '1 2 6', 'the others have theirs';
    cmp_ok $node->metric('edgemeter_series_flush_failures_total'), '>', 0,
        'after a failure';
    like $node->log, qr/a flush failed.*"sqlstate":"23514"/, 'that was told';
};

done_testing;
