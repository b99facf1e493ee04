#!/usr/bin/perl

# 94-query-range.t - questions about series: time zones, what is kept, and what
# is refused.

use strict;
use warnings;
use utf8;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use JSON::PP ();
use Test::More;
use Edgemeter::SeriesRows;
use Edgemeter::Stack;

my $stack = Edgemeter::Stack->for_test(rules => \<<'YAML')->start;
events:
  - { type: api.request }
series:
  - { name: requests, kind: counter, on: [api.request], value: quantity, dimensions: [route, status] }
  - { name: total, kind: counter, on: [api.request], value: quantity }
  - { name: latency, kind: histogram, on: [api.request], value: ms, buckets: [5, 10, 50], dimensions: [route] }
retention: { series5s: 4000d, series1m: 5000d, series1h: 6000d }
YAML
my $http = $stack->http('acme');
my $JSON = JSON::PP->new->canonical->allow_nonref;
my $rows = Edgemeter::SeriesRows->new($stack, 'acme');

sub ask   { return $http->get('/v1/query', @_) }
sub error {
    my $got = ref $_[0] ? $http->post('/v1/query', $_[0]) : ask(@_);
    return "$got->{status} " . ($got->{json}{error} // $got->{body});
}

# "time group value partial" of each row; the date where it is always one.
sub rows {
    my $got = ref $_[0] ? $_[0] : ask(@_);
    return "$got->{status} $got->{body}" if $got->{status} != 200;
    return join "\n", map {
        my ($time) = $_->{bucket} =~ /^(.*?)(?:\.000000)?Z$/;
        join ' ', $time, $JSON->encode($_->{dimensions}),
            $_->{value} // 'null', $_->{partial} ? 'partial' : ()
    } @{ $got->{json}{rows} };
}

my %DAY = (from => '2025-03-03T00:00:00Z', to => '2025-03-04T00:00:00Z');

# --- time zones ---------------------------------------------------------

subtest 'time zones' => sub {
    my @asked = (metric => 'total', interval => '1d', pad => 'null');
    my $starts = sub {
        my $got = ask(@asked, @_);
        return "$got->{status} $got->{body}" if $got->{status} != 200;
        return join ' ', $got->{json}{level},
            map { $_->{bucket} =~ /^....-(..-..T..:..)/; $1 }
            @{ $got->{json}{rows} };
    };
    is $starts->(tz => 'Europe/Berlin', from => '2025-03-28T23:00:00Z',
        to => '2025-03-31T22:00:00Z'),
        '1h 03-28T23:00 03-29T23:00 03-30T22:00', 'a day of 23 hours';
    is $starts->(tz => 'Europe/Berlin', from => '2025-10-24T22:00:00Z',
        to => '2025-10-27T23:00:00Z'),
        '1h 10-24T22:00 10-25T22:00 10-26T23:00', 'a day of 25 hours';
    is $starts->(tz => 'Asia/Kolkata', from => '2025-03-01T00:00:00Z',
        to => '2025-03-02T00:00:00Z'),
        '1m 02-28T18:30 03-01T18:30', 'half hours are built from 1m';
    is $starts->(tz => 'UTC', from => '2025-03-01T00:00:00Z',
        to => '2025-03-03T00:00:00Z'), '1d 03-01T00:00 03-02T00:00', 'UTC';
    is $starts->(tz => 'UTC', interval => '7d', from => '2025-03-03T00:00:00Z',
        to => '2025-03-10T00:00:00Z'), '7d 03-03T00:00', 'UTC by weeks';
    is $starts->(tz => 'Etc/GMT+5', from => '2025-03-01T05:00:00Z',
        to => '2025-03-02T05:00:00Z'), '1h 03-01T05:00', 'a fixed offset';
    is $starts->(tz => 'Europe/Berlin', interval => '7d',
        from => '2025-03-24T00:00:00Z', to => '2025-03-31T22:00:00Z'),
        '1h 03-23T23:00 03-30T22:00', 'weeks start on Monday there';
    is $starts->(tz => 'Europe/Berlin', interval => '9d',
        from => '2025-03-24T00:00:00Z', to => '2025-03-25T00:00:00Z') =~ s/ .*//r,
        '1h', 'any number of days';
    is $starts->(tz => 'America/Havana', from => '2024-11-02T12:00:00Z',
        to => '2024-11-04T05:00:00Z'), '1h 11-02T04:00 11-03T04:00',
        'midnight that comes twice: the first one';
    is $starts->(tz => 'Africa/Cairo', from => '2024-04-25T12:00:00Z',
        to => '2024-04-26T21:00:00Z'), '1h 04-24T22:00 04-25T22:00',
        'midnight that is skipped: the first instant of the day';
    is $starts->(tz => 'Pacific/Apia', from => '2011-12-29T12:00:00Z',
        to => '2011-12-31T10:00:00Z'), '1h 12-29T10:00 12-30T10:00',
        'a day that is skipped has no window';
    is ask(@asked, tz => 'Europe/Berlin', from => '2025-03-28T23:00:00Z',
        to => '2025-03-29T23:00:00Z')->{json}{tz}, 'Europe/Berlin',
        'the answer says so';

    $rows->bucket('total', '1h', '2025-03-30 21:00:00+00', {}, count => 1,
        sum => 5);
    $rows->bucket('total', '1h', '2025-03-30 22:00:00+00', {}, count => 1,
        sum => 7);
    is rows(@asked, tz => 'Europe/Berlin', from => '2025-03-29T23:00:00Z',
        to => '2025-03-31T22:00:00Z'),
        "2025-03-29T23:00:00 {} 5\n2025-03-30T22:00:00 {} 7",
        'buckets come into their local day';
    like $starts->(tz => 'Europe/Berlin',
        from => time - 86400 * 3), qr/^1h( \S+){3,5}$/, 'up to now';

    my @day = (metric => 'total', from => '2025-03-01T00:00:00Z',
        to => '2025-03-02T00:00:00Z');
    is error(@day, interval => '1d', tz => 'Europe/Nowhere'),
        '400 "tz" is no time zone that the database knows', 'unknown';
    for my $bad ('Berlin5', '+01:00', 'EST5EDT', 'A/B5', "x'y", '') {
        like error(@day, interval => '1d', tz => $bad),
            qr/^400 "tz" must be an IANA time zone/, "no zone: $bad";
    }
    like error(@day, interval => '12h', tz => 'UTC'),
        qr/^400 "tz" goes with multiples of 1d only/, 'not below a day';
    like error(@day, rollup => '1d', tz => 'UTC'),
        qr/^400 "tz" goes with "interval"/, 'not with rollup';
    like error(@day, interval => '1d', tz => 'Europe/Berlin',
        from => '1970-01-01T00:00:00Z'), qr/^400 more than 10000 windows/,
        'too many days';
    like error(@day, interval => '1d', tz => 'Africa/Monrovia',
        from => '1900-01-01T00:00:00Z', to => '1900-01-02T00:00:00Z'),
        qr/^422 midnights of this time zone do not lie on multiples of 5s/,
        'offsets with odd seconds';
};

# --- what is kept -------------------------------------------------------

subtest 'levels that are no longer kept' => sub {
    my @asked = (metric => 'requests', group_by => '', %DAY);
    my $floor = sub {
        my ($level, $day) = @_;
        $stack->query("UPDATE meter.partition_floor SET floor = '$day'"
            . " WHERE parent = 'series_$level'");
    };
    $floor->('5s', '2025-03-04');
    is error(@asked, interval => '90s'), '422 level 5s is kept from '
        . '2025-03-04T00:00:00.000000Z on; the finest level that is kept for '
        . 'this range is 1m', 'the finest one is named';
    is ask(@asked, interval => '2m')->{status}, 200, 'which answers';
    $floor->($_, '2025-03-04') for qw(1m 1h);
    like error(@asked, rollup => '1m'), qr/^422 level 1m .* is 1d$/, 'coarser';
    is ask(@asked, from => '2025-03-04T00:00:00Z', to => '2025-03-04T01:00:00Z',
        interval => '90s')->{status}, 200, 'from the floor on it answers';
    like error(@asked, from => '2025-03-03T23:59:59Z',
        to => '2025-03-04T00:00:10Z', rollup => '5s'), qr/^422/,
        'and not a moment before';
    $floor->($_, '2025-03-10') for qw(1d 7d);
    is error(@asked, rollup => '7d'), '422 no level is kept for this range; '
        . 'the longest kept is 7d, from 2025-03-10T00:00:00.000000Z on', 'none';
    is $http->get('/v1/series')->{json}{levels}[4]{kept_from},
        '2025-03-10T00:00:00.000000Z', '/v1/series says so';
    $floor->($_, '0001-01-01') for qw(5s 1m 1h 1d 7d);
};

# --- arguments ----------------------------------------------------------

subtest 'bad arguments' => sub {
    my @good = (metric => 'requests', interval => '1m', %DAY);
    my @rows = (
        [[%DAY, interval => '1m'], '400 "metric" is missing'],
        [[@good, metric => 'none'], '404 no such metric'],
        [[@good, from => 'x'], '400 "from" must be RFC 3339'],
        [[@good, to => '2025'x9], '400 "to" must be RFC 3339'],
        [[metric => 'requests', interval => '1m'], '400 "from" is missing'],
        [[@good, from => $DAY{to}, to => $DAY{from}],
            '400 "from" must be before "to"'],
        [[@good, from => $DAY{to}], '400 "from" must be before "to"'],
        [[metric => 'requests', interval => '1m',
            from => '2999-01-01T00:00:00Z'], '400 "from" must be before "to"'],
        [[metric => 'requests', %DAY], '400 either "rollup" or "interval"'],
        [[@good, rollup => '1m'], '400 either "rollup" or "interval"'],
        [[metric => 'requests', %DAY, rollup => '2m'],
            '400 "rollup" must be 5s, 1m'],
        (map { [[@good, interval => $_], '400 "interval" must be a multiple'] }
            '7s', '0s', '', '1', '-5s', '5m1h', '1m1m', '5ms', '1.5h',
            '99999999999d', '36501d', '1w'),
        [[@good, format => 'x'], '400 "format" must be rows or series, not "x"'],
        [[@good, partial => 'x'], '400 "partial" must be allow or forbid'],
        [[@good, pad => 'x'], '400 "pad" must be null or drop'],
        [[@good, nonsense => 1], '400 unknown argument "nonsense"'],
        [[@good, route => '/a'], '400 unknown argument "route"'],
        [[@good, 'where.x' => 1],
            '400 "where": the metric has no dimension "x"'],
        [[@good, where => '{"x":1}'],
            '400 "where": the metric has no dimension "x"'],
        [[@good, where => '{"route":{}}'], '400 "where": "route" must be'],
        [[@good, where => '{"route":[]}'], '400 "where": the list of "route"'],
        [[@good, where => '[1]'], '400 "where" must be an object'],
        [[@good, where => 'x'], '400 "where" is not JSON'],
        [[@good, where => '{} {}'], '400 "where" goes on behind'],
        [[@good, where => '{"route":"x"}', 'where.route' => 'x'],
            '400 "where" has the dimension "route" twice'],
        [[@good, group_by => 'route,x'],
            '400 "group_by": the metric has no dimension "x"'],
        [[@good, quantiles => '0.5'],
            '400 "quantiles" goes with histograms only'],
        [[@good, interval => '5s'], '400 more than 10000 windows'],
    );
    for my $row (@rows) {
        my ($args, $sentence) = @$row;
        my %args = @$args;
        like error(%args), qr/^\Q$sentence\E/, $sentence;
        next if grep {/^where|group_by|quantiles|nonsense|^route$/} keys %args;
        like error(\%args), qr/^\Q$sentence\E/, "the same by POST";
    }
    my %good = @good;
    like error({ %good, group_by => 'route' }), qr/^400 "group_by" must be a l/,
        'POST: group_by is a list';
    like error({ %good, metric => 5 }), qr/^400 "metric" must be a text/,
        'POST: types';
    like error({ %good, x => 5 }), qr/^400 unknown member "x"/, 'POST: members';
    is $http->post('/v1/query', { %good, from => 1740960000, to => '1741046400' })
        ->{body}, ask(@good)->{body}, 'epoch numbers';
    is $http->request('DELETE', '/v1/query')->{headers}{allow},
        'GET, HEAD, POST', 'methods';
    my @ten = (metric => 'total', rollup => '5s', pad => 'null',
        from => '2025-03-03T00:00:00Z', to => '2025-03-03T13:53:20Z');
    is scalar @{ ask(@ten)->{json}{rows} }, 10_000, '10,000 windows';
    like error(@ten, to => '2025-03-03T13:53:21Z'),
        qr/^400 more than 10000 windows/, 'and not one more';
};

subtest 'the size of an answer' => sub {
    for (1 .. 11) {
        $rows->bucket('requests', '5s', '2025-03-03 00:00:00+00',
            { route => "\"/r$_\"", status => '1' }, count => 1, sum => 1);
    }
    my @asked = (metric => 'requests', interval => '5s', 'where.status' => 1,
        from => '2025-03-03T00:00:00Z', to => '2025-03-03T13:53:20Z');
    like error(@asked, pad => 'null'),
        qr/^422 the answer would have more than 100000 values/, 'too many';
    is scalar(() = rows(@asked) =~ /\n/g), 10, 'without nulls it has a few';
};

done_testing;
