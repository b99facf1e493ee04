#!/usr/bin/perl

# 94-query.t - GET and POST /v1/query, GET /v1/series: windows, levels, groups
# and forms of answers. The buckets are put into the tables by the test, so
# that each of them is known.

use strict;
use warnings;
use utf8;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use JSON::PP ();
use Test::More;
use Edgemeter::Page;
use Edgemeter::SeriesRows;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

my $stack = Edgemeter::Stack->for_test(rules => \<<'YAML')->start;
events:
  - { type: api.request }
  - { type: queue.sampled }
  - { type: order.changed }
series:
  - { name: requests, kind: counter, on: [api.request], value: quantity, dimensions: [route, status] }
  - { name: total, kind: counter, on: [api.request], value: quantity }
  - { name: latency, kind: histogram, on: [api.request], value: ms, buckets: [5, 10, 50], dimensions: [route] }
  - { name: newest, kind: gauge, policy: last, on: [queue.sampled], value: depth, dimensions: [queue] }
  - { name: mean, kind: gauge, policy: avg, on: [queue.sampled], value: depth, dimensions: [queue] }
  - { name: least, kind: gauge, policy: min, on: [queue.sampled], value: depth, dimensions: [queue] }
  - { name: most, kind: gauge, policy: max, on: [queue.sampled], value: depth, dimensions: [queue] }
  - { name: orders, kind: state, on: [order.changed], entity: id, state: state, dimensions: [shop] }
retention: { series5s: 4000d, series1m: 5000d, series1h: 6000d }
YAML
my $http = $stack->http('acme');
my $JSON = JSON::PP->new->canonical->allow_nonref;
my $rows = Edgemeter::SeriesRows->new($stack, 'acme');

# --- buckets by hand ----------------------------------------------------

sub counted {
    my ($level, $at, $sum, %dims) = @_;
    %dims = (route => '"/a"', status => '200', %dims);
    $rows->bucket('requests', $level, $at, \%dims, count => 1, sum => $sum);
    return;
}

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

# --- which there are ----------------------------------------------------

subtest 'GET /v1/series' => sub {
    my $got = $http->get('/v1/series');
    is $got->{status}, 200, 'answered' or diag $got->{body};
    my %of = map { $_->{metric} => $_ } @{ $got->{json}{series} };
    is_deeply [map { $_->{metric} } @{ $got->{json}{series} }],
        [qw(requests total latency newest mean least most orders)],
        'in the order of the rules';
    delete $_->{version} for values %of;
    is_deeply $of{requests}, {
        metric => 'requests', kind => 'counter', value => 'quantity',
        dimensions => ['route', 'status'], on => ['api.request']
    }, 'a counter';
    is_deeply $of{latency}, {
        metric => 'latency', kind => 'histogram', value => 'ms',
        buckets => ['5', '10', '50'], dimensions => ['route'],
        on => ['api.request']
    }, 'a histogram';
    is $of{newest}{policy}, 'last', 'a gauge has a policy';
    is_deeply [@{ $of{orders} }{qw(kind entity state)}],
        ['state', 'id', 'state'], 'a state series has its attributes';
    is_deeply $got->{json}{levels}, [
        { level => '5s', retention => '4000d',   kept_from => undef },
        { level => '1m', retention => '5000d',   kept_from => undef },
        { level => '1h', retention => '6000d',   kept_from => undef },
        { level => '1d', retention => 'forever', kept_from => undef },
        { level => '7d', retention => 'forever', kept_from => undef },
    ], 'levels' or diag $got->{body};
    like $http->get('/v1/series', x => 1)->{json}{error}, qr/no query arg/,
        'no arguments';
    like $rows->version('requests'), qr/^[1-9]\d*$/, 'a version';
};

# --- windows ------------------------------------------------------------

subtest 'windows of all levels' => sub {
    counted('5s', '2025-03-03 00:00:00+00', 1);
    counted('5s', '2025-03-03 00:01:25+00', 2);
    counted('5s', '2025-03-03 00:01:30+00', 4);
    counted('1m', '2025-03-03 00:00:00+00', 10);
    counted('1m', '2025-03-03 00:01:00+00', 20);
    counted('1h', '2025-03-03 00:00:00+00', 100);
    counted('1h', '2025-03-03 03:00:00+00', 200);
    counted('1d', '2025-02-28 00:00:00+00', 1000);
    counted('1d', '2025-03-03 00:00:00+00', 2000);
    counted('7d', '2025-03-03 00:00:00+00', 10000);
    counted('7d', '2025-03-10 00:00:00+00', 20000);

    my @asked = (metric => 'requests', group_by => '', %DAY);
    for (
        ['90s', '5s', "2025-03-03T00:00:00 {} 3\n2025-03-03T00:01:30 {} 4"],
        ['5s', '5s', "2025-03-03T00:00:00 {} 1\n2025-03-03T00:01:25 {} 2\n"
            . '2025-03-03T00:01:30 {} 4'],
        ['1m30s', '5s', "2025-03-03T00:00:00 {} 3\n2025-03-03T00:01:30 {} 4"],
        ['2m', '1m', '2025-03-03T00:00:00 {} 30'],
        ['3h', '1h', "2025-03-03T00:00:00 {} 100\n2025-03-03T03:00:00 {} 200"],
        ['1d', '1d', '2025-03-03T00:00:00 {} 2000'],
        )
    {
        my ($interval, $level, $rows) = @$_;
        my $got = ask(@asked, interval => $interval,
            $interval eq '5s' ? (to => '2025-03-03T00:02:00Z') : ());
        is rows($got), $rows, "$interval";
        is $got->{json}{level}, $level, "$interval from $level";
    }
    is ask(@asked, interval => '1m30s')->{json}{interval}, '90s',
        'the interval in its shortest form';

    my @march = (metric => 'requests', group_by => '',
        from => '2025-03-03T00:00:00Z', to => '2025-03-17T00:00:00Z');
    my $got = ask(@march, interval => '14d');
    is $got->{json}{level}, '7d', '14d from 7d';
    is rows($got), '2025-03-03T00:00:00 {} 30000',
        '14d counts from Monday 1970-01-05';
    is rows(@march, interval => '14d', from => '2025-03-10T00:00:00Z'),
        '2025-03-03T00:00:00 {} 20000 partial', 'one of two weeks';
    $got = ask(@march, interval => '9d', from => '2025-02-28T00:00:00Z');
    is $got->{json}{level}, '1d', '9d from 1d';
    is rows($got), '2025-02-23T00:00:00 {} 3000 partial',
        '9d counts from 1970-01-01';

    for my $level (qw(5s 1m 1h 1d 7d)) {
        is ask(@march, rollup => $level, to => '2025-03-03T00:01:00Z')
            ->{json}{level}, $level, "rollup $level";
    }
    is rows(ask(@march, rollup => '7d')),
        "2025-03-03T00:00:00 {} 10000\n2025-03-10T00:00:00 {} 20000",
        'rollup 7d: its buckets';
};

subtest 'partial and pad' => sub {
    my @asked = (metric => 'requests', group_by => '', interval => '90s',
        from => '2025-03-03T00:00:05Z', to => '2025-03-03T00:04:30Z');
    is rows(@asked), "2025-03-03T00:00:00 {} 2 partial\n"
        . '2025-03-03T00:01:30 {} 4',
        'only what is inside counts, and its window is partial';
    is rows(@asked, partial => 'forbid'), '2025-03-03T00:01:30 {} 4',
        'forbidden: dropped';
    is rows(@asked, pad => 'null'), "2025-03-03T00:00:00 {} 2 partial\n"
        . "2025-03-03T00:01:30 {} 4\n2025-03-03T00:03:00 {} null",
        'an empty window is null';
    is rows(@asked, pad => 'null', partial => 'forbid'),
        "2025-03-03T00:00:00 {} null partial\n"
        . "2025-03-03T00:01:30 {} 4\n2025-03-03T00:03:00 {} null",
        'forbidden: null';
    is rows(@asked, from => '2025-03-03T00:00:00Z',
        to => '2025-03-03T00:02:00Z'),
        "2025-03-03T00:00:00 {} 3\n2025-03-03T00:01:30 {} 4 partial",
        'partial at the end';

    my $series = ask(@asked, format => 'series')->{json};
    is_deeply $series, {
        metric => 'requests', level => '5s', interval => '90s',
        buckets => ['2025-03-03T00:00:00.000000Z',
            '2025-03-03T00:01:30.000000Z', '2025-03-03T00:03:00.000000Z'],
        partial => [JSON::PP::true, JSON::PP::false, JSON::PP::false],
        series  => [{ dimensions => {}, values => ['2', '4', undef] }],
    }, 'series: null by default';
    is_deeply ask(@asked, format => 'series', pad => 'drop')->{json}{buckets},
        ['2025-03-03T00:00:00.000000Z', '2025-03-03T00:01:30.000000Z'],
        'series: windows that are empty for all are dropped';
    is_deeply ask(@asked, format => 'series', partial => 'forbid')
        ->{json}{series}[0]{values}, [undef, '4', undef], 'series: forbidden';
    is_deeply ask(@asked, format => 'series', pad => 'drop',
        partial => 'forbid')->{json}{buckets},
        ['2025-03-03T00:01:30.000000Z'], 'series: forbidden and dropped';
};

subtest 'newer than the mark' => sub {
    my ($now) = $stack->query(
        q{SELECT floor(extract(epoch FROM clock_timestamp()))::bigint});
    my $hour = $now - $now % 3600;
    my @asked = (metric => 'total', rollup => '1h', pad => 'null',
        from => $hour - 7200);
    like rows(@asked), qr/^\S+ \{\} null\n\S+ \{\} null\n\S+ \{\} null partial$/,
        'up to now: the last window is not over';
    like rows(@asked, to => $hour + 3600), qr/null\n.*null\n.*null partial$/,
        'a window that ends after the mark';

    my $mark = sprintf q{'%s'::timestamptz}, scalar $stack->query(
        "SELECT to_timestamp($hour - 1800)");
    $stack->query(<<"SQL");
INSERT INTO meter.writer VALUES
    ('00000000-0000-4000-8000-0000000000aa', 'gone', 1, now(), NULL);
INSERT INTO meter.writer_seq VALUES
    ('00000000-0000-4000-8000-0000000000aa', 7, 1, now(), now());
INSERT INTO meter.writer_flush VALUES
    ('00000000-0000-4000-8000-0000000000aa', 6, NULL, $mark);
SQL
    like rows(@asked),
        qr/null\n.*null partial\n.*null partial$/,
        'a writer with rows that are not flushed holds the mark';
    $stack->query(<<'SQL');
UPDATE meter.writer_flush SET upto = 7
    WHERE writer = '00000000-0000-4000-8000-0000000000aa';
SQL
    like rows(@asked), qr/null\n.*null\n.*null partial$/,
        'not when all of them are';
    $stack->query(<<'SQL');
UPDATE meter.writer_flush SET upto = 6
    WHERE writer = '00000000-0000-4000-8000-0000000000aa';
UPDATE meter.writer SET retired_at = now()
    WHERE writer = '00000000-0000-4000-8000-0000000000aa';
SQL
    like rows(@asked), qr/null\n.*null\n.*null partial$/, 'nor when retired';
};

subtest 'buckets that are to be computed again' => sub {

    # Whoever rolls up finds nothing to take.
    $stack->query(<<'SQL');
CREATE FUNCTION meter.keep() RETURNS trigger LANGUAGE plpgsql
    AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER keep BEFORE DELETE ON meter.series_dirty
    FOR EACH ROW EXECUTE FUNCTION meter.keep();
SQL
    my $key = $rows->key({ route => '"/a"', status => '200' });
    my $version = $rows->version('requests');
    my @asked = (metric => 'requests', group_by => '', %DAY);
    my $mark = sub {
        my ($level, $at, $series, $version) = @_;
        $stack->query(<<"SQL");
INSERT INTO meter.series_dirty
    (level, tenant, series, version, dimension_key, bucket, marked_at)
    VALUES ($level, 'acme', '$series', $version, '\\x$key', '$at', now());
SQL
    };
    $mark->(1, '2025-03-03 03:59:00+00', 'requests', $version);
    is rows(@asked, rollup => '1h'),
        "2025-03-03T00:00:00 {} 100\n2025-03-03T03:00:00 {} 200 partial",
        'a mark of a level below';
    is rows(@asked, rollup => '1d'), '2025-03-03T00:00:00 {} 2000 partial',
        'and of one below that';
    unlike rows(@asked, interval => '90s'), qr/partial/,
        'not where the level below is read';
    $stack->query('TRUNCATE meter.series_dirty');
    $mark->(3, '2025-03-03 00:00:00+00', 'requests', $version);
    unlike rows(@asked, rollup => '1h'), qr/partial/, 'nor one of a level above';
    like rows(@asked, rollup => '1d'), qr/partial/, 'but for that level';
    $stack->query('TRUNCATE meter.series_dirty');
    $mark->(2, '2025-03-03 03:00:00+00', 'total', $rows->version('total'));
    $mark->(2, '2025-03-03 03:00:00+00', 'requests', 1);
    $mark->(2, '2025-03-02 23:00:00+00', 'requests', $version);
    $mark->(2, '2025-03-04 00:00:00+00', 'requests', $version);
    unlike rows(@asked, rollup => '1h'), qr/partial/,
        'nor another series, version or time';
    $stack->query('TRUNCATE meter.series_dirty'
        . '; DROP FUNCTION meter.keep() CASCADE');
};

# --- dimensions ---------------------------------------------------------

subtest 'where and group_by' => sub {
    my $at = '2025-03-05 00:00:00+00';
    my @asked = (metric => 'requests', rollup => '1h',
        from => '2025-03-05T00:00:00Z', to => '2025-03-05T01:00:00Z');
    counted('1h', $at, 1);
    counted('1h', $at, 2, status => '404');
    counted('1h', $at, 4, route => '"/b"');
    counted('1h', $at, 8, route => '"/b"', status => 'null');
    counted('1h', $at, '16.5', route => 'true', status => '"x\'y"' =~ s/'//r);

    my $t = '2025-03-05T00:00:00';
    is rows(@asked), join("\n",
        qq({"route":"/a","status":200} 1), qq({"route":"/a","status":404} 2),
        qq({"route":"/b","status":200} 4), qq({"route":"/b","status":null} 8),
        qq({"route":true,"status":"xy"} 16.5)) =~ s/^/$t /gmr,
        'each dimension set, by the bytes of its JSON';
    is rows(@asked, group_by => ''), "$t {} 31.5", 'all together';
    is rows(@asked, group_by => 'route'), join("\n",
        qq({"route":"/a"} 3), qq({"route":"/b"} 12), qq({"route":true} 16.5))
        =~ s/^/$t /gmr, 'by one of them';
    is rows(@asked, group_by => 'status,route'), rows(@asked),
        'the order of group_by does not matter';

    my %where = (
        'where.route'  => ['/a' => 3],
        'where.route ' => ['"/b"' => 12],
        'where.status' => ['200' => 5],
        'where.status ' => ['' => 8],
        'where.route  ' => ['true' => 16.5],
    );
    for my $name (sort keys %where) {
        my ($value, $sum) = @{ $where{$name} };
        is rows(@asked, group_by => '', $name =~ s/ //gr => $value),
            "$t {} $sum", "$name=$value";
    }
    is rows(@asked, 'where.route' => '/a', 'where.status' => '404'),
        qq($t {"route":"/a","status":404} 2), 'all dimensions are given';
    is rows(@asked, 'where.route' => '/none', 'where.status' => 'x'), '',
        'a set that is not there';
    is rows(@asked, 'where.route' => '/none', group_by => '', pad => 'null'),
        "$t {} null", 'a total of nothing is null';
    is rows(@asked, where => '{"status":[404,null]}', group_by => ''),
        "$t {} 10", 'a list';
    is rows(@asked, where => '{"status":"200"}'), '',
        'JSON has types: the text is not the number';
    is rows($http->post('/v1/query', {@asked,
        where => { route => '/b', status => [200, undef] },
        group_by => ['route'] })), qq($t {"route":"/b"} 12), 'by POST';
    is rows($http->post('/v1/query', {@asked, group_by => []})),
        "$t {} 31.5", 'an empty list: all together';

    counted('1h', $at, 32, status => '"200"');
    like error(@asked, 'where.status' => '200'),
        qr/^400 a value exists both as text and as another type/,
        'a value that exists twice';
    is rows(@asked, 'where.status' => '"200"'),
        qq($t {"route":"/a","status":"200"} 32), 'in quotes: the text';
    is rows(@asked, 'where.status' => '200.0', group_by => ''),
        "$t {} 5", 'another spelling: the number';
};

subtest 'tenants do not meet' => sub {
    my $other = $stack->http('globex');
    my @asked = (metric => 'requests', rollup => '1h', group_by => '',
        from => '2025-03-06T00:00:00Z', to => '2025-03-06T01:00:00Z');
    my %dims = (route => '"/a"', status => '200');
    $rows->bucket('requests', '1h', '2025-03-06 00:00:00+00', \%dims,
        count => 1, sum => 7);
    Edgemeter::SeriesRows->new($stack, 'globex')->bucket('requests', '1h', '2025-03-06 00:00:00+00', \%dims,
        count => 1, sum => 9);
    my $t = '2025-03-06T00:00:00';
    is rows(@asked), "$t {} 7", 'one';
    is rows($other->get('/v1/query', @asked)), "$t {} 9", 'the other';
    for my $where ('{"tenant":"globex"}', '{"route\' OR true --":"x"}') {
        like error(@asked, where => $where),
            qr/^400 "where": the metric has no dimension/, $where;
    }
    is rows(@asked, 'where.route' => q{/a' OR '1'='1}), '', 'no SQL in values';
    is $stack->http(undef)->get('/v1/query', @asked)->{status}, 401, 'a token';
};

# --- kinds --------------------------------------------------------------

subtest 'gauges' => sub {
    my %a = (queue => '"a"');
    my %b = (queue => '"b"');
    my %sample = (last_recorded_at => '2025-03-08 00:00:00+00',
        last_writer => '00000000-0000-4000-8000-000000000001', last_seq => 1);
    for my $name (qw(newest mean least most)) {
        $rows->bucket($name, '5s', '2025-03-07 00:00:00+00', \%a, count => 2,
            sum => 10, min => 4, max => 6, last => 6, %sample,
            last_at => '2025-03-07 00:00:01+00');
        $rows->bucket($name, '5s', '2025-03-07 00:00:05+00', \%a, count => 1,
            sum => 3, min => 3, max => 3, last => 3, %sample,
            last_at => '2025-03-07 00:00:06+00');
        $rows->bucket($name, '5s', '2025-03-07 00:00:05+00', \%b, count => 1,
            sum => '-1.5', min => '-1.5', max => '-1.5', last => '-1.5',
            %sample, last_seq => 2, last_at => '2025-03-07 00:00:06+00');
    }
    my @asked = (interval => '10s', from => '2025-03-07T00:00:00Z',
        to => '2025-03-07T00:00:10Z');
    my $t = '2025-03-07T00:00:00';
    is rows(@asked, metric => 'mean', 'where.queue' => 'a'),
        qq($t {"queue":"a"} 4.333333333), 'the mean of all samples';
    is rows(@asked, metric => 'mean', group_by => ''), "$t {} 2.875",
        'not the mean of means';
    is rows(@asked, metric => 'least', group_by => ''), "$t {} -1.5", 'least';
    is rows(@asked, metric => 'most', group_by => ''), "$t {} 6", 'most';
    is rows(@asked, metric => 'newest', 'where.queue' => 'a'),
        qq($t {"queue":"a"} 3), 'the last one';
    is rows(@asked, metric => 'newest', group_by => ''), "$t {} -1.5",
        'of two at the same time that of the later commit';
    my $got = ask(@asked, metric => 'newest', group_by => '', pad => 'null',
        interval => '5s')->{json}{rows};
    is_deeply [map { $_->{count} } @$got], ['2', '2'], 'how many samples';
    is_deeply ask(@asked, metric => 'mean', format => 'series')
        ->{json}{series}, [
        { dimensions => { queue => 'a' }, values => ['4.333333333'],
            count => ['3'] },
        { dimensions => { queue => 'b' }, values => ['-1.5'],
            count => ['1'] },
        ], 'as series';

    # Each window a bucket and each set a group: read without summing up.
    my %plain = (newest => '6 3 -1.5', mean => '5 3 -1.5',
        least => '4 3 -1.5', most => '6 3 -1.5');
    for my $name (sort keys %plain) {
        my $got = ask(@asked, metric => $name, interval => '5s');
        is join(' ', map { $_->{value} } sort {
                $a->{dimensions}{queue} cmp $b->{dimensions}{queue}
                or $a->{bucket} cmp $b->{bucket} } @{ $got->{json}{rows} }),
            $plain{$name}, "$name, bucket by bucket" or diag $got->{body};
        is rows($got), rows(@asked, metric => $name, interval => '5s',
            group_by => 'queue'), '... and the groups named';
    }
};

subtest 'histograms' => sub {
    $rows->bucket('latency', '1m', '2025-03-08 00:00:00+00',
        { route => '"/a"' }, count => 4, sum => '22.5',
        labels => '{10,5}', counts => '{2,2}');
    $rows->bucket('latency', '1m', '2025-03-08 00:01:00+00',
        { route => '"/b"' }, count => 6, sum => '1000',
        labels => '{10,50,inf}', counts => '{1,3,2}');
    my @asked = (metric => 'latency', interval => '2m', group_by => '',
        from => '2025-03-08T00:00:00Z', to => '2025-03-08T00:02:00Z');
    is_deeply ask(@asked)->{json}{rows}, [{
        bucket => '2025-03-08T00:00:00.000000Z', dimensions => {},
        value => '10', count => '10', sum => '1022.5',
        quantiles => { '0.5' => '10', '0.9' => '50', '0.95' => '50',
            '0.99' => '50' },
        counts => { 5 => '2', 10 => '3', 50 => '3', inf => '2' },
    }], 'one row' or diag ask(@asked)->{body};
    is_deeply ask(@asked, quantiles => '0.1,0,1,0.65')
        ->{json}{rows}[0]{quantiles},
        { '0.1' => '2.5', 0 => '0', 1 => '50', '0.65' => '30' },
        'any quantile, in proportion between its bounds';
    is_deeply ask(@asked, quantiles => '')->{json}{rows}[0]{quantiles}, {},
        'none';
    like ask(@asked, format => 'series', interval => '1m', quantiles => '0.5')
        ->{body}, qr/"values":\["4","6"\],"count":\["4","6"\],
            "sum":\["22\.5","1000"\],
            "quantiles":\[\{"0\.5":"5"\},\{"0\.5":"36\.666666667"\}\],
            "counts":\[\{"5":"2","10":"2","50":"0","inf":"0"\},/x,
        'as series';
    is_deeply ask(@asked, pad => 'null', to => '2025-03-08T00:04:00Z')
        ->{json}{rows}[1],
        { bucket => '2025-03-08T00:02:00.000000Z', dimensions => {},
        map { $_ => undef } qw(value count sum quantiles counts) },
        'an empty window';
    like error(@asked, quantiles => '1.1'), qr/^400 "quantiles" must be num/,
        'not above 1';
    like error(@asked, quantiles => '0.5,0.50'), qr/^400 .* twice/, 'not twice';
};

subtest 'states' => sub {
    $rows->bucket('orders', '1h', '2025-03-09 00:00:00+00', { shop => '"s"' },
        count => 3, sum => 3,
        labels => '{"[\"new\",\"paid\"]","[null,\"new\"]"}', counts => '{1,2}');
    $rows->bucket('orders', '1h', '2025-03-09 01:00:00+00', { shop => '"s"' },
        count => 1, sum => 1, labels => '{"[\"new\",\"paid\"]"}',
        counts => '{1}');
    my @asked = (metric => 'orders', interval => '2h',
        from => '2025-03-09T00:00:00Z', to => '2025-03-09T02:00:00Z');
    is_deeply ask(@asked)->{json}{rows}, [{
        bucket => '2025-03-09T00:00:00.000000Z', dimensions => { shop => 's' },
        value => '4', transitions => [
            { from => 'new', to => 'paid', count => '2' },
            { from => undef, to => 'new',  count => '2' },
        ] }], 'transitions' or diag ask(@asked)->{body};
    is_deeply ask(@asked, format => 'series', interval => '1h')
        ->{json}{series}[0]{transitions}[1],
        [{ from => 'new', to => 'paid', count => '1' }], 'as series';
};

# What the page says about a late event and a repeated state.
subtest 'the example of the page' => sub {
    my $page = Edgemeter::Page->new('docs/http/query.md');
    my ($events, $answer) = map { $_->{text} } $page->blocks('json');
    my $got = $http->request('POST', '/v1/events', $events);
    is $got->{json}{accepted}, 5, 'events' or diag $got->{body};
    my @asked = (metric => 'orders', interval => '1m', group_by => '',
        from => '2026-03-02T12:00:00Z', to => '2026-03-02T12:03:00Z');
    wait_until {
        3 == grep { !$_->{partial} } @{ ask(@asked)->{json}{rows} };
    } 30, 'three windows are complete';
    is_deeply ask(@asked)->{json}, $JSON->decode($answer), 'answer'
        or diag ask(@asked)->{body};
    is $http->request('POST', '/v1/events', $events)->{json}{duplicates}, 5,
        'sent again';
    is_deeply ask(@asked)->{json}, $JSON->decode($answer), 'no effect';
};

# --- forms --------------------------------------------------------------

subtest 'the same question, the same bytes' => sub {
    for my $asked (
        [metric => 'requests', rollup => '1h', from => '2025-03-05T00:00:00Z',
            to => '2025-03-06T00:00:00Z'],
        [metric => 'latency', interval => '2m', from => '2025-03-08T00:00:00Z',
            to => '2025-03-08T01:00:00Z', format => 'series'],
        [metric => 'orders', interval => '1h', from => '2025-03-09T00:00:00Z',
            to => '2025-03-10T00:00:00Z'])
    {
        my %seen = map { ask(@$asked)->{body} => 1 } 1 .. 5;
        is keys %seen, 1, "$asked->[1]";
    }
    my $wanted = '{"metric":"requests","level":"5s","interval":"90s","rows":'
        . '[{"bucket":"2025-03-03T00:00:00.000000Z","dimensions":{},'
        . '"value":"3"}]}';
    is ask(metric => 'requests', interval => '90s', group_by => '',
        where => '{"route":"/a"}', from => '2025-03-03T00:00:00Z',
        to => '2025-03-03T00:01:30Z')->{body}, $wanted, 'the shape of rows';
};

subtest 'tables' => sub {
    my $csv = sub {
        my (%query) = @_;
        my $args = join '&', map {"$_=$query{$_}"} sort keys %query;
        my $got = $http->request('GET', "/v1/query?$args", undef,
            accept => 'text/csv');
        return $got->{body} =~ s/\r\n/\n/gr;
    };
    is $csv->(metric => 'requests', rollup => '1h', 'where.route' => '/b',
        from => '2025-03-05T00:00:00Z', to => '2025-03-05T01:00:00Z'), <<'CSV',
bucket,route,status,value,partial
2025-03-05T00:00:00.000000Z,/b,200,4,false
2025-03-05T00:00:00.000000Z,/b,,8,false
CSV
        'a counter';
    is $csv->(metric => 'latency', interval => '2m', group_by => '',
        quantiles => '0.5', pad => 'null', from => '2025-03-08T00:00:00Z',
        to => '2025-03-08T00:03:00Z'), <<'CSV', 'a histogram';
bucket,value,count,sum,q0.5,le_5,le_10,le_50,le_inf,partial
2025-03-08T00:00:00.000000Z,10,10,1022.5,10,2,3,3,2,false
2025-03-08T00:02:00.000000Z,,,,,,,,,true
CSV
    is $csv->(metric => 'orders', rollup => '1h', pad => 'null',
        from => '2025-03-09T00:00:00Z', to => '2025-03-09T03:00:00Z'), <<'CSV',
bucket,shop,from,to,value,partial
2025-03-09T00:00:00.000000Z,s,new,paid,1,false
2025-03-09T00:00:00.000000Z,s,,new,2,false
2025-03-09T01:00:00.000000Z,s,new,paid,1,false
2025-03-09T02:00:00.000000Z,s,,,,false
CSV
        'a state series';
    is $csv->(metric => 'mean', interval => '10s', 'where.queue' => 'b',
        from => '2025-03-07T00:00:00Z', to => '2025-03-07T00:00:10Z'), <<'CSV',
bucket,queue,value,count,partial
2025-03-07T00:00:00.000000Z,b,-1.5,1,false
CSV
        'a gauge';
    like $csv->(metric => 'mean', interval => '10s', format => 'series',
        from => '2025-03-07T00:00:00Z', to => '2025-03-07T00:00:10Z'),
        qr/a table has rows/, 'no series';
    is $http->request('GET', '/v1/query?metric=mean', undef,
        accept => 'image/png')->{status}, 406, 'neither';
};

done_testing;
