#!/usr/bin/perl

# 86-random-histories.t - events of all kinds in requests of any size, with
# repeats, contradictions and what must be rejected, against a second program
# that knows the rules and nothing else: one event after the other, no
# batches, no folds. Every verdict and every figure must be the same.
#
#   history -> meterd -> verdicts, counters, usage, meters
#      +----> [model] -> the same

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use JSON::PP ();
use Math::BigInt;
use POSIX ();
use Test::More;
use Edgemeter::Recount;

my $seed   = $ENV{HISTORY_SEED} // 86;
my $events = $ENV{TORTURE_SECONDS} ? 60_000 : 10_000;
my $JSON   = JSON::PP->new->utf8->canonical->allow_nonref;
my $KEYS   = 8;
my $MAX    = Math::BigInt->new('9223372036854775807');
my $MIN    = Math::BigInt->new('-9223372036854775808');
my $NANO   = 1_000_000_000;

# metric => [types, value, aggregation, period, lateness in s, groupBy]
my %METERS = (
    m_sum    => [['call', 'opened'], 'quantity', 'sum', 'month', 3600, 'route'],
    m_count  => [['call'], 'quantity', 'count', 'hour', 0, undef],
    m_min    => [['call'], 'temp', 'min', 'day', 7200, undef],
    m_max    => [['call'], 'temp', 'max', 'day', 600, 'route'],
    m_avg    => [['call', 'closed'], 'temp', 'avg', 'month', 1800, undef],
    m_last   => [['call'], 'temp', 'last', 'day', 3600, undef],
    m_unique => [['call', 'up'], 'device', 'unique', 'month', 3600, 'site'],
);

$Edgemeter::Recount::RULES = <<"YAML" . join '', map {
limits: { counterKeys: $KEYS }
events: [ { type: call }, { type: opened }, { type: closed }, { type: got },
    { type: gave }, { type: up }, { type: down }, { type: born }, { type: dead } ]
counters:
  - counterName: calls
    dimensions: [route, site]
    rules: [ { on: call, op: increment, by: size } ]
  - counterName: level
    dimensions: []
    rules: [ { on: opened, op: increment, by: big }, { on: closed, op: decrement, by: big } ]
  - counterName: open
    dimensions: [route]
    floorAtZero: true
    audit: true
    rules: [ { on: got, op: increment, by: size }, { on: gave, op: decrement, by: size },
        { on: opened, op: increment }, { on: closed, op: decrement } ]
  - counterName: online
    dimensions: [site]
    transitions: { entity: device }
    rules: [ { on: up, op: increment }, { on: down, op: decrement } ]
usage:
  entryCount: { increment: [opened], decrement: [closed] }
  storageBytes: { increment: [opened], decrement: [closed], by: big }
  apiCallCount: { increment: [call] }
  provisioned: born
  decommissioned: dead
meters:
YAML
    my ($on, $value, $aggregation, $period, $lateness, $group) = @{ $METERS{$_} };
    "  - { metric: $_, on: [" . join(', ', @$on) . "], value: $value,"
        . " aggregation: $aggregation, period: $period,"
        . " lateness: ${lateness}s"
        . ($group ? ", groupBy: [$group]" : '') . " }\n";
} sort keys %METERS;

# --- history ------------------------------------------------------------

srand $seed;
my $number = 0;
my $clock  = 1_743_310_000;    # late in March 2025; it passes into April
my @sent;

sub pick { return $_[rand @_] }
sub decimal { return sprintf '%.*f', int rand 4, rand(200) - 60 }

sub size {
    return pick(0, 1, 1, 1, 2, 3, 7, undef);
}

sub big {
    return rand() < 0.7 ? int rand 1000
        : pick('9223372036854775807', '4611686018427387904',
            '6000000000000000000', '0');
}

# JSON text of one attribute object; numbers as they are.
sub attributes {
    my %of = (
        route  => $JSON->encode(pick('/a', '/b', '/c', '/d', undef)),
        site   => $JSON->encode(pick(1, '1', 'x', undef)),
        device => $JSON->encode('d' . int rand 12),
        size   => size() // 'null',
        big    => big(),
        temp   => decimal(),
    );
    $of{route} = $JSON->encode('/rare' . int rand 8) if rand() < 0.02;
    delete $of{$_} for grep { rand() < 0.05 } sort keys %of;
    if (rand() < 0.03) {
        my ($name, $wrong) = @{ pick(['size', '-1'], ['size', '1.5'],
            ['big', '9223372036854775808'], ['temp', '"hot"'],
            ['route', '{}'], ['size', '"many"']) };
        $of{$name} = $wrong;
    }
    return \%of;
}

# Types that can always be folded, types of which some cannot.
my @PLAIN = qw(got gave gave born dead);
my @TYPES = qw(call call call opened opened closed closed got gave up down
    born dead);

sub event {
    my ($types) = @_;
    my %event = (
        id => 'e' . ++$number,
        type => pick(@$types),
        ts => ($clock += rand 60) + (rand() < 0.2 ? -rand 14_400 : rand(600) - 300),
        quantity => decimal(),
        customer => pick('c0', 'c1', undef),
        attributes => attributes(),
    );
    $event{ts} -= $event{ts} % 600 + $event{ts} - int $event{ts}
        if rand() < 0.3;    # so that limits are hit to the point
    $event{ts}   = sprintf '%.3f', $event{ts};
    $event{type} = 'unheard' if rand() < 0.01;
    return \%event;
}

# New ones, repeats of earlier ones, of this request too, and others that
# have their id.
sub next_event {
    my ($types) = @_;
    if (@sent && rand() < 0.1) {
        my $old = pick(rand() < 0.5 ? @sent : @sent[-1, -1]);
        return $old if rand() < 0.7;
        my %other = (%$old, quantity => decimal());
        return \%other;
    }
    return event($types);
}

sub text_of {
    my ($event) = @_;
    my ($second, $fraction) = split /\./, $event->{ts};
    my %a = %{ $event->{attributes} };
    return sprintf '{"event_id":"%s","type":"%s","ts":"%s","quantity":%s,%s'
        . '"attributes":{%s}}', $event->{id}, $event->{type},
        POSIX::strftime("%Y-%m-%dT%H:%M:%S.${fraction}Z", gmtime $second),
        $event->{quantity},
        defined $event->{customer} ? qq("customer":"$event->{customer}",) : '',
        join ',', map {qq("$_":$a{$_})} sort keys %a;
}

# --- model --------------------------------------------------------------

my (%counter, %keys, %place, %row, %accepted);
my @usage;

sub nano {
    my ($text) = @_;
    my ($sign, $whole, $part) = $text =~ /^(-?)(\d+)(?:\.(\d+))?$/ or return;
    my $units = $whole * $NANO + substr(($part // '') . '0' x 9, 0, 9);
    return $sign ? -$units : $units;
}

sub plain {
    my ($units) = @_;
    my $text = sprintf '%d.%09d', abs($units) / $NANO, abs($units) % $NANO;
    $text =~ s/\.?0+$//;
    return $units < 0 ? "-$text" : $text;
}

# Half to even.
sub mean {
    my ($sum, $count) = @_;
    my $rest = abs($sum) % $count;
    my $units = (abs($sum) - $rest) / $count;
    $units++ if 2 * $rest > $count || (2 * $rest == $count && $units % 2);
    return $sum < 0 ? -$units : $units;
}

sub is_amount {
    my ($lexeme) = @_;
    return !defined $lexeme || $lexeme eq 'null'
        || ($lexeme =~ /^\d+$/ && Math::BigInt->new($lexeme) <= $MAX);
}

# What no state can make right.
sub is_bad {
    my ($event) = @_;
    my ($type, $a) = @$event{qw(type attributes)};
    return 1 if $type eq 'unheard';
    my $bad_route = ($a->{route} // '') eq '{}';
    return !is_amount($a->{size}) || $bad_route
        || ($a->{temp} // '') eq '"hot"' if $type eq 'call';
    return !is_amount($a->{size}) || $bad_route if $type =~ /^g/;
    return !is_amount($a->{big}) || $bad_route
        || ($type eq 'closed' && ($a->{temp} // '') eq '"hot"')
        if $type =~ /^(?:opened|closed)$/;
    return 0;
}

sub amount {
    my ($lexeme) = @_;
    return Math::BigInt->new(!defined $lexeme || $lexeme eq 'null' ? 0 : $lexeme);
}

sub set {
    my ($event, @names) = @_;
    return '{' . join(',', map { qq("$_":) . ($event->{attributes}{$_} // 'null') }
        @names) . '}';
}

# Adds to a copy of the counters; false: it cannot be.
sub count_in {
    my ($change, $name, $set, $delta, $floor) = @_;
    my $key = "$name $set";
    my $is_new = !exists $counter{$key} && !exists $change->{$key};
    return 0 if $is_new && ($keys{$name} // 0) >= $KEYS;
    my $value = ($change->{$key} // $counter{$key} // Math::BigInt->new(0)) + $delta;
    return 0 if $value > $MAX || $value < $MIN;
    $change->{$key} = $floor && $value < 0 ? Math::BigInt->new(0) : $value;
    return 1;
}

sub counters {
    my ($event, $change, $moved) = @_;
    my ($type, $a) = @$event{qw(type attributes)};
    return count_in($change, 'calls', set($event, 'route', 'site'),
        amount($a->{size}), 0) if $type eq 'call';
    if ($type =~ /^(?:opened|closed)$/) {
        my $sign = $type eq 'opened' ? 1 : -1;
        return count_in($change, 'level', '{}', $sign * amount($a->{big}), 0)
            && count_in($change, 'open', set($event, 'route'), $sign, 1);
    }
    return count_in($change, 'open', set($event, 'route'),
        ($type eq 'got' ? 1 : -1) * amount($a->{size}), 1) if $type =~ /^g/;
    my $device = $a->{device};
    return 1 if $type !~ /^(?:up|down)$/ || !defined $device;
    my $at = $place{$device};
    if ($type eq 'up' && !defined $at) {
        $moved->{$device} = set($event, 'site');
        return count_in($change, 'online', $moved->{$device}, 1, 0);
    }
    if ($type eq 'down' && defined $at) {
        $moved->{$device} = undef;
        return count_in($change, 'online', $at, -1, 0);
    }
    return 1;
}

# The row behind the event, or nothing: it cannot be.
sub used {
    my ($event) = @_;
    my ($type, $a) = @$event{qw(type attributes)};
    my @now = @usage ? @usage : (0, Math::BigInt->new(0), 0, 'active');
    if ($type =~ /^(?:opened|closed)$/) {
        my $sign = $type eq 'opened' ? 1 : -1;
        $now[0] += $sign;
        $now[1] += $sign * amount($a->{big});
        return if $now[1] > $MAX;
        $_ = $_ < 0 ? 0 * $_ : $_ for @now[0, 1];
    }
    $now[2]++ if $type eq 'call';
    $now[3] = 'active'         if $type eq 'born';
    $now[3] = 'decommissioned' if $type eq 'dead';
    return @now;
}

sub put {
    my ($sums, $value, $mark) = @_;
    $sums->{count}++;
    return $sums->{seen}{$value} = 1 if $value =~ /^"/;
    $sums->{sum} += $value;
    $sums->{min} = $value if !defined $sums->{min} || $value < $sums->{min};
    $sums->{max} = $value if !defined $sums->{max} || $value > $sums->{max};
    ($sums->{last}, $sums->{mark}) = ($value, $mark)
        if !defined $sums->{mark} || $mark >= $sums->{mark};
    return;
}

sub figure {
    my ($aggregation, $sums) = @_;
    return $NANO * ($sums->{count} // 0) if $aggregation eq 'count';
    return $NANO * keys %{ $sums->{seen} // {} } if $aggregation eq 'unique';
    return mean($sums->{sum}, $sums->{count}) if $aggregation eq 'avg';
    return $sums->{$aggregation};
}

sub meter {
    my ($event, $metric) = @_;
    my ($on, $value, $aggregation, $period, $lateness, $group) = @{ $METERS{$metric} };
    return if !grep { $_ eq $event->{type} } @$on;
    my $given = $value eq 'quantity' ? $event->{quantity}
        : $event->{attributes}{$value};
    return if !defined $given;
    my %format = (month => '%Y-%m', day => '%Y-%m-%d', hour => '%Y-%m-%dT%H');
    my $key = join ' ', $metric,
        POSIX::strftime($format{$period}, gmtime int $event->{ts}),
        $event->{customer} // '-', $group ? set($event, $group) : '{}';
    my $row = $row{$key} //= { metric => $metric, all => {}, folded => {} };
    my $units = $aggregation eq 'unique' ? $given : nano($given);
    my $is_late = defined $row->{watermark}
        && $row->{watermark} > sprintf '%.3f', $event->{ts} + $lateness;
    my $before = $is_late ? figure($aggregation, $row->{all}) : 0;
    put($row->{all}, $units, $event->{ts});
    if ($is_late) {
        push @{ $row->{late} }, "$metric $event->{id} "
            . plain(figure($aggregation, $row->{all}) - $before);
        return;
    }
    put($row->{folded}, $units, $event->{ts});
    $row->{watermark} = $event->{ts}
        if !defined $row->{watermark} || $event->{ts} > $row->{watermark};
    return;
}

my %why;

sub verdict {
    my ($event) = @_;
    return 'rejected' if is_bad($event);
    my $known = $accepted{ $event->{id} };
    return $known eq text_of($event) ? 'duplicate' : 'conflict' if defined $known;
    my (%change, %moved);
    $why{counter}++, return 'rejected' if !counters($event, \%change, \%moved);
    my @now = used($event);
    $why{usage}++, return 'rejected' if !@now;
    for (grep { !exists $counter{$_} } keys %change) {
        $keys{ (split / /)[0] }++;
    }
    %counter = (%counter, %change);
    %place   = (%place, %moved);
    @usage   = @now if $event->{type} !~ /^(?:up|down|got|gave)$/;
    meter($event, $_) for sort keys %METERS;
    $accepted{ $event->{id} } = text_of($event);
    return 'accepted';
}

# --- both ---------------------------------------------------------------

my $recount = Edgemeter::Recount->start(nodes => ['a']);
my $stack   = $recount->stack;
my $node    = $recount->node('a');
my $client  = $node->client;
my %verdicts;
my @wrong;

sub ask {
    my (%request) = @_;
    my $got = $client->request(token => $stack->token('acme'), %request);
    die "not answered: $got->{status} $got->{body}\n" if $got->{status} != 200;
    return JSON::PP->new->utf8->decode($got->{body});
}

# What is clamped or set anew may be wrong for a while and right in the end.
sub differs {
    my $page = ask(path => '/v1/counters/open', args => 'limit=1000');
    my %found = map { 'open ' . $JSON->encode($_->{dimensions}) => $_->{value} }
        @{ $page->{counters} };
    for (grep {/^open /} keys %counter) {
        return "$_ $counter{$_}, told " . ($found{$_} // 'nothing')
            if ($found{$_} // '') ne $counter{$_};
    }
    return if !@usage;
    my $told = ask(path => '/v1/tenants/acme/usage');
    my $found = join ' ', @$told{
        qw(entry_count storage_bytes api_call_count status) };
    return if $found eq "@usage";
    return "usage @usage, told $found";
}

while (@sent < $events) {
    my $size = pick(1, 1, 2, 5, 20, 60, 300);
    my $from = @sent;
    my $types = rand() < 0.3 ? \@PLAIN : \@TYPES;
    push @sent, next_event($types) for 1 .. $size;
    my @now  = @sent[$from .. $#sent];
    my $told = ask(method => 'POST', path => '/v1/events',
        type => 'application/json', body => '[' . join(',', map { text_of($_) } @now) . ']');
    for my $i (0 .. $#now) {
        my $expected = verdict($now[$i]);
        my $result   = $told->{results}[$i];
        $verdicts{$expected}++;
        push @wrong, "$expected, told $result->{verdict} "
            . ($result->{error} // '') . ': ' . text_of($now[$i])
            if $result->{verdict} ne $expected;
    }
    push @wrong, differs() // ();
    last if @wrong > 5;
}
is "@wrong", '', "every verdict (HISTORY_SEED=$seed)";
note join ', ', map {"$verdicts{$_} $_"} sort keys %verdicts;
for (qw(accepted duplicate conflict rejected)) {
    cmp_ok $verdicts{$_}, '>', $events / 200, "enough were $_";
}
cmp_ok $why{$_} // 0, '>', 0, "some by their $_" for qw(counter usage);
cmp_ok $node->metric('edgemeter_batches_careful_total'), '>', 10,
    'both paths were taken';

sub is_same {
    my ($name, $got, $expected) = @_;
    my %seen = map { $_ => 1 } @$expected;
    my %got  = map { $_ => 1 } @$got;
    my @lack = grep { !$got{$_} } @$expected;
    my @more = grep { !$seen{$_} } @$got;
    ok !@lack && !@more && @$got == @$expected,
        "$name: " . @$expected
        or diag join "\n", map({"- $_"} splice @lack, 0, 5),
            map {"+ $_"} splice @more, 0, 5;
    return;
}

is_same('counters', [map { s/\t/ /gr } $stack->query(
            'SELECT counter_name, dimensions, value FROM meter.counter')],
    [map {"$_ $counter{$_}"} keys %counter]);
is_same('numbers of keys', [map { s/\t/ /gr } $stack->query(
            'SELECT counter_name, keys FROM meter.counter_keys')],
    [map {"$_ $keys{$_}"} keys %keys]);
is_same('entities', [map { s/\t/ /gr } $stack->query('SELECT entity,'
            . ' dimensions FROM meter.entity_state WHERE dimensions IS NOT NULL')],
    [map {"$_ $place{$_}"} grep { defined $place{$_} } keys %place]);
is $stack->query('SELECT entry_count, storage_bytes, api_call_count, status'
        . ' FROM meter.tenant_usage_metrics'), join("\t", @usage), 'usage';

my %to = (month => '2025-03&to=2025-06', day => '2025-03-28&to=2025-05-30',
    hour => '2025-03-29T00&to=2025-05-09T00');
for my $metric (sort keys %METERS) {
    my ($on, $value, $aggregation, $period) = @{ $METERS{$metric} };
    my (@got, $cursor);
    do {
        my $page = ask(path => '/v1/usage',
            args => "metric=$metric&from=$to{$period}&groups=true&limit=100"
                . (defined $cursor ? "&cursor=$cursor" : ''));
        for (@{ $page->{usage} }) {
            push @got, join ' ', $metric, $_->{period}, $_->{customer} // '-',
                $JSON->encode($_->{group} // {}), $_->{value}, $_->{total},
                $_->{watermark};
        }
        $cursor = $page->{cursor};
    } while (defined $cursor);
    is_same($metric, \@got, [map {
        my $one = $row{$_};
        my ($second, $fraction) = split /\./, $one->{watermark};
        join ' ', $_, plain(figure($aggregation, $one->{folded})),
            plain(figure($aggregation, $one->{all})),
            POSIX::strftime("%Y-%m-%dT%H:%M:%S.${fraction}000Z", gmtime $second);
    } grep { $row{$_}{metric} eq $metric } keys %row]);
}
my @late = map { @{ $_->{late} // [] } } values %row;
is_same('adjustments', [map { s/\t/ /gr } $stack->query('SELECT metric, id,'
            . ' trim_scale(amount) FROM meter.meter_adjustment')], \@late);
cmp_ok scalar @late, '>', $events / 40, 'so many were late';
my ($status, $out, $err) = $recount->run('reconcile');
is "$status $out", '0 ', 'a recomputation agrees' or diag $err;

done_testing;
