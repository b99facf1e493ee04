#!/usr/bin/perl

# 35-overflow.t - counters near the ends of 64 bits: the one event that does
# not fit is rejected, with no effect on any counter; its neighbours count.
#
# A list must give what its events give one by one. Short lists go by INSERT
# and long ones by COPY, so each case runs alone and among a hundred others.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use Test::More;
use Edgemeter::Stack;
use Edgemeter::Verify qw(verify_books);

my ($MAX, $MIN) = ('9223372036854775807', '-9223372036854775808');

my $stack = Edgemeter::Stack->for_test(rules => \<<'YAML')->start;
events:
  - { type: raw.up }
  - { type: raw.down }
  - { type: floored.up }
  - { type: floored.down }
  - { type: other }
  - { type: pair }
counters:
  - counterName: raw
    mode: persistent
    dimensions: [key]
    rules:
      - { on: raw.up, op: increment, by: n }
      - { on: raw.down, op: decrement, by: n }
    idempotency: { requireEventId: true, scope: globalEventId }
  - counterName: floored
    mode: persistent
    dimensions: [key]
    floorAtZero: true
    rules:
      - { on: floored.up, op: increment, by: n }
      - { on: floored.down, op: decrement, by: n }
    idempotency: { requireEventId: true, scope: globalEventId }
  - counterName: pair_left
    mode: persistent
    dimensions: [key]
    rules: [ { on: pair, op: increment } ]
    idempotency: { requireEventId: true, scope: globalEventId }
  - counterName: pair_right
    mode: persistent
    dimensions: [right]
    rules: [ { on: pair, op: increment } ]
    idempotency: { requireEventId: true, scope: globalEventId }
  - counterName: events_seen
    mode: persistent
    dimensions: [key]
    rules:
      - { on: raw.up, op: increment }
      - { on: raw.down, op: increment }
      - { on: floored.up, op: increment }
      - { on: floored.down, op: increment }
      - { on: other, op: increment }
    idempotency: { requireEventId: true, scope: globalEventId }
YAML
my $http   = $stack->http('acme');
my $number = 0;

sub event {
    my ($id, $type, $key, $n) = @_;
    return qq({"event_id":"$id","type":"$type","ts":"2026-09-01T12:00:00Z",)
        . qq("attributes":{"key":"$key","n":$n}});
}

sub value {
    my ($counter, $key) = @_;
    my $got = $http->get("/v1/counters/$counter", key => $key);
    return $got->{status} == 200 ? $got->{json}{value} : $got->{status};
}

# Sets a row; it exists after a step of 0.
sub set_value {
    my ($counter, $key, $value) = @_;
    $stack->query("UPDATE meter.counter SET value = '$value'"
        . " WHERE counter_name = '$counter' AND dimensions::json ->> 'key'"
        . " = '$key'");
    return;
}

# start value, steps, expected verdicts (a or r), value at the end
my @cases = (
    ['one too many',            raw => $MAX, '+1',          'r',   $MAX],
    ['one too few',             raw => $MIN, '-1',          'r',   $MIN],
    ['the last that fits',      raw => '9223372036854775806', '+1 +1 +1',
        'arr', $MAX],
    ['the last that fits below', raw => '-9223372036854775807', '-1 -1 -1',
        'arr', $MIN],
    ['up and back',             raw => $MAX, '+1 -1',       'ra',
        '9223372036854775806'],
    ['down and back',           raw => $MIN, '-1 +1',       'ra',
        '-9223372036854775807'],
    ['back and up',             raw => $MAX, '-1 +1',       'aa',  $MAX],
    ['down and up',             raw => $MIN, '+1 -1',       'aa',  $MIN],
    ['up twice and back',       raw => '9223372036854775806', '+1 +1 -2',
        'ara', '9223372036854775805'],
    ['the largest amount',      raw => '-5', "+$MAX",       'a',
        '9223372036854775802'],
    ['the largest amount twice', raw => '-5', "+$MAX +$MAX", 'ar',
        '9223372036854775802'],
    ['from end to end',         raw => '0', "-$MAX -1 -1 +$MAX", 'aara', '-1'],
    ['an amount past 64 bits',  raw => '7', '+9223372036854775808 +1', 'ra',
        '8'],
    ['an amount past all bits', raw => '7',
        '+' . '9' x 60 . ' +1', 'ra', '8'],
    ['floored: too many',       floored => $MAX, '+1 -1',   'ra',
        '9223372036854775806'],
    ['floored: no end below',   floored => '0', "-$MAX -$MAX -1 +1", 'aaaa',
        '1'],
    ['floored: down, then up',  floored => '3', "-$MAX +$MAX +1", 'aar', $MAX],
    ['nothing special',         raw => '0', '+1 -1 +2',     'aaa', '2'],
    ['exact past 2^53',         raw => '9007199254740993', '+1 +1', 'aa',
        '9007199254740995'],
);

# Others go before, between and behind; none may notice.
sub run_case {
    my ($others, $name, $counter, $start, $steps, $expect, $end) = @_;
    my $key   = "case$number";
    my @steps = split ' ', $steps;
    is $http->post('/v1/events', event("start$number", "$counter.up", $key, 0))
        ->{json}{accepted}, 1, 'a row';
    set_value($counter, $key, $start);

    my (@list, @want);
    my $n = 0;
    for my $i (0 .. $#steps) {
        for (1 .. $others) {
            push @list, event("other$number-" . $n++, 'other', "o$number", 1);
            push @want, 'a';
        }
        my ($sign, $amount) = $steps[$i] =~ /^([+-])(\d+)$/;
        push @list, event("step$number-$i",
            $counter . ($sign eq '+' ? '.up' : '.down'), $key, $amount);
        push @want, substr $expect, $i, 1;
    }
    my $got = $http->post('/v1/events', '[' . join(',', @list) . ']');
    my $verdicts
        = join '', map { substr $_->{verdict}, 0, 1 }
        @{ $got->{json}{results} };
    is $verdicts, join('', @want), "$name: verdicts";
    is value($counter, $key), $end, "$name: value";
    my $accepted = $expect =~ tr/a//;
    is value('events_seen', $key), 1 + $accepted,
        'a rejected event moves no other counter';
    is value('events_seen', "o$number"), $n, 'the others count' if $others;
    $number++;
    return;
}

for my $others (0, 50) {
    subtest $others ? "among $others others" : 'alone' => sub {
        run_case($others, @$_) for @cases;
    };
}

subtest 'one by one' => sub {
    for my $case (@cases) {
        my ($name, $counter, $start, $steps, $expect, $end) = @$case;
        my $key = "single$number";
        $http->post('/v1/events', event("first$number", "$counter.up", $key, 0));
        set_value($counter, $key, $start);
        my ($verdicts, $i) = ('', 0);
        for my $step (split ' ', $steps) {
            my ($sign, $amount) = $step =~ /^([+-])(\d+)$/;
            my $got = $http->post('/v1/events', event(
                "one$number-" . $i++,
                $counter . ($sign eq '+' ? '.up' : '.down'), $key, $amount));
            $verdicts .= substr $got->{json}{results}[0]{verdict}, 0, 1;
        }
        is "$verdicts " . value($counter, $key), "$expect $end", $name;
        $number++;
    }
};

# What a rejected event did to its first counter must be taken back before
# the next one is decided.
subtest 'an event of two counters' => sub {
    my $pair = sub {
        my ($id, $left, $right) = @_;
        return qq({"event_id":"$id","type":"pair","ts":"2026-09-01T12:00:00Z",)
            . qq("attributes":{"key":"$left","right":"$right"}});
    };
    $http->post('/v1/events', $pair->('pair0', 'left', 'full'));
    set_value('pair_left', 'left', '9223372036854775806');
    $stack->query("UPDATE meter.counter SET value = $MAX"
        . " WHERE counter_name = 'pair_right'");
    my $got = $http->post('/v1/events', '[' . join(',',
        $pair->('pair1', 'left', 'full'), $pair->('pair2', 'left', 'free'),
        $pair->('pair3', 'left', 'free')) . ']');
    is join(' ', map { $_->{verdict} } @{ $got->{json}{results} }),
        'rejected accepted rejected', 'only what does not fit is rejected';
    is value('pair_left', 'left'), $MAX, 'the first counter';
    is $http->get('/v1/counters/pair_right', right => 'free')->{json}{value},
        '1', 'the second one';
};

subtest 'a rejected id is free' => sub {
    $http->post('/v1/events', event('free0', 'raw.up', 'free', 0));
    set_value('raw', 'free', $MAX);
    my $got = $http->post('/v1/events', event('free1', 'raw.up', 'free', 1));
    is $got->{status}, 400, 'rejected';
    like $got->{json}{results}[0]{error}, qr/raw would overflow 64 bits/,
        'the counter is named';
    set_value('raw', 'free', '5');
    $got = $http->post('/v1/events', event('free1', 'raw.up', 'free', 1));
    is $got->{json}{results}[0]{verdict}, 'accepted', 'later it fits';
    is value('raw', 'free'), '6', 'and counts';
};

is $stack->query('SELECT count(*) FROM meter.event'),
    $stack->query('SELECT count(*) FROM meter.event_registry'),
    'registry and ledger hold the same events';
$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
done_testing;
