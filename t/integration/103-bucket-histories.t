#!/usr/bin/perl

# 103-bucket-histories.t - the counters API against another program that does
# one thing after the other.
#
#   random operations -> nginx -> meterd -> answers, rows
#          +-----------> [model] ----------> the same
#
# First every bucket has one client, so that each answer is known beforehand.
# Then four clients share a bucket, on two nodes: there must be an order in
# which all answers are right. Then sixty-four of them.
#
# HISTORY_SEED, HISTORY_OPERATIONS (10000; the long form: 100000),
# HISTORY_ROUNDS (300).

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::CounterClients
    qw(run_clients write_request read_request stamp);
use Edgemeter::CounterModel qw($NEGATIVE $MISSING apply numbers);
use Edgemeter::Linear qw(is_linear);
use Edgemeter::Stack;

my $seed       = $ENV{HISTORY_SEED}       // time;
my $operations = $ENV{HISTORY_OPERATIONS} // 10_000;
my $rounds     = $ENV{HISTORY_ROUNDS}     // 300;
diag "HISTORY_SEED=$seed";
srand $seed;

my $MAX    = '9223372036854775807';
my @TENANT = qw(acme globex initech);

my $stack = Edgemeter::Stack->for_test(tenants => [@TENANT])->start;
my $other = Edgemeter::Stack->for_test(tenants => [@TENANT],
    database_url => $stack->database_url)->start;
my %token = map { $_ => $stack->token($_) } @TENANT;

sub pick { return $_[rand @_] }

# --- each bucket has one client ------------------------------------------

# Buckets of few names and durations, on both sides of 1970; others after a
# while.
sub random_write {
    my ($client) = @_;
    my $kind     = pick(qw(increment increment increment decrement decrement set));
    my $duration = pick(0, 60, 3600, 86_400, 7, 31_622_400_000);
    my %o = (
        kind     => $kind,
        tenant   => $client->{tenant},
        name     => "c$client->{number}." . int($client->{left} / 500)
            . pick(qw(a b)),
        duration => $duration,
        at       => pick(1_767_225_600, -86_400) + int rand(3 * ($duration > 1e9
            ? 1 : $duration || 1)),
        amount   => random_amount($kind),
    );
    $o{endpoint} = $kind eq 'set' ? $kind : pick($kind, $kind, "${kind}Sync");
    $o{expires} = pick(4_000_000_000 + int rand 1000, 4_100_000_000, 1_000_000_000)
        if rand() < 0.2;
    $o{key} = "key-$client->{number}-" . $client->{keys}++ if rand() < 0.3;
    return \%o;
}

sub random_amount {
    my ($kind) = @_;
    my $roll = rand;
    return 1                       if $roll < 0.3 && $kind ne 'set';
    return int rand 4              if $roll < 0.4 && $kind eq 'set';
    return 1 + int rand 20         if $roll < 0.88;
    return 1 + int rand 4e18       if $roll < 0.97;
    return pick($MAX, $MAX - 1, 9_007_199_254_740_993);
}

# Mostly a new one; or one with a key once more, or its key with another one.
sub next_write {
    my ($client) = @_;
    my $keyed = $client->{keyed};
    my $roll  = rand;
    my $new   = random_write($client);
    return $new if !@$keyed || $roll > 0.15;
    my $old = pick(@$keyed);
    return $old if $roll < 0.1;
    return { %$new, key => $old->{key} };
}

sub request_of {
    my ($o) = @_;
    return write_request(
        @$o{qw(endpoint tenant name duration)}, stamp($o->{at}),
        ($o->{kind} eq 'set' ? 'target' : 'amount') => $o->{amount},
        key => $o->{key},
        defined $o->{expires} ? (expires => stamp($o->{expires})) : (),
    );
}

sub next_read {
    my ($client) = @_;
    my $o  = random_write($client);
    my @of = @$o{qw(tenant name duration)};
    if (rand() < 0.5) {
        return [read_request('get', @of[0, 1], durationSeconds => $of[2],
            timestamp => $o->{at}), $client->{model}->get(@of, $o->{at})];
    }
    my ($first, $last) = ($o->{at}, $o->{at} + int rand 2 * 86_400);
    return [read_request('sumRange', @of[0, 1], durationSeconds => $of[2],
        startTime => stamp($first), endTime => stamp($last)),
        $client->{model}->sum(@of, $first, $last)];
}

subtest 'each bucket has one client' => sub {
    my $clients = 24;
    my (@wrong, %status);
    my @clients = map {
        my $client = {
            number => $_,
            tenant => $TENANT[$_ % @TENANT],
            model  => Edgemeter::CounterModel->new,
            keyed  => [],
            left   => int $operations / $clients,
        };
        $client->{token} = $token{ $client->{tenant} };
        $client->{port}  = ($stack, $other)[$_ / 3 % 2]->port;
        $client->{next}  = sub { next_step($client) };
        $client->{told}  = sub {
            my ($request, $answer) = @_;
            $status{ $answer->{status} }++;
            push @wrong, "$request->{method} $request->{path}"
                . " $request->{body} (" . ($request->{key} // '') . ')'
                . "\n#   expected $client->{status} $client->{body}"
                . "\n#   answered $answer->{status} $answer->{body}"
                if $answer->{status} != $client->{status}
                || $answer->{body} ne $client->{body};
        };
        $client;
    } 1 .. $clients;
    run_clients(@clients);

    is scalar @wrong, 0, "every answer is that of the model"
        or diag join "\n", splice @wrong, 0, 5;
    cmp_ok $status{$_} // 0, '>', $operations / 500, "$status{$_} times $_"
        for 200, 400, 404, 409;
    is join(' ', grep { !/^(?:200|400|404|409)$/ } keys %status), '',
        'and nothing else';
    compare_rows(map { $_->{model} } @clients);
};

# Sums may pass what Perl adds up exactly: not asked for then.
sub next_step {
    my ($client) = @_;
    return if $client->{left}-- <= 0;
    if (rand() < 0.15) {
        my ($request, $status, $body) = @{ next_read($client) };
        if ($body !~ /-|\d{19}/) {
            @$client{qw(status body)} = ($status, $body);
            return $request;
        }
    }
    my $o = next_write($client);
    @$client{qw(status body)} = $client->{model}->write($o);
    push @{ $client->{keyed} }, $o
        if defined $o->{key} && $client->{body} !~ /Idempotency/;
    return request_of($o);
}

sub compare_rows {
    my (@models) = @_;
    my (%expected, %keys);
    for my $model (@models) {
        %expected = (%expected, %{ $model->rows });
        $keys{$_} = $model->{key}{$_}[1] for keys %{ $model->{key} };
    }
    my %stored = map { /^(\S+ \S+ \S+ \S+) (.*)$/ } $stack->query(<<'SQL');
SELECT concat_ws(' ', tenant, name, duration_seconds,
    extract(epoch FROM time_start)::bigint, added, subbed,
    coalesce(extract(epoch FROM expires_at)::bigint::text, '-'))
FROM meter.bucket_counter
SQL
    my @wrong;
    for my $place (sort keys %expected) {
        my $found = delete $stored{$place};
        next if !defined $found && !$expected{$place}{is_live};
        push @wrong, "$place: $expected{$place}{text}, stored: "
            . ($found // 'none')
            if ($found // '') ne $expected{$place}{text};
    }
    push @wrong, map {"$_: stored, nobody knows why"} sort keys %stored;
    is scalar @wrong, 0, scalar(keys %expected) . ' buckets are as they should'
        or diag join "\n", splice @wrong, 0, 5;
    my %kept = map { split /\t/ } $stack->query(<<'SQL');
SELECT tenant || ' ' || key, (ARRAY[200, 409, 400])[outcome + 1]
FROM meter.api_idempotency
SQL
    is_deeply \%kept, \%keys, scalar(keys %keys) . ' answers are kept';
    return;
}

# --- four clients share a bucket -----------------------------------------

# A state is "added subbed", or "none".
sub step {
    my ($state, $call) = @_;
    my $bucket;
    @{ $bucket->{now} }{qw(added subbed)} = split / /, $state
        if $state ne 'none';
    if ($call->{kind} eq 'get') {
        my $right = $bucket ? numbers($bucket->{now}) : $MISSING;
        return !defined $call->{body} || $call->{body} eq $right
            ? $state : undef;
    }
    my ($new, $error)
        = apply($bucket->{now}, $call->{kind}, $call->{amount});
    return undef
        if defined $call->{body}
        && $call->{body} ne ($error // numbers($new));
    return $error ? $state : "$new->{added} $new->{subbed}";
}

sub history {
    my ($name, $clients, $calls, @kinds) = @_;
    my @history;
    my @clients = map {
        my ($left, $call) = ($calls);
        {   port  => ($stack, $other)[$_ % 2]->port,
            token => $token{acme},
            next  => sub {
                return if $left-- == 0;
                my $kind = pick(@kinds);
                $call = { kind => $kind, amount => 1 + int rand 5 };
                return read_request('get', 'acme', $name,
                    durationSeconds => 0, timestamp => 0) if $kind eq 'get';
                return write_request(
                    $kind eq 'set' ? $kind : pick($kind, "${kind}Sync"),
                    'acme', $name, 0, stamp(0),
                    ($kind eq 'set' ? 'target' : 'amount')
                        => $call->{amount});
            },
            told => sub {
                my ($request, $answer) = @_;
                push @history, { %$call, %$answer{qw(began ended body)} };
            },
        }
    } 1 .. $clients;
    return (\@history, @clients);
}

sub told {
    return join "\n", map {
        sprintf '# %.6f %.6f %s %s: %s', @$_{qw(began ended kind)},
            $_->{amount} // '', $_->{body} // 'no answer'
    } sort { $a->{began} <=> $b->{began} } @{ $_[0] };
}

sub call {
    my ($began, $ended, $kind, $amount, $body) = @_;
    return { began => $began, ended => $ended, kind => $kind,
        amount => $amount, body => $body };
}

sub net { return numbers({ added => $_[0], subbed => $_[1] }) }

subtest 'what is an order, and what is none' => sub {
    my $try = sub { return is_linear([@_], 'none', \&step) };
    ok $try->(call(1, 2, 'increment', 5, net(5, 0)),
        call(3, 4, 'get', undef, net(5, 0))), 'one after the other';
    ok !$try->(call(1, 2, 'increment', 5, net(5, 0)),
        call(3, 4, 'get', undef, $MISSING)), 'an answer before it is there';
    ok $try->(call(1, 4, 'increment', 5, net(5, 0)),
        call(2, 3, 'get', undef, $MISSING)), 'unless both are on their way';
    ok !$try->(call(1, 4, 'increment', 5, net(5, 0)),
        call(1, 4, 'increment', 5, net(5, 0))), 'a lost update';
    ok $try->(call(1, 4, 'increment', 5, net(5, 0)),
        call(1, 4, 'increment', 5, net(10, 0))), 'none is lost';
    ok !$try->(call(1, 2, 'increment', 3, net(3, 0)),
        call(3, 4, 'decrement', 3, net(3, 3)),
        call(5, 6, 'get', undef, net(3, 0))), 'a read of old';
    my @set = (call(1, 2, 'increment', 3, net(3, 0)),
        call(3, 6, 'set', 9, net(9, 0)), call(4, 7, 'increment', 1, net(4, 0)));
    ok $try->(@set, call(8, 9, 'get', undef, net(9, 0))), 'a set';
    ok !$try->(@set, call(8, 9, 'get', undef, net(10, 0))),
        'a set by a difference that was not one any more';
    ok !$try->(call(1, 2, 'increment', 3, net(3, 0)),
        call(3, 4, 'decrement', 2, $NEGATIVE)), 'refused for no reason';
    ok $try->(call(1, undef, 'increment', 3, undef),
        call(5, 6, 'get', undef, net(3, 0))), 'without an answer: it has been';
    ok $try->(call(1, undef, 'increment', 3, undef),
        call(5, 6, 'get', undef, $MISSING)), 'or not';
};

subtest 'four clients share a bucket' => sub {
    my (@histories, $overlaps);
    for (my $round = 0; $round < $rounds; $round += 5) {
        my @clients;
        for my $n ($round .. $round + 4) {
            my ($history, @some) = history("round$n", 4, 4,
                qw(increment increment decrement set get));
            push @histories, $history;
            push @clients,   @some;
        }
        run_clients(@clients);
    }
    my @wrong = grep { !is_linear($_, 'none', \&step) } @histories;
    is scalar @wrong, 0, scalar(@histories) . ' histories have an order'
        or diag told($wrong[0]);
    for my $history (@histories) {
        my @order = sort { $a->{began} <=> $b->{began} } @$history;
        $overlaps += grep { $order[$_]{began} < $order[$_ - 1]{ended} }
            1 .. $#order;
    }
    cmp_ok $overlaps / @histories, '>', 4,
        sprintf '%.1f of 15 were on their way together', $overlaps / @histories;

    # The same answers, one of them changed: no order any more.
    my ($caught, $tried) = (0, 0);
    for my $history (@histories) {
        my @wrong = map { {%$_} } @$history;
        my ($one) = grep { $_->{body} =~ /"net"/ } @wrong or next;
        $one->{body} =~ s/"subbed":"(\d+)"/'"subbed":"' . ($1 + 1) . '"'/e;
        $tried++;
        $caught++ if !is_linear(\@wrong, 'none', \&step);
    }
    is $caught, $tried, "$caught wrong histories have none";
};

# --- sixty-four -----------------------------------------------------------

# Every change moves added or subbed, and neither ever goes back: answers tell
# their own order. Sets that change nothing stand where their answer does.
subtest 'sets and increments of sixty-four clients' => sub {
    my ($history, @clients) = history('crowd', 64, 12,
        qw(increment increment set decrement));
    run_clients(@clients);
    my @wrong = grep { $_->{body} !~ /"net"/ && $_->{body} ne $NEGATIVE }
        @$history;
    is scalar @wrong, 0, 'every answer is a value, or a refusal'
        or diag told(\@wrong);

    my @done;
    for (grep { $_->{body} =~ /"net"/ } @$history) {
        my ($added, $subbed) = $_->{body} =~ /"added":"(\d+)","subbed":"(\d+)"/;
        push @done, { %$_, added => $added, subbed => $subbed,
            place => $added + $subbed };
    }
    my ($state, $latest, $place) = ('none', 0, 0);
    my (@broken, @early);
    for my $call (sort { $a->{place} <=> $b->{place}
            || changes($b) <=> changes($a) } @done) {
        my $next = step($state, $call);
        push @broken, $call if !defined $next;
        push @early,  $call
            if $call->{ended} < $latest && $call->{place} > $place;
        $state  = "$call->{added} $call->{subbed}";
        $place  = $call->{place};
        $latest = $call->{began} if $call->{began} > $latest;
    }
    is scalar @broken, 0, scalar(@done) . ' answers follow from each other'
        or diag told(\@broken);
    is scalar @early, 0, 'and none from one that came later'
        or diag told(\@early);
    is $stack->query("SELECT added || ' ' || subbed FROM meter.bucket_counter"
            . " WHERE name = 'crowd'"), $state, 'the last one is what is stored';
};

# A set to what it was already comes behind the one that made it so.
sub changes { return $_[0]{kind} eq 'set' ? 0 : 1 }

done_testing;
