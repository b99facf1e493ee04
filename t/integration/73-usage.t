#!/usr/bin/perl

# 73-usage.t - GET /v1/usage: figures of billing meters, one by one, as
# lists and as tables.

use strict;
use warnings;
use utf8;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::Stack;

binmode Test::More->builder->$_, ":utf8"
    for qw(output failure_output todo_output);

my $stack = Edgemeter::Stack->for_test(rules => \<<'YAML')->start;
events:
  - { type: api.request }
  - { type: job.done }
meters:
  - { metric: calls, on: [api.request], value: quantity, aggregation: sum, period: month, lateness: 48h, groupBy: [route] }
  - { metric: requests, on: [api.request], aggregation: count, period: day, groupBy: [route, customer] }
  - { metric: least, on: [api.request], value: latency, aggregation: min, period: month, groupBy: [route] }
  - { metric: most, on: [api.request], value: latency, aggregation: max, period: month, groupBy: [route] }
  - { metric: mean, on: [api.request], value: latency, aggregation: avg, period: month, groupBy: [route] }
  - { metric: newest, on: [api.request], value: latency, aggregation: last, period: month, groupBy: [route] }
  - { metric: users, on: [api.request], value: user, aggregation: unique, period: month, groupBy: [route] }
  - { metric: jobs, on: [job.done], value: quantity, aggregation: sum, period: hour, lateness: 1h }
YAML
my $http = $stack->http('acme');
my $serial = 0;

sub request {
    my ($ts, %event) = @_;
    my $customer = delete $event{customer};
    my $quantity = delete $event{quantity};
    my $id       = delete $event{id} // 'e' . ++$serial;
    return {
        event_id => $id, type => delete $event{type} // 'api.request',
        ts => $ts,
        defined $customer ? (customer => $customer) : (),
        defined $quantity ? (quantity => $quantity) : (),
        attributes => \%event
    };
}

sub ingest {
    my (@events) = @_;
    my $got = $http->post('/v1/events', \@events);
    is $got->{json}{accepted}, scalar @events, @events . ' events accepted'
        or diag $got->{body};
    return;
}

sub usage { return $http->get('/v1/usage', @_) }

sub error {
    my $got = usage(@_);
    return "$got->{status} " . ($got->{json}{error} // '');
}

sub csv {
    my ($accept, %query) = @_;
    my $args = join '&', map { "$_=$query{$_}" } sort keys %query;
    return $http->request('GET', "/v1/usage?$args", undef, accept => $accept);
}

my @march = (metric => 'calls', period => '2025-03');

subtest 'one figure' => sub {
    ingest(
        request('2025-03-01T00:00:00Z', customer => 'c1', quantity => '1.5',
            route => '/a'),
        request('2025-03-02T00:00:00Z', customer => 'c1', quantity => 2,
            route => '/b'),
        request('2025-03-02T00:00:00Z', customer => 'c2', quantity => 5,
            route => '/a'),
        request('2025-04-01T00:00:00Z', customer => 'c1', quantity => 100,
            route => '/a'),
    );
    is_deeply usage(@march, customer => 'c1')->{json},
        {   metric => 'calls', customer => 'c1', period => '2025-03',
            value => '3.5', adjustments => [], total => '3.5',
            watermark => '2025-03-02T00:00:00.000000Z',
            closed => JSON::PP::false
        },
        'groups of a customer together';
    is_deeply usage(@march, customer => 'c1', route => '/a')->{json},
        {   metric => 'calls', customer => 'c1', period => '2025-03',
            group => { route => '/a' },
            value => '1.5', adjustments => [], total => '1.5',
            watermark => '2025-03-01T00:00:00.000000Z',
            closed => JSON::PP::false
        },
        'one of them';
    ingest(request('2025-03-03T00:00:00Z', quantity => 7, route => '/a'));
    my $none = usage(@march, customer => '')->{json};
    is $none->{customer}, undef, 'events without a customer';
    is $none->{value}, '7', 'have their own figure';
    is usage(@march, customer => 'c1', 'dimension.route' => '/b')
        ->{json}{value}, '2', 'a dimension by its long name';
};

subtest 'groups are merged by what the meter means' => sub {
    my @at = (customer => 'm');
    ingest(
        request('2025-05-01T00:00:00Z', @at, route => '/a', latency => 4,
            user => 'u1'),
        request('2025-05-03T00:00:00Z', @at, route => '/b', latency => 10,
            user => 'u1'),
        request('2025-05-02T00:00:00Z', @at, route => '/a', latency => 5,
            user => 'u2'),
        request('2025-05-02T12:00:00Z', @at, route => '/c', user => 1),
        request('2025-05-02T12:00:00Z', @at, route => '/c', user => '1'),
    );
    my %expect = (least => '4', most => '10', mean => '6.333333333',
        newest => '10', users => '4', calls => '5');
    for my $metric (sort keys %expect) {
        my $got = usage(metric => $metric, period => '2025-05', @at)->{json};
        is $got->{value}, $expect{$metric}, "$metric of all groups";
        is $got->{total}, $expect{$metric}, 'total likewise';
    }
    my %group = (least => '4', most => '5', mean => '4.5', newest => '5',
        users => '2', calls => '2');
    for my $metric (sort keys %group) {
        is usage(metric => $metric, period => '2025-05', @at, route => '/a')
            ->{json}{value}, $group{$metric}, "$metric of one group";
    }
};

subtest 'a customer without any event' => sub {
    for my $metric (qw(calls users)) {
        is_deeply usage(metric => $metric, period => '2025-03',
            customer => 'nobody')->{json},
            {   metric => $metric, customer => 'nobody',
                period => '2025-03', value => '0', adjustments => [],
                total => '0', watermark => undef,
                closed => JSON::PP::false
            },
            "$metric: zeros";
    }
    for my $metric (qw(least most mean newest)) {
        my $got = usage(metric => $metric, period => '2025-03',
            customer => 'nobody');
        is $got->{status}, 200, "$metric: 200";
        is $got->{json}{value}, undef, 'no value';
        is $got->{json}{total}, undef, 'no total';
    }
    is_deeply usage(@march, customer => 'nobody', route => '/a')
        ->{json}{group}, { route => '/a' }, 'with its group';
    my $foreign = $stack->http('globex')
        ->get('/v1/usage', @march, customer => 'c1')->{json};
    is $foreign->{value}, '0', "another tenant's customer";
    is_deeply $stack->http('globex')->get('/v1/usage', @march)->{json},
        { usage => [] }, 'and a list of nothing';
};

subtest 'texts and numbers' => sub {
    ingest(
        request('2025-06-01T00:00:00Z', customer => 't', quantity => 1,
            route => 5),
        request('2025-06-01T00:00:00Z', customer => 't', quantity => 2,
            route => '5'),
        request('2025-06-01T00:00:00Z', customer => 't', quantity => 4),
    );
    my @at = (metric => 'calls', period => '2025-06', customer => 't');
    like error(@at, route => 5), qr/^400 .*quotes/, 'both exist';
    is usage(@at, route => '"5"')->{json}{value}, '2', 'the text';
    is usage(@at, route => '5.0')->{json}{value}, '1', 'the number';
    is usage(@at, route => '')->{json}{value}, '4', 'no value';
    is usage(@at)->{json}{value}, '7', 'all';
    my $list = usage(metric => 'calls', period => '2025-06', route => 5)
        ->{json}{usage};
    is_deeply [sort map {"$_->{value} $_->{group}{route}"} @$list],
        ['1 5', '2 5'], 'a list shows each';
};

subtest 'too late' => sub {
    my @at = (metric => 'calls', period => '2025-07', customer => 'l');
    ingest(request('2025-07-20T00:00:00Z', customer => 'l', quantity => 15,
        route => '/a'));
    ingest(request('2025-07-18T00:00:00Z', customer => 'l', quantity => 1,
        route => '/a'));
    is usage(@at)->{json}{value}, '16', 'within the lateness: folded';
    ingest(request('2025-07-02T00:00:00Z', customer => 'l', quantity => 3,
        route => '/a', id => 'late-1'));
    my $got = usage(@at)->{json};
    my $one = delete $got->{adjustments}[0];
    like delete $one->{recorded_at}, qr/^20\d\d-/, 'recorded_at';
    like delete $one->{reason}, qr/\S/, 'a reason';
    is_deeply $one,
        { event_id => 'late-1', kind => 'event', amount => '3',
            ts => '2025-07-02T00:00:00.000000Z' },
        'an adjustment that names the event';
    is "$got->{value} $got->{total}", '16 19', 'value stays, total has it';
    is $got->{watermark}, '2025-07-20T00:00:00.000000Z', 'so the watermark';
    is usage(metric => 'least', period => '2025-07', customer => 'l')
        ->{json}{value}, undef, 'a meter without that attribute: nothing';
};

subtest 'lists' => sub {
    my @events;
    for my $day (1 .. 5) {
        for my $customer (undef, map {"p$_"} 1 .. 4) {
            push @events, request("2024-01-0${day}T12:00:00Z",
                customer => $customer, route => $_) for '/x', '/y';
        }
    }
    ingest(@events);
    my @range = (metric => 'requests', from => '2024-01-02',
        to => '2024-01-05');
    my $all = usage(@range)->{json};
    is scalar @{ $all->{usage} }, 15, '[from, to): three days';
    ok !exists $all->{cursor}, 'no more';
    is_deeply [map { $_->{period} . ' ' . ($_->{customer} // '-') }
            @{ $all->{usage} }[0 .. 5]],
        ['2024-01-02 -', (map {"2024-01-02 p$_"} 1 .. 4), '2024-01-03 -'],
        'by period and customer, none first';
    is_deeply [map { $_->{value} } @{ $all->{usage} }], [(2) x 15], 'merged';
    is_deeply [map { $_->{adjustments} } @{ $all->{usage} }], [([]) x 15],
        'with adjustments';

    my $pages = sub {
        my ($limit, $between, @what) = @_;
        my (@seen, $cursor);
        for my $page (1 .. 100) {
            my $got = usage(@what, limit => $limit,
                defined $cursor ? (cursor => $cursor) : ())->{json};
            cmp_ok scalar @{ $got->{usage} }, '<=', $limit, 'a page';
            push @seen, map { join ' ', $_->{period}, $_->{customer} // '-',
                $_->{group} ? $_->{group}{route} : () } @{ $got->{usage} };
            $cursor = $got->{cursor};
            return @seen unless defined $cursor;
            $between->();
        }
        fail 'the list has an end';
    };
    for my $limit (1, 4, 15) {
        is_deeply [$pages->($limit, sub { }, @range)],
            [map { $_->{period} . ' ' . ($_->{customer} // '-') }
                @{ $all->{usage} }], "pages of $limit";
    }
    my @groups = (@range, groups => 'true');
    my @whole = $pages->(1000, sub { }, @groups);
    is scalar @whole, 30, 'groups=true: each for itself';
    is_deeply [$pages->(7, sub { }, @groups)], \@whole, 'in pages too';

    my $n = 0;
    my @seen = $pages->(2, sub {
        ingest(request('2024-01-02T13:00:00Z', customer => 'p' . $_,
            route => '/z' . ++$n)) for 1, 3;
    }, @range);
    my %times;
    $times{$_}++ for @seen;
    is_deeply [grep { $times{$_} != 1 } sort keys %times], [],
        'while events arrive: nothing twice';
    is scalar @seen, 15, 'nothing missing';

    is_deeply [$pages->(2, sub { }, @range, customer => 'p2')],
        [map {"2024-01-0$_ p2"} 2 .. 4], 'of one customer';
    my @own = $pages->(3, sub { }, @groups, customer => 'p4');
    is_deeply [map {s/ .*//r} @own],
        [map { ("2024-01-0$_") x 2 } 2 .. 4], 'its groups';
    my @one = (@range, 'dimension.customer' => '', route => '/x');
    is_deeply [$pages->(4, sub { }, @one)],
        [map { my $day = $_; map {"2024-01-0$day $_ /x"} '-', 'p1' .. 'p4' }
            2 .. 4], 'one group of all customers';

    my $cursor = usage(@range, limit => 2)->{json}{cursor};
    like error(@range, customer => 'p1', cursor => $cursor), qr/^400 .*cursor/,
        'a cursor of another question';
    like error(@range, cursor => substr $cursor, 1), qr/^400 .*cursor/,
        'half a cursor';
};

subtest 'questions that cannot be answered' => sub {
    is error(period => '2025-03'), '400 "metric" is missing', 'no metric';
    is error(metric => 'none', period => '2025-03'), '404 no such metric',
        'unknown metric';
    like error(metric => 'calls'), qr/^400 .*"period"/, 'no period';
    like error(@march, from => '2025-01', to => '2025-02'),
        qr/^400 .*either/, 'both';
    like error(metric => 'calls', from => '2025-01'), qr/^400 .*"to"/,
        'half a range';
    for my $bad ('2025', '2025-3', '2025-13', '2025-03-01', '2025-03 ', '',
        '0000-01', 'x')
    {
        like error(metric => 'calls', period => $bad),
            qr/^400 "period" must be a month .*2026-09$/, "period '$bad'";
    }
    like error(metric => 'requests', period => '2025-03'),
        qr/^400 "period" must be a day/, 'a month for a daily meter';
    like error(metric => 'jobs', period => '2025-03-01'),
        qr/^400 "period" must be an hour/, 'a day for an hourly one';
    like error(metric => 'calls', from => '2025-02', to => '2025-02'),
        qr/^400 "from" must be before "to"/, 'an empty range';
    is usage(metric => 'jobs', from => '2025-01-01T00', to => '2025-02-11T16')
        ->{status}, 200, '1000 periods';
    like error(metric => 'jobs', from => '2025-01-01T00',
        to => '2025-02-11T17'), qr/^400 more than 1000 periods/, 'one more';
    like error(metric => 'requests', period => '2025-03-01', customer => 'c1',
        route => '/a'), qr/^400 missing dimensions: customer$/,
        'half a group';
    like error(@march, customer => 'c1', x => 1),
        qr/^400 the metric has no dimension "x"/, 'no such dimension';
    like error(@march, groups => 'yes'), qr/^400 "groups"/, 'groups=yes';
    like error(@march, limit => $_), qr/^400 "limit"/, "limit=$_"
        for 0, 1001, 'x', '', '-1';
    is $http->as(undef)->get('/v1/usage', @march)->{status}, 401, 'no token';
    my ($status, $out) = $stack->meterd_command('token', 'create',
        $stack->config_arguments, '--tenant', 'acme', '--scopes', 'ingest');
    chomp $out;
    is $http->as($out)->get('/v1/usage', @march)->{status}, 403,
        'a token that may not read';
    is $http->post('/v1/usage', {})->{headers}{allow}, 'GET, HEAD', 'allow';
};

subtest 'figures that do not fit' => sub {
    my $big = '6' . '0' x 28;
    ingest(map { request('2025-08-01T00:00:00Z', customer => 'big',
        quantity => $big, route => $_) } '/a', '/b');
    my @at = (metric => 'calls', period => '2025-08');
    is usage(@at, customer => 'big', route => '/a')->{json}{value}, $big,
        'one by one';
    is error(@at, customer => 'big'), '422 the figure has more than 38 digits',
        'together they have 39 digits';
    is scalar @{ usage(@at, groups => 'true')->{json}{usage} }, 2,
        'groups can be listed';
};

subtest 'many adjustments' => sub {
    $stack->query(<<'SQL');
INSERT INTO meter.meter_adjustment (tenant, metric, period_start, customer,
    group_key, groups, is_manual, id, amount, reason, ts, recorded_at)
SELECT tenant, metric, period_start, customer, group_key, groups, false,
    'many-' || n, 1, 'test', now(), now() + n * interval '1 second'
FROM meter.meter_counter, generate_series(1, 101) AS n
WHERE metric = 'calls' AND customer = 'c2' AND period_start = '2025-03-01Z'
SQL
    my $got = usage(@march, customer => 'c2')->{json};
    is scalar @{ $got->{adjustments} }, 100, 'at most 100 are shown';
    is $got->{adjustments}[0]{event_id}, 'many-1', 'from the first one on';
    ok $got->{adjustments_truncated}, 'and it says so';
    my ($of_list) = grep { ($_->{customer} // '') eq 'c2' }
        @{ usage(@march, limit => 1000)->{json}{usage} };
    is scalar @{ $of_list->{adjustments} }, 10, 'fewer in a long list';
    ok $of_list->{adjustments_truncated}, 'likewise';
    ok !exists usage(@march, customer => 'c1')->{json}{adjustments_truncated},
        'not where all are shown';
};

subtest 'tables' => sub {
    ingest(
        request('2023-01-01T00:00:00Z', customer => '=1+1', quantity => -2,
            route => '@x'),
        request('2023-01-01T00:00:00Z', customer => 'a "b", c', quantity => 1,
            route => -5),
        request('2023-01-01T00:00:00Z', quantity => '0.5'),
    );
    my %at = (metric => 'calls', period => '2023-01');
    my $got = csv('text/csv', %at);
    is $got->{headers}{'content-type'}, 'text/csv; charset=utf-8', 'type';
    my $mark = '2023-01-01T00:00:00.000000Z,false';
    is $got->{body}, join("\r\n",
        'metric,customer,period,value,total,adjustments,watermark,closed',
        "calls,,2023-01,0.5,0.5,0,$mark",
        "calls,'=1+1,2023-01,-2,-2,0,$mark",
        qq(calls,"a ""b"", c",2023-01,1,1,0,$mark), ''), 'a table';
    $got = csv('text/csv', %at, groups => 'true');
    like $got->{body}, qr/\Ametric,customer,period,route,value,/, 'groups';
    like $got->{body}, qr/^calls,'=1\+1,2023-01,'\@x,-2,/m,
        'a text of a client is no formula';
    like $got->{body}, qr/^calls,"a ""b"", c",2023-01,-5,1,/m,
        'a number stays one';
    is csv('text/csv', %at, customer => 'nobody')->{body}, join("\r\n",
        'metric,customer,period,value,total,adjustments,watermark,closed',
        'calls,nobody,2023-01,0,0,0,,false', ''), 'one figure';
    like csv('text/csv', metric => 'calls', period => '2025-07')->{body},
        qr/^calls,l,2025-07,16,19,3,/m, 'what was adjusted';

    my (@lines, $pages);
    my $path = '/v1/usage?metric=calls&period=2023-01&limit=1';
    while (defined $path && $pages++ < 10) {
        my $page = $http->request('GET', $path, undef, accept => 'text/csv');
        my ($head, @rows) = split /\r\n/, $page->{body};
        push @lines, @rows;
        my $link = $page->{headers}{link};
        ($path) = defined $link ? $link =~ /^<(\?[^<> "]+)>; rel="next"$/ : ();
        $path = "/v1/usage$path" if defined $path;
    }
    is $pages, 3, 'three pages by their Link headers';
    is scalar @lines, 3, 'each row once';

    my %accept = (
        ''                                       => 'json',
        '*/*'                                    => 'json',
        'text/*'                                 => 'csv',
        'text/csv, application/json'             => 'json',
        'application/json;q=0.5, TEXT/CSV;q=0.9' => 'csv',
        'application/json;q=0, */*'              => 'csv',
        'text/csv;q=0, */*;q=0.1'                => 'json',
        'text/html, text/csv;q=0.001'            => 'csv',
        'text/html'                              => 406,
        'application/json;q=0'                   => 406,
    );
    for my $value (sort keys %accept) {
        my $answer = csv($value, %at);
        my $is = $answer->{status} != 200 ? $answer->{status}
            : $answer->{headers}{'content-type'} =~ /csv/ ? 'csv' : 'json';
        is $is, $accept{$value}, "Accept: $value";
    }
};

$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
done_testing;
