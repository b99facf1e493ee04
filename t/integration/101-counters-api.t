#!/usr/bin/perl

# 101-counters-api.t - the counters API, endpoint by endpoint and sentence by
# sentence of its contract. What is refused, and whose counters they are: see
# 101-counters-rules.t; keys and a full queue: 101-counters-keys.t.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::Counters;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

use constant MAX => '9223372036854775807';

my $stack    = Edgemeter::Stack->for_test->start;
my $counters = Edgemeter::Counters->new($stack->http('acme'), 'acme');

my $NEGATIVE = '409 {"error":"Operation failed due to constraint violation'
    . ' (e.g., counter cannot be negative)"}';
my $OVERFLOW = '400 {"error":"Operation resulted in an overflow (exceeded'
    . ' BIGINT capacity)"}';
my $NONE
    = q(404 {"error":"Counter doesn't exist for the specified bucket"});

sub told { return $counters->told(@_) }

sub numbers {
    return sprintf '200 {"net":"%s","added":"%s","subbed":"%s"}', @_;
}

# --- endpoints ----------------------------------------------------------

for my $verb (qw(increment incrementSync)) {
    subtest "$verb: increments a counter, the answer is what it then is" =>
        sub {
        my $name = "up_$verb";
        is told($verb, $name, amount => 110), numbers(110, 110, 0), 'made';
        is told('decrement', $name, amount => 5), numbers(105, 110, 5),
            "net, added, subbed as in S1's example";
        is told($verb, $name), numbers(106, 111, 5),
            'amount: optional, default 1';
        is told($verb, $name, amount => undef), numbers(107, 112, 5),
            'null is the same as absent';
        my $got = $counters->send($verb, $name);
        is $got->{headers}{'content-type'}, 'application/json',
            'Content-Type';
        is $got->{headers}{'cache-control'}, 'no-store', 'Cache-Control';
        };
}

for my $verb (qw(decrement decrementSync)) {
    subtest "$verb: fails if the result would be negative, and only then" =>
        sub {
        my $name = "down_$verb";
        is told($verb, $name), $NEGATIVE, 'a bucket that is not there: 409';
        is told('get', $name), $NONE, 'and none was made';
        is told('increment', $name, amount => 10), numbers(10, 10, 0), 'made';
        is told($verb, $name), numbers(9, 10, 1),
            'amount: optional, default 1';
        is told($verb, $name, amount => 10), $NEGATIVE, 'one too many: 409';
        is told('get', $name), numbers(9, 10, 1), 'nothing has changed';
        is told($verb, $name, amount => 9), numbers(0, 10, 10), 'down to 0';
        is told($verb, $name), $NEGATIVE, 'not below';
        };
}

subtest 'set: atomically sets a counter to a specific value' => sub {
    is told('set', 'quota', targetValue => '100'), numbers(100, 100, 0),
        'a string of digits';
    is told('set', 'quota', targetValue => '100'), numbers(100, 100, 0),
        'idempotent for the same time bucket';
    is told('set', 'quota', targetValue => 250), numbers(250, 250, 0),
        'a number; the difference is added';
    is told('set', 'quota', targetValue => '30'), numbers(30, 250, 220),
        'or subtracted';
    is told('set', 'quota', targetValue => '0'), numbers(0, 250, 250), 'to 0';
    is told('increment', 'quota'), numbers(1, 251, 250), 'goes on from there';
    is told('set', 'zero', targetValue => 0), numbers(0, 0, 0), '0 at first';
    is told('get', 'zero'), numbers(0, 0, 0), 'makes a bucket';
};

subtest 'get: the current state of a specific counter bucket' => sub {
    is told('increment', 'got', amount => 150), numbers(150, 150, 0), 'made';
    is told('decrement', 'got', amount => 50), numbers(100, 150, 50), 'less 50';
    is told('get', 'got'), numbers(100, 150, 50), 'get';
    is told('get', 'got', timestamp => '2024-03-15T10:59:59.999999Z'),
        numbers(100, 150, 50), 'by any instant of its bucket';
    is told('get', 'got', timestamp => '2024-03-15T11:00:00Z'), $NONE,
        'the bucket behind: 404';
    is told('get', 'got', timestamp => '2024-03-15T09:59:59.999999Z'), $NONE,
        'the one before: 404';
    is told('get', 'got', durationSeconds => 60), $NONE,
        'another size: another bucket';
    is told('get', 'gott'), $NONE, 'another name';
    my $head = $counters->http->request('HEAD',
        $counters->read_path('get', 'got'));
    is "$head->{status} $head->{headers}{'content-length'} $head->{body}",
        '200 41 ', 'HEAD: the same without the body';
};

subtest 'sumRange: aggregates counter values across a time range' => sub {
    my %amount = ('09' => 1, 10 => 20, 11 => 300, 12 => 4000);
    for my $hour (sort keys %amount) {
        my $ts = "2024-03-15T$hour:00:00Z";
        told('increment', 'sum', amount => 2 * $amount{$hour},
            timestamp => $ts);
        told('decrement', 'sum', amount => $amount{$hour}, timestamp => $ts);
    }
    told('increment', 'sum', durationSeconds => 60, amount => 7);
    told('increment', 'sums', amount => 7);
    my $sum = sub {
        my ($start, $end, %more) = @_;
        return told('sumRange', 'sum', startTime => "2024-03-15T$start",
            endTime => "2024-03-15T$end", %more);
    };
    is $sum->('10:00:00Z', '11:00:00Z'), numbers(320, 640, 320),
        'start and end are inclusive';
    is $sum->('10:30:00Z', '11:30:00Z'), numbers(320, 640, 320),
        "timestamps don't need normalization";
    is $sum->('10:59:59.999999Z', '12:00:00Z'), numbers(4320, 8640, 4320),
        'the first bucket counts whole';
    is $sum->('10:59:59Z', '11:59:59.999999Z'), numbers(320, 640, 320),
        'the last too, the next not at all';
    is $sum->('10:30:00Z', '10:30:00Z'), numbers(20, 40, 20), 'one instant';
    is $sum->('00:00:00Z', '23:00:00Z'), numbers(4321, 8642, 4321), 'a day';
    is $sum->('13:00:00Z', '23:00:00Z'), numbers(0, 0, 0),
        'returns zeros if no data in range';
    is told('sumRange', 'never'), numbers(0, 0, 0), 'of no counter too';
    is $sum->('11:00:00Z', '10:00:00Z'),
        '400 {"error":"startTime lies behind endTime"}', 'start behind end';
    is $sum->('10:30:01Z', '10:30:00Z'),
        '400 {"error":"startTime lies behind endTime"}',
        'in one bucket too';
    is $sum->('09:00:00Z', '12:00:00Z', durationSeconds => 60),
        numbers(7, 7, 0), 'one size of buckets';
    told('set', 'huge', targetValue => MAX, timestamp => $_)
        for 0, 3600, 7200;
    is told('sumRange', 'huge', startTime => 0, endTime => 7200),
        numbers('27670116110564327421', '27670116110564327421', 0),
        'a sum beyond 64 bits is exact';
};

# --- time ---------------------------------------------------------------

# The start of the one bucket of a counter, as stored.
sub start_of {
    my ($name) = @_;
    return $stack->query(qq(SELECT to_char(time_start AT TIME ZONE 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS') FROM meter.bucket_counter
        WHERE tenant = 'acme' AND name = '$name'));
}

subtest 'the system automatically normalizes timestamps to bucket boundaries'
    => sub {
    my @rows = (
        [60,       '2024-03-15T10:30:45Z',      '2024-03-15T10:30:00'],
        [60,       '2024-03-15T10:31:15Z',      '2024-03-15T10:31:00'],
        [3600,     '2024-03-15T10:30:45Z',      '2024-03-15T10:00:00'],
        [3600,     '2024-03-15T11:45:00Z',      '2024-03-15T11:00:00'],
        [86400,    '2024-03-15T23:59:59.9Z',    '2024-03-15T00:00:00'],
        [0,        '2024-03-15T10:30:45Z',      '1970-01-01T00:00:00'],
        [0,        '0001-01-01T00:00:00Z',      '1970-01-01T00:00:00'],
        [1,        '2024-03-15T10:30:45.7Z',    '2024-03-15T10:30:45'],
        [7,        '1970-01-01T00:00:13Z',      '1970-01-01T00:00:07'],
        [90,       '1970-01-01T00:02:59Z',      '1970-01-01T00:01:30'],
        [2592000,  '2024-03-15T10:30:45Z',      '2024-02-17T00:00:00'],
        [3600,     '1969-12-31T23:59:59.9Z',    '1969-12-31T23:00:00'],
        [3600,     '1969-12-31T23:00:00Z',      '1969-12-31T23:00:00'],
        [86400,    '1969-12-31T00:00:00Z',      '1969-12-31T00:00:00'],
        [60,       -1,                          '1969-12-31T23:59:00'],
        [60,       '-60',                       '1969-12-31T23:59:00'],
        [3600,     '2024-03-15T10:30:45+05:30', '2024-03-15T05:00:00'],
        [3600,     '2024-03-15T10:30:45-11:00', '2024-03-15T21:00:00'],
        [86400,    '2024-03-15T00:30:00+01:00', '2024-03-14T00:00:00'],
        [3600,     '2024-03-15t10:30:45z',      '2024-03-15T10:00:00'],
        [3600,     1710498645,                  '2024-03-15T10:00:00'],
        [3600,     1710498645123,               '2024-03-15T10:00:00'],
        [60,       1710498645.5,                '2024-03-15T10:30:00'],
        [60,       '1710498645',                '2024-03-15T10:30:00'],
        [60,       '1710498645123',             '2024-03-15T10:30:00'],
        [31622400000, '2024-03-15T10:30:45Z',   '1970-01-01T00:00:00'],
    );
    my $n = 0;
    for my $row (@rows) {
        my ($duration, $ts, $start) = @$row;
        my $name = 'normal' . $n++;
        my %where = (durationSeconds => $duration, timestamp => $ts);
        is told('increment', $name, %where), numbers(1, 1, 0),
            "$ts for $duration s";
        is start_of($name), $start, "is $start";
        is told('get', $name, %where), numbers(1, 1, 0), 'get';
        is told('sumRange', $name, durationSeconds => $duration,
            startTime => $ts, endTime => $ts), numbers(1, 1, 0), 'sumRange';
    }
    };

subtest 'an offset in a query, its + escaped or not' => sub {
    told('increment', 'offset', timestamp => '2024-03-15T05:10:00Z');
    my $path = $counters->path('get', 'offset') . '?durationSeconds=3600';
    for my $plus ('%2B', '+') {
        my $got = $counters->http->get(
            "$path&timestamp=2024-03-15T10:40:00${plus}05:30");
        is $got->{status}, 200, "with $plus";
    }
    is $counters->http->get(
        "$path&timestamp=2024-03-15T01:10:00-04:00")->{status}, 200, 'with -';
};

subtest 'perpetual: a single value for all time' => sub {
    my %perpetual = (durationSeconds => 0);
    told('increment', 'total', %perpetual, timestamp => $_, amount => 5)
        for 0, '2024-03-15T10:30:00Z', '1950-01-01T00:00:00Z';
    is told('get', 'total', %perpetual), numbers(15, 15, 0), 'get';
    is told('sumRange', 'total', %perpetual, startTime => '2030-01-01T00:00:00Z',
        endTime => '2031-01-01T00:00:00Z'), numbers(15, 15, 0),
        'sumRange: its one value, whatever the range';
};

# --- numbers ------------------------------------------------------------

subtest 'values are strings, exact to 2^63-1' => sub {
    for my $sync ('', 'Sync') {
        my $name = "big$sync";
        is told("increment$sync", $name, amount => \MAX), numbers(MAX, MAX, 0),
            "increment$sync by 2^63-1";
        is told('get', $name), numbers(MAX, MAX, 0), 'get';
        is told("increment$sync", $name), $OVERFLOW, 'one more: 400';
        is told("decrement$sync", $name, amount => \MAX),
            numbers(0, MAX, MAX), "decrement$sync by as much";
        is told("increment$sync", $name), $OVERFLOW,
            'added is full, though net is 0';
        is told('set', $name, targetValue => 1), $OVERFLOW, 'for set too';
        is told('set', $name, targetValue => 0), numbers(0, MAX, MAX),
            'nothing to add: fine';
    }
    for my $number ('9007199254740993', '9223372036854775806') {
        is told('set', "n$number", targetValue => \$number),
            numbers($number, $number, 0), "$number as a number";
        is told('set', "n$number", targetValue => $number),
            numbers($number, $number, 0), 'as a string';
    }
};

# --- one batch ----------------------------------------------------------

# What is sent while another transaction holds the bucket is one batch, in the
# order of its arrival.
subtest 'operations fail atomically, each alone, in their order' => sub {
    told('increment', 'batch', amount => 5);
    my $locker = $counters->lock_bucket($stack, 'batch');
    my @asked = map { [split / /] } (
        'increment 1',  'decrement 7',  'increment 2', 'decrement 8',
        'increment 1',  'decrement 1',  'increment ' . MAX, 'decrement 1',
        'increment 10', 'decrement 10', 'increment 4',
    );
    my @clients;
    for my $asked (@asked) {
        push @clients, $counters->start($stack, $asked->[0], 'batch',
            amount => \"$asked->[1]");
    }
    $counters->unlock($stack, $locker);
    my @expected = (
        numbers(6, 6, 0), $NEGATIVE, numbers(8, 8, 0), numbers(0, 8, 8),
        numbers(1, 9, 8), numbers(0, 9, 9), $OVERFLOW, $NEGATIVE,
        numbers(10, 19, 9), numbers(0, 19, 19), numbers(4, 23, 19),
    );
    for my $i (0 .. $#asked) {
        my $got = $clients[$i]->receive;
        is "$got->{status} $got->{body}", $expected[$i],
            "$i: @{ $asked[$i] }";
    }
    is told('get', 'batch'), numbers(4, 23, 19), 'what is left';
};

# --- expiry -------------------------------------------------------------

sub end_of {
    my ($name) = @_;
    return $stack->query(qq(SELECT coalesce(to_char(expires_at AT TIME ZONE
        'UTC', 'YYYY-MM-DD'), 'never') FROM meter.bucket_counter
        WHERE tenant = 'acme' AND name = '$name'));
}

subtest 'expiresAt: extended by increments and sets, never by decrements' =>
    sub {
    my @rows = (
        ['increment',     undef,                  'never'],
        ['increment',     '2100-01-02T00:00:00Z', '2100-01-02'],
        ['increment',     undef,                  '2100-01-02'],
        ['increment',     '2100-01-01T00:00:00Z', '2100-01-02'],
        ['decrement',     '2100-01-09T00:00:00Z', '2100-01-02'],
        ['decrementSync', '2100-01-09T00:00:00Z', '2100-01-02'],
        ['decrement',     'no time',              '2100-01-02'],
        ['incrementSync', '2100-01-03T00:00:00Z', '2100-01-03'],
        ['set',           '2100-01-02T00:00:00Z', '2100-01-03'],
        ['set',           '4102704000',           '2100-01-04'],
        ['increment',     4102790400,             '2100-01-05'],
        ['increment',     4102876800000,          '2100-01-06'],
        ['set',           undef,                  '2100-01-06'],
    );
    for my $row (@rows) {
        my ($verb, $expires, $end) = @$row;
        my %value = $verb eq 'set' ? (targetValue => 50) : (amount => 1);
        $value{amount} = 100 if $verb =~ /^inc/;
        my $got = $counters->send($verb, 'ends', %value,
            expiresAt => $expires);
        is $got->{status}, 200, $verb . ' ' . ($expires // 'without');
        is end_of('ends'), $end, "ends $end";
    }
    is told('get', 'ends'), numbers(50, 700, 650), 'still there';
    };

subtest 'an expired bucket is as if it were not there' => sub {
    my $past = '2020-01-01T00:00:00Z';
    is told('increment', 'gone', amount => 5, expiresAt => $past),
        numbers(5, 5, 0), 'accepted with an end in the past';
    is told('get', 'gone'), $NONE, 'get: 404';
    is told('sumRange', 'gone'), numbers(0, 0, 0), 'sumRange: zeros';
    is told('decrement', 'gone'), $NEGATIVE, 'decrement: 409';
    is told('decrementSync', 'gone'), $NEGATIVE, 'decrementSync: 409';
    is told('increment', 'gone', amount => 2), numbers(2, 2, 0),
        'an increment starts from 0';
    is told('get', 'gone'), numbers(2, 2, 0), 'and has no end any more';
    is told('set', 'gone2', targetValue => 3, expiresAt => $past),
        numbers(3, 3, 0), 'set with an end in the past';
    is told('set', 'gone2', targetValue => 1), numbers(1, 1, 0),
        'set starts from 0';

    my $soon = $stack->query(q(SELECT to_char((clock_timestamp()
        + interval '1500 milliseconds') AT TIME ZONE 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')));
    is told('increment', 'soon', expiresAt => $soon), numbers(1, 1, 0),
        'with an end in a moment';
    is told('get', 'soon'), numbers(1, 1, 0), 'there until then';
    wait_until { told('get', 'soon') eq $NONE } 10, 'gone from then on';
    ok $stack->query("SELECT clock_timestamp() >= '$soon'") eq 't',
        'not before';
    is told('sumRange', 'soon'), numbers(0, 0, 0), 'for sums too';
};

done_testing;
