#!/usr/bin/perl

# 72-counter-pages.t - a counter without all its dimensions: pages of keys,
# sums, what an unquoted value finds, and what a page costs.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use JSON::PP ();
use POSIX    ();
use Test::More;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

use constant KEYS  => 2500;
use constant MANY  => 200_000;
use constant LIMIT => 100;

my $stack = Edgemeter::Stack->for_test(rules => \<<'YAML')->start;
events:
  - { type: visit }
  - { type: sale }
  - { type: odd }
counters:
  - counterName: visits
    dimensions: [user, site]
    rules: [ { on: visit, op: increment } ]
  - counterName: sales
    dimensions: [shop, code]
    rules: [ { on: sale, op: increment, by: cents } ]
    audit: true
  - counterName: odd
    dimensions: [limit, sum, cursor, other]
    rules: [ { on: odd, op: increment } ]
  - counterName: everything
    dimensions: []
    floorAtZero: true
    rules: [ { on: visit, op: increment } ]
  - counterName: present
    dimensions: [site]
    transitions: { entity: user }
    rules: [ { on: visit, op: increment } ]
  - counterName: many
    dimensions: [kind, n]
    rules: [ { on: never, op: increment } ]
YAML
my $http  = $stack->http('acme');
my $other = $stack->http('globex');
my $serial = 0;

sub event {
    my ($type, %attributes) = @_;
    return {
        event_id => sprintf('e%d-%d', $$, $serial++), type => $type,
        ts => '2026-09-01T12:00:00Z', attributes => \%attributes
    };
}

sub send_events {
    my ($client, @events) = @_;
    while (my @part = splice @events, 0, 500) {
        my $got = $client->post('/v1/events', \@part);
        die "not accepted: $got->{body}\n"
            if ($got->{json}{accepted} // 0) != @part;
    }
    return;
}

sub user { return sprintf 'u%05d', $_[0] }

# All pages of a question.
sub pages {
    my ($client, $counter, %arguments) = @_;
    my (@all, $cursor);
    do {
        my $got = $client->get("/v1/counters/$counter", %arguments,
            defined $cursor ? (cursor => $cursor) : ());
        return "$got->{status} $got->{json}{error}" if $got->{status} != 200;
        push @all, $got->{json}{counters};
        $cursor = $got->{json}{cursor};
    } while (defined $cursor);
    return \@all;
}

sub keys_of {
    my ($pages) = @_;
    return $pages unless ref $pages;
    return map { @$_ } @$pages;
}

sub answer {
    my ($path, $client) = @_;
    my $got = ($client // $http)->get("/v1/counters/$path");
    return "$got->{status} $got->{json}{error}" if $got->{status} != 200;
    return $got->{json};
}

sub sum {
    my ($counter, %arguments) = @_;
    my $got = $http->get("/v1/counters/$counter", sum => 'true', %arguments);
    return "$got->{status} $got->{json}{error}" if $got->{status} != 200;
    return "$got->{json}{sum} of $got->{json}{keys}";
}

# --- pages --------------------------------------------------------------

subtest 'every key once while events arrive' => sub {
    send_events($http,
        map { event('visit', user => user($_), site => 's' . $_ % 3) }
            1 .. KEYS);
    send_events($other,
        map { event('visit', user => "foreign$_", site => 's1') } 1 .. 300);

    # Known keys move and new ones come until the parent has read it all.
    my $child = fork // die "fork: $!";
    if ($child == 0) {
        my $own = $stack->http('acme');
        for my $turn (1 .. 10_000) {
            eval {
                send_events($own,
                    (map { event('visit', user => user(1 + int rand KEYS),
                        site => 's9') } 1 .. 20),
                    (map { event('visit', user => user($_),
                        site => 's' . $_ % 3) }
                        map { 1 + int rand KEYS } 1 .. 20));
                1;
            } or last;
        }
        POSIX::_exit(0);
    }
    my $before = $stack->query('SELECT count(*) FROM meter.counter');
    wait_until {
        $stack->query('SELECT count(*) FROM meter.counter') > $before
    } 10, 'events arrive';
    my $pages = pages($http, 'visits', limit => 97);
    my $alive = waitpid($child, POSIX::WNOHANG()) == 0;
    kill 'TERM', $child if $alive;
    waitpid $child, 0 if $alive;
    ok $alive, 'they arrived all the time';

    my %seen;
    $seen{"$_->{dimensions}{user} $_->{dimensions}{site}"}++
        for keys_of($pages);
    is scalar(grep { $_ != 1 } values %seen), 0, 'no key twice';
    is scalar(grep { !$seen{ user($_) . ' s' . $_ % 3 } } 1 .. KEYS), 0,
        'each key that was there, once';
    is scalar(grep {/foreign/} keys %seen), 0, "none of another tenant's";
    is scalar(grep { @$_ != 97 } @$pages[0 .. $#$pages - 1]), 0,
        'all pages are full but the last one';
    cmp_ok scalar @$pages, '>', 25, scalar(@$pages) . ' pages';
};

subtest 'the shape of a page' => sub {
    my $got = answer('visits?user=u00007&site=s1');
    my $page = answer('visits?user=u00007&limit=1000');
    my ($same) = grep { $_->{dimensions}{site} eq 's1' } @{ $page->{counters} };
    is_deeply $same, $got, 'a key looks as it does alone';
    ok !exists $page->{cursor}, 'no cursor at the end';
    is_deeply answer('visits?user=nobody'), { counters => [] },
        'nothing fits: an empty page';
    is scalar @{ answer('visits')->{counters} }, LIMIT, '100 by default';
    is ref answer('everything'), 'HASH', 'a counter without dimensions';
    ok exists answer('everything')->{value}, 'is one key and no page';
};

subtest 'some of the dimensions' => sub {
    my @found = keys_of(pages($http, 'visits', site => 's1', limit => 300));
    is scalar @found, int((KEYS + 2) / 3), 'all of a site';
    is scalar(grep { $_->{dimensions}{site} ne 's1' } @found), 0,
        'and nothing else';
    my $foreign = pages($other, 'visits', site => 's1', limit => 300);
    is scalar(keys_of($foreign)), 300, 'the other tenant has its own';
    is scalar @$foreign, 1, 'an exact page has no empty one behind it';
    is scalar(grep { $_->{dimensions}{user} !~ /^foreign/ } keys_of($foreign)),
        0, 'and only those';
};

subtest 'cursors' => sub {
    my $cursor = answer('visits?site=s1&limit=5')->{cursor};
    like $cursor, qr/^[A-Za-z0-9_-]+$/, 'needs no escapes';
    my $wrong = '400 the cursor does not belong to this question';
    is ref answer("visits?site=s1&cursor=$cursor"), 'HASH',
        'limit may change';
    is ref answer("visits?dimension.site=s1&cursor=$cursor"), 'HASH',
        'the spelling of the dimension too';
    is answer("visits?site=s2&cursor=$cursor"), $wrong, 'another value';
    is answer("visits?user=s1&cursor=$cursor"), $wrong, 'another dimension';
    is answer("visits?cursor=$cursor"), $wrong, 'no dimension';
    my $all = answer('visits?limit=5')->{cursor};
    is answer("sales?cursor=$all"), $wrong, 'another counter';
    is answer("visits?site=s1&cursor=$cursor", $other), $wrong,
        'another tenant';
    is answer('visits?site=s1&cursor=' . substr $cursor, 1), $wrong, 'cut';
    is answer('visits?site=s1&cursor='), $wrong, 'empty';
    is answer('visits?site=s1&cursor=%3D%3D'), $wrong, 'no base64url';
};

# --- sums ---------------------------------------------------------------

subtest 'sums' => sub {
    my $max = '9223372036854775807';
    my $big = JSON::PP->new->allow_bignum->decode("[$max]")->[0];
    send_events($http,
        event('sale', shop => 'a', code => 'x', cents => $big),
        event('sale', shop => 'a', code => 'y', cents => $big),
        event('sale', shop => 'a', code => 'z', cents => 3),
        event('sale', shop => 'b', code => 'x', cents => 5));
    send_events($other, event('sale', shop => 'a', code => 'x', cents => 7));
    is_deeply answer('sales?sum=true'),
        { counter => 'sales', dimensions => {},
          sum => '18446744073709551622', keys => '4' },
        'all keys, past 64 bits';
    is_deeply answer('sales?shop=a&sum=true'),
        { counter => 'sales', dimensions => { shop => 'a' },
          sum => '18446744073709551617', keys => '3' }, 'some of them';
    is_deeply answer('sales?shop=a&code=z&sum=true'),
        { counter => 'sales', dimensions => { code => 'z', shop => 'a' },
          sum => '3', keys => '1' }, 'one of them';
    is_deeply answer('sales?shop=c&sum=true'),
        { counter => 'sales', dimensions => { shop => 'c' }, sum => '0',
          keys => '0' }, 'none of them';
    is_deeply answer('sales?shop=c&code=5&sum=true'),
        { counter => 'sales', dimensions => { code => '5', shop => 'c' },
          sum => '0', keys => '0' }, 'one that is not there';
    is answer('sales?shop=a&sum=true', $other)->{sum}, '7',
        'the other tenant has its own';
    is ref answer('sales?shop=a&sum=false')->{counters}, 'ARRAY',
        'false: a page';
    is answer('everything?sum=true')->{keys}, '1', 'without dimensions too';
};

# --- types --------------------------------------------------------------

subtest 'null, quotes, text and number' => sub {
    send_events($http,
        event('sale', shop => 't', code => 5,     cents => 1),
        event('sale', shop => 't', code => '5.0', cents => 10),
        event('sale', shop => 't', cents => 100),
        event('sale', shop => 't', code => 'null', cents => 1000),
        event('sale', shop => 't', code => JSON::PP::true, cents => 10_000),
        event('sale', shop => 5, code => 'n', cents => 2));
    my $found = sub {
        my ($code) = @_;
        my $all = pages($http, 'sales', code => $code);
        return $all unless ref $all;
        return join ' ', sort map { $_->{value} } keys_of($all);
    };
    is $found->('5'),   '1', 'the number';
    is $found->('5e0'), '1', 'spelled otherwise';
    is $found->('"5"'), '',  'quotes: no such text';
    is $found->('"5.0"'), '10', 'quotes: the text';
    is $found->(''), '100', 'no value';
    is $found->('true'), '10000', 'a boolean';
    is $found->('"null"'), '1000', 'the text null';
    my $mixed = '400 a value exists both as text and as another type; put it'
        . ' in quotes to mean the text';
    is $found->('5.0'),  $mixed, 'text and number on a page';
    is $found->('null'), $mixed, 'text and no value on a page';
    is sum('sales', code => '5.0'),   $mixed, 'in a sum';
    is sum('sales', code => 'null'),  $mixed, 'in a sum';
    is sum('sales', code => '"5.0"'), '10 of 1', 'with quotes';
    is sum('sales', code => ''),      '100 of 1', 'null';
    is_deeply answer('sales?sum=true&shop=5')->{dimensions}, { shop => 5 },
        'shown as it was found';
    is sum('sales', shop => 't', code => '5.0'), $mixed, 'of one key';

    is pages($http, 'sales', code => '5.0', limit => 1), $mixed,
        'on two pages';
    is sum('sales', shop => '5', code => 'n'), '2 of 1', 'all given';
};

# Between two pages keys come in, so that the second one has numbers only.
subtest 'a page knows what the pages before had' => sub {
    send_events($http, map {
        event('sale', shop => "p$_", code => '6', cents => $_) } 1 .. 2);
    my $first = answer('sales?code=6&limit=1');
    is $first->{counters}[0]{dimensions}{code}, '6', 'a text';
    $stack->query(sprintf <<'SQL', $first->{counters}[0]{dimensions}{shop});
INSERT INTO meter.counter
    (tenant, counter_name, dimension_key, dimensions, value, updated_at)
SELECT tenant, counter_name, dimension_key || n::text::bytea,
    format('{"code":6,"shop":"n%%s"}', n), n, updated_at
FROM meter.counter, generate_series(1, 2) AS n
WHERE counter_name = 'sales' AND dimensions = '{"code":"6","shop":"%s"}'
SQL
    like answer("sales?code=6&limit=1&cursor=$first->{cursor}"),
        qr/^400 .*quotes/, 'then a number';
    $stack->query('DELETE FROM meter.counter WHERE'
        . ' octet_length(dimension_key) > 32');
    is ref answer("sales?code=6&limit=1&cursor=$first->{cursor}"), 'HASH',
        'without it the page is there';
};

subtest 'rows from before a dimension was added' => sub {
    send_events($http, event('sale', shop => 'old', cents => 4));
    $stack->query("UPDATE meter.counter SET dimensions = '{\"shop\":\"old\"}'"
        . " WHERE dimensions = '{\"code\":null,\"shop\":\"old\"}'");
    is sum('sales', shop => 'old', code => ''), '4 of 1', 'by its key';
    my ($found) = grep { $_->{dimensions}{shop} eq 'old' }
        keys_of(pages($http, 'sales', code => ''));
    is $found->{value}, '4', 'by what is not there';
};

# --- arguments ----------------------------------------------------------

subtest 'dimensions called limit, sum, cursor' => sub {
    send_events($http, map {
        event('odd', limit => "l$_", sum => 's', cursor => 'c', other => 'o')
    } 1 .. 3);
    is scalar @{ answer('odd?limit=2')->{counters} }, 2, 'limit is the page';
    is scalar @{ answer('odd?dimension.sum=s')->{counters} }, 3,
        'dimension.sum is the dimension';
    is answer('odd?sum=true&dimension.limit=l1&dimension.cursor=c')->{keys},
        '1', 'both together';
    is answer('odd?dimension.limit=l2&dimension.sum=s&dimension.cursor=c'
        . '&dimension.other=o')->{value}, '1', 'one key';
    is answer('odd?other=o&dimension.other=o'),
        '400 the dimension "other" is given twice', 'one or the other';
};

subtest 'questions that cannot be answered' => sub {
    my $limit = '400 "limit" must be from 1 to 1000';
    is answer("visits?limit=$_"), $limit, "limit=$_"
        for '0', '1001', '-1', '', 'x', '1.0';
    is answer('visits?sum=yes'), '400 "sum" must be true or false', 'sum';
    is answer('visits?sum=true&limit=5'), '400 a sum has no pages: "limit" and'
        . ' "cursor" cannot be given', 'sum and limit';
    is answer('visits?sum=true&cursor=x'), '400 a sum has no pages: "limit"'
        . ' and "cursor" cannot be given', 'sum and cursor';
    my $one = '400 all dimensions are given: there is one key, and no page'
        . ' of keys';
    is answer('visits?user=a&site=b&limit=1'), $one, 'one key and limit';
    is answer('everything?cursor=x'), $one, 'one key and cursor';
    is answer('visits?zone=x'), '400 the counter has no dimension "zone"',
        'unknown';
    like answer('visits?limit=1&limit=2'), qr/^400 .*twice/, 'twice';
    is answer('none?limit=5'), '404 no such counter', 'no counter';
    is answer('visits?user=' . 'x' x 1027),
        '400 the value of "user" is too long', 'too long';
    is sum('visits', user => 'x' x 1024), '0 of 0', 'not too long';
    is sum('visits', user => '1e400'), '0 of 0', 'a huge number';
    is sum('visits', user => "\"' OR 1=1 --\\"), '0 of 0', 'odd bytes';
};

subtest 'which counters there are' => sub {
    my $got = $http->get('/v1/counters');
    is $got->{status}, 200, 'a list';
    is_deeply [map { $_->{counter} } @{ $got->{json}{counters} }],
        [qw(visits sales odd everything present many)], 'as in the rules';
    my ($false, $true) = (JSON::PP::false, JSON::PP::true);
    is_deeply [@{ $got->{json}{counters} }[1, 3, 4]], [
        { counter => 'sales', dimensions => [qw(code shop)],
          floor_at_zero => $false, transitions => $false, audit => $true },
        { counter => 'everything', dimensions => [],
          floor_at_zero => $true, transitions => $false, audit => $false },
        { counter => 'present', dimensions => ['site'],
          floor_at_zero => $false, transitions => $true, audit => $false },
    ], 'and what each is';
    is $http->get('/v1/counters', limit => 5)->{status}, 400, 'no arguments';
    is $http->as(undef)->get('/v1/counters')->{status}, 401, 'with a token';
    is $http->post('/v1/counters', {})->{status}, 405, 'only read';
};

# --- what it costs ------------------------------------------------------

# The plan of a page, as a client's read runs it; $mode: plan_cache_mode.
sub page_plan {
    my ($after, $names, $mode) = @_;
    my $text = $stack->query(join "\n",
        'SET ROLE meter_reader;', 'SET search_path = pg_catalog, meter;',
        "SET plan_cache_mode = $mode;",
        'PREPARE page AS ' . Edgemeter::Stack::statement('counter_list'),
        q{BEGIN; SELECT '' FROM set_config('app.current_tenant', 'acme', true);},
        'EXPLAIN (ANALYZE, FORMAT JSON, TIMING off) EXECUTE page(',
        qq{'acme', 'many', '$after', $names, } . (LIMIT + 1) . ');',
        'COMMIT');
    my ($json) = $text =~ /(\[.*\])/s;
    return JSON::PP->new->decode($json)->[0]{Plan};
}

sub nodes {
    my ($plan) = @_;
    return ($plan, map { nodes($_) } @{ $plan->{Plans} // [] });
}

subtest 'a page reads a page, of any number of keys' => sub {
    $stack->query(sprintf <<'SQL', MANY);
INSERT INTO meter.counter
    (tenant, counter_name, dimension_key, dimensions, value, updated_at)
SELECT tenant, 'many', sha256(n::text::bytea),
    format('{"kind":"x","n":"k%%s"}', n), n, now()
FROM generate_series(1, %d) AS n, unnest(ARRAY['acme', 'tenant-x']) AS tenant
SQL
    $stack->query('ANALYZE meter.counter');
    my $none = join ', ', ("'{}'") x 3;
    for my $mode (qw(auto force_custom_plan)) {
        for my $after ('\x', '\x80' . '00' x 31) {
            my $plan = page_plan($after, $none, $mode);
            my @scans = grep { ($_->{'Relation Name'} // '') eq 'counter' }
                nodes($plan);
            is join(',', map { $_->{'Node Type'} } @scans), 'Index Scan',
                "$mode, from $after: the primary key, in order";
            cmp_ok $scans[0]{'Actual Rows'}, '<=', LIMIT + 1,
                "$scans[0]{'Actual Rows'} rows";
            ok !(grep { $_->{'Node Type'} =~ /Sort/ } nodes($plan)),
                'nothing is sorted';
        }
    }
    my $page = answer('many');
    is scalar @{ $page->{counters} }, LIMIT, 'the page';
    is sum('many'), join(' of ', MANY / 2 * (MANY + 1), MANY), 'the sum';
    is sum('many', n => 'k77777'), '77777 of 1', 'a sum with a filter';
    is join(' ', map { $_->{value} } keys_of(pages($http, 'many',
        n => 'k4711'))), '4711', 'a page with a filter';
};

$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
done_testing;
