#!/usr/bin/perl

# 116-series-digits.t - what a meter takes, a series takes: quantities and
# values of 38 digits (10^18 wei are one ether), from the API, from metered
# routes and from deltas. Their sums pass 38 digits and stay exact on every
# level, in answers, after a death, and for reconcile and rebuild.
#
#   events -> [Math::BigInt] -> what series of each kind must say

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Math::BigInt;
use POSIX ();
use Test::More;
use Edgemeter::SeriesModel;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

# Three days ago: within what is kept, and 35 minutes of it in one bucket of
# each level from 1h on.
my $NOON = time - time % 86_400 - 2.5 * 86_400;
my $LARGEST = '99999999999999999999999999999.999999999';
my @LEVELS  = qw(5s 1m 1h 1d 7d);

my $gauges = join '', map {
    "  - { name: $_, kind: gauge, policy: $_, on: [transfer], value: wei }\n"
} qw(avg min max last);
my $stack = Edgemeter::Stack->for_test(rules => \<<"YAML",
events:
  - { type: transfer }
  - { type: edge.transfer }
  - { type: edge.delta, delta: true }
meters:
  - { metric: bill, on: [transfer, edge.transfer], value: quantity, aggregation: sum, period: month, groupBy: [n] }
  - { metric: deltas, on: [edge.delta], value: quantity, aggregation: sum, period: month }
series:
  - { name: quantities, kind: counter, on: [transfer, edge.transfer, edge.delta], value: quantity }
  - { name: weis, kind: counter, on: [transfer, edge.transfer, edge.delta], value: wei }
$gauges  - { name: sizes, kind: histogram, on: [transfer], value: wei, buckets: [1, 1e18, 2e18, 5e28] }
retention: { event: 3650d, series5s: 3650d, series1m: 3650d, series1h: 3650d }
YAML
    env        => { METERD_TEST_FLUSH_MS => 300,
        METERD_CRASH_POINT => 'inside_flush' },
    nginx_conf => \<<'CONF');
load_module @MODULE@;
daemon off;
pid @RUN_DIR@/nginx.pid;
error_log @RUN_DIR@/logs/nginx-error.log notice;
events { worker_connections 64; }
http {
    access_log off;
    client_body_temp_path @RUN_DIR@/tmp/body;
    proxy_temp_path @RUN_DIR@/tmp/proxy;
    fastcgi_temp_path @RUN_DIR@/tmp/fastcgi;
    uwsgi_temp_path @RUN_DIR@/tmp/uwsgi;
    scgi_temp_path @RUN_DIR@/tmp/scgi;
    meter_aggregator unix:@RUN_DIR@/meterd.sock;
    meter_outbox @RUN_DIR@/outbox 1m;
    meter_tenant acme;
    meter_quantity $arg_quantity negative;
    meter_attribute wei $arg_wei;
    meter_attribute n $arg_n;
    server {
        listen 127.0.0.1:@PORT@;
        location /v1/ { meter_api; }
        location = /healthz { meter_api; }
        location = /event { meter on; meter_event edge.transfer; empty_gif; }
        location = /delta { meter on; meter_event edge.delta; meter_capture delta; empty_gif; }
    }
}
CONF
$stack->start;
my $http = $stack->http('acme');
srand 116;

# --- the model ------------------------------------------------------------

my (%sum, @weis);    # units; those of transfers as [ts, number, units]

sub units { return Math::BigInt->new(Edgemeter::SeriesModel::nano($_[0])) }
sub plain { return Edgemeter::SeriesModel::plain($_[0]) }

sub note_sums {
    my ($quantity, $wei) = @_;
    $sum{quantities} = ($sum{quantities} // 0) + units($quantity);
    $sum{weis}       = ($sum{weis}       // 0) + units($wei);
    return;
}

# Half-even, as nobody but a test would write it.
sub mean {
    my ($total, $count) = @_;
    my ($floor, $rest) = $total->copy->bdiv($count);    # rounds down
    my $twice = 2 * $rest <=> $count;
    $floor++ if $twice > 0 || ($twice == 0 && $floor->is_odd);
    return $floor;
}

sub random_number {
    my $whole = 1 + int rand 29;
    my $text  = join '', map { int rand 10 } 1 .. $whole;
    $text =~ s/^0+(?=\d)//;
    $text .= '.' . join '', map { int rand 10 } 1 .. int rand 10 if rand() < 0.5;
    $text =~ s/\.$//;
    return (rand() < 0.3 ? '-' : '') . $text;
}

my $number = 0;

sub transfer {
    my ($quantity, $wei) = @_;
    my $ts = $NOON + 7 * ($number % 300);
    note_sums($quantity, $wei);
    push @weis, [$ts, $number, units($wei)];
    return sprintf '{"event_id":"t%d","type":"transfer","ts":%d,'
        . '"quantity":"%s","attributes":{"n":%d,"wei":%s}}', $number,
        $ts, $quantity, $number++, $wei;
}

sub post {
    my (@events) = @_;
    my $got = $http->request('POST', '/v1/events', '[' . join(',', @events) . ']');
    is $got->{json}{accepted}, scalar @events, @events . ' events are accepted'
        or diag substr $got->{body}, 0, 500;
    return;
}

sub settle {
    my ($events) = @_;
    wait_until {
        $stack->query(qq{SELECT (SELECT sum(count) >= $events FROM meter.event)
            AND NOT EXISTS (SELECT FROM meter.series_dirty)
            AND NOT EXISTS (SELECT FROM meter.writer_seq s
                JOIN meter.writer_flush f USING (writer) WHERE f.upto <> s.last)
            }) eq 't';
    } 120, "$events requests are in all levels";
    return;
}

my @MONTH = (from => $NOON - 20 * 86_400, to => time + 86_400);

# All windows of a level.
sub rows {
    my ($series, $level) = @_;
    my @range = $level eq '5s' || $level eq '1m'
        ? (from => $NOON, to => $NOON + 7200) : @MONTH;
    my $got = $http->get('/v1/query', metric => $series, rollup => $level,
        @range);
    return $got->{status} == 200 ? @{ $got->{json}{rows} }
        : ({ value => "$got->{status} $got->{body}" });
}

sub level_sum {
    my ($level, $series) = @_;
    return plain(Edgemeter::SeriesModel::nano($stack->query(
        "SELECT trim_scale(sum(sum)) FROM meter.series_$level"
        . " WHERE series = '$series'")));
}

sub is_right {
    my ($when) = @_;
    for my $level (@LEVELS) {
        for my $series (qw(quantities weis)) {
            is level_sum($level, $series), plain($sum{$series}),
                "$when: $series of $level";
        }
    }
    my $total = Math::BigInt->new(0);
    $total += $_->[2] for @weis;
    my ($least, @between) = sort { $a <=> $b } map { $_->[2] } @weis;
    my ($last) = sort { $b->[0] <=> $a->[0] || $b->[1] <=> $a->[1] } @weis;
    my %figure = (avg => mean($total, scalar @weis), min => $least,
        max => $between[-1], last => $last->[2]);
    for my $policy (sort keys %figure) {
        my ($row) = rows($policy, '7d');
        is "$row->{value} $row->{count}", plain($figure{$policy}) . ' ' . @weis,
            "$when: $policy of a gauge";
    }
    my @bounds = map { units($_) } '1', '1' . '0' x 18, '2' . '0' x 18,
        '5' . '0' x 28;
    my @counts = (0) x 5;
    for my $wei (map { $_->[2] } @weis) {
        my $at = 0;
        $at++ while $at < @bounds && $wei > $bounds[$at];
        $counts[$at]++;
    }
    my ($row) = rows('sizes', '7d');
    is "$row->{count} $row->{sum}", @weis . ' ' . plain($total),
        "$when: a histogram";
    is join(' ', map { $row->{counts}{$_} } (map { plain($_) } @bounds), 'inf'),
        "@counts", "$when: its bounds";
    my ($status) = meterd('reconcile');
    is $status, 0, "$when: reconcile agrees";
    return;
}

sub meterd {
    my ($command) = @_;
    my ($status, $out, $err) = $stack->meterd_command($command, 'series',
        $stack->config_arguments);
    return $status >> 8, $out . $err;
}

# --- events ---------------------------------------------------------------

my $edge = Edgemeter::Http->new(port => $stack->port);

sub request {
    my ($path, $quantity, $wei) = @_;
    my @n = $path eq '/event' ? (n => $number++) : ();
    is $edge->get($path, quantity => $quantity, wei => $wei, @n)->{status}, 200,
        "$path of $quantity";
    note_sums($quantity, $wei);
    return;
}

my $ether = '1' . '0' x 18;
post(
    transfer($ether, $ether), transfer($LARGEST, $LARGEST),
    transfer("-$LARGEST", "$ether.000000001"),
    map({ transfer($LARGEST, $LARGEST) } 1 .. 100),
    map({ transfer(random_number(), random_number()) } 1 .. 100),
);
request('/delta', "$ether.000000001", $LARGEST) for 1 .. 3;
request('/event', $_, $_) for $ether, "-2$ether", $LARGEST, "-$LARGEST";
wait_until { !$stack->alive('meterd') } 30, 'it dies in the flush';
delete $stack->{env}{METERD_CRASH_POINT};
$stack->start_part('meterd');
settle(210);
is_right('folded again');
is $stack->query('SELECT sum(count), max(count) > 1 FROM meter.event'
    . q( WHERE type = 'edge.delta')), "3\tt", 'a delta stands for several';
cmp_ok length plain($sum{weis}), '>', 40, 'sums have more than 38 digits';

subtest 'answers' => sub {
    my @asked = (metric => 'quantities', group_by => '', @MONTH);
    my $whole = 0;
    $whole += units($_->{value}) for rows('quantities', '5s');
    my $edges = $stack->query(q{SELECT sum(quantity) FROM meter.event
        WHERE type <> 'transfer'});
    is plain($whole + units($edges)), plain($sum{quantities}),
        'buckets as they are';
    $whole = 0;
    $whole += units($_->{value}) for @{
        $http->get('/v1/query', @asked, interval => '14d')->{json}{rows} };
    is plain($whole), plain($sum{quantities}), 'windows of several buckets';
    my $got = $http->request('GET',
        "/v1/query?metric=sizes&rollup=7d&from=$NOON", undef,
        Accept => 'text/csv');
    my ($row) = rows('sizes', '7d');
    like $got->{body}, qr/^[^,]+,$row->{count},$row->{count},\Q$row->{sum}\E,/m,
        'a table';
};

subtest 'late, and rebuilt' => sub {
    post(map { transfer($LARGEST, "-$LARGEST") } 1 .. 20);
    settle(230);
    is level_sum('7d', 'weis'), plain($sum{weis}), 'late events are in';
    $stack->query("UPDATE meter.series_$_ SET sum = sum * 10"
        . " WHERE series = 'weis'") for qw(5s 1d);
    my ($status, $said) = meterd('reconcile');
    is $status, 1, 'reconcile finds it';
    like $said, qr/"sum":"-?\d{30,}/, 'and tells all digits';
    ($status, $said) = meterd('rebuild');
    is $status, 0, 'rebuild mends it' or diag $said;
    settle(230);
    is_right('rebuilt');
};

is $stack->query('SELECT count(*) FROM meter.dead_letter'), 0,
    'nothing was refused';
unlike $stack->log('meterd'), qr/refused|set aside/, 'nor set aside';
done_testing;
