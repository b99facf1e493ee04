#!/usr/bin/perl

# 106-counters-limits.t - the counters API at its limits: a quota under many
# clients at once, numbers around 0, 2^53 and 2^63, increments that share a
# transaction, what one of those costs, tokens that are revoked, and what the
# metrics and logs say about it all.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Math::BigInt;
use Test::More;
use Edgemeter::Counters;
use Edgemeter::SocketClient;
use Edgemeter::SqlSession;
use Edgemeter::Stack;
use Edgemeter::Wait qw(now wait_until);

use constant MAX => '9223372036854775807';

my $NEGATIVE = '409 {"error":"Operation failed due to constraint violation'
    . ' (e.g., counter cannot be negative)"}';
my $OVERFLOW = '400 {"error":"Operation resulted in an overflow (exceeded'
    . ' BIGINT capacity)"}';

my $stack    = Edgemeter::Stack->for_test(
    yaml => { limits => '{ tokenCacheTtl: 1s }', log => '{ level: debug }' },
)->start;
my $counters = Edgemeter::Counters->new($stack->http('acme'), 'acme');

sub told { return $counters->told(@_) }

sub numbers {
    return sprintf '200 {"net":"%s","added":"%s","subbed":"%s"}', @_;
}

sub received {
    my ($client) = @_;
    my $got = $client->receive;
    return "$got->{status} $got->{body}";
}

# --- a limit ------------------------------------------------------------

# So many of these, on 200 connections at once; answers as one text each.
sub crowd {
    my ($count, $name, @verbs) = @_;
    my @bytes = map {
        Edgemeter::SocketClient::encode(
            method => 'POST', path => $counters->path($_, $name),
            type => 'application/json', token => $stack->token('acme'),
            body => Edgemeter::Counters::body_of())
    } @verbs;
    my @clients = map { Edgemeter::SocketClient->new($stack->socket) // die }
        1 .. 200;
    $clients[$_ % @clients]->send($bytes[$_ % @bytes]) for 0 .. $count - 1;
    return map { received($clients[$_ % @clients]) } 0 .. $count - 1;
}

# No look first and decision then: the operation itself decides.
subtest 'a thousand at once against a quota of a hundred' => sub {
    for my $verbs (['decrement'], ['decrementSync'],
        ['decrement', 'decrementSync'])
    {
        my $name = join '-', 'quota', @$verbs;
        is told('set', $name, targetValue => '100'), numbers(100, 100, 0),
            "@$verbs: the quota";
        my %count;
        $count{$_}++ for crowd(1000, $name, @$verbs);
        is delete $count{$NEGATIVE}, 900, 'nine hundred are refused';
        is_deeply \%count, { map { numbers(100 - $_, 100, $_) => 1 } 1 .. 100 },
            'a hundred pass, each with a place of its own';
        is told('get', $name), numbers(0, 100, 100), 'nothing is left';
    }
    for my $verb (qw(increment incrementSync)) {
        my %count;
        $count{$_}++ for crowd(1000, "rate-$verb", $verb);
        is_deeply \%count, { map { numbers($_, $_, 0) => 1 } 1 .. 1000 },
            "$verb: who has a number up to the limit is known from its answer";
    }
};

# --- numbers ------------------------------------------------------------

sub big { return Math::BigInt->new($_[0]) }

# What an operation on this state says: one that knows no 64 bits.
sub expected {
    my ($verb, $added, $subbed, $value) = @_;
    ($added, $subbed, $value) = map { big($_) } $added, $subbed, $value;
    my $net = $added - $subbed;
    my $up  = $verb =~ /^inc/ ? $value : $verb eq 'set' ? $value - $net : 0;
    my $down = $verb =~ /^dec/ ? $value : $verb eq 'set' ? $net - $value : 0;
    $added  += $up   if $up > 0;
    $subbed += $down if $down > 0;
    return $NEGATIVE if $added < $subbed;
    return $OVERFLOW if $added > MAX || $subbed > MAX;
    return numbers($added - $subbed, $added, $subbed);
}

# added and subbed, then what is asked for.
subtest 'around 0, 2^53 and 2^63' => sub {
    my @states = (
        [0, 0], [1, 0], ['9007199254740993', 1], [MAX, 0], [MAX, MAX],
        ['9223372036854775806', 0],
        ['9223372036854775806', '9223372036854775806'],
    );
    my @values
        = (1, 2, '9007199254740993', '9223372036854775806', MAX);
    my (@wrong, $n);
    for my $state (@states) {
        for my $verb (qw(increment decrement incrementSync decrementSync set))
        {
            for my $value ($verb eq 'set' ? 0 : (), @values) {
                my $name = 'edge' . $n++;
                told('set', $name, targetValue => $state->[0]);
                told('decrement', $name, amount => \"$state->[1]")
                    if $state->[1];
                my $told = told($verb, $name,
                    ($verb eq 'set' ? 'targetValue' : 'amount') => \"$value");
                my $right = expected($verb, @$state, $value);
                push @wrong, "@$state $verb $value: $told, not $right"
                    if $told ne $right;
                my $left = $right =~ /^200/ ? $right
                    : numbers(big($state->[0]) - $state->[1], @$state);
                $told = told('get', $name);
                push @wrong, "@$state $verb $value: left $told, not $left"
                    if $told ne $left;
            }
        }
    }
    is_deeply \@wrong, [], "$n operations, and what they leave";
};

# --- increments in one transaction --------------------------------------

# What is sent while the first one waits is one batch.
sub batch {
    my ($name, @asked) = @_;
    $counters->send('increment', $name);
    my $locker  = $counters->lock_bucket($stack, $name);
    my @clients = $counters->start($stack, 'increment', $name);
    $counters->wait_blocked($stack);
    push @clients, map {
        my ($which, $amount, %more) = @$_;
        $counters->start($stack, 'increment', $which, amount => \"$amount",
            %more);
    } @asked;
    $counters->unlock($stack, $locker);
    my ($first, @told) = map { received($_) } @clients;
    is $first, numbers(2, 2, 0), "$name: the one that waited";
    return @told;
}

subtest 'increments alone: each has the value right after it' => sub {
    $counters->send('increment', 'there', amount => 10);
    my @told = batch('alone', ['there', 1], ['new', 5], ['there', 2],
        ['alone', 3], ['new', 7], ['there', 4]);
    is_deeply \@told, [numbers(11, 11, 0), numbers(5, 5, 0),
        numbers(13, 13, 0), numbers(5, 5, 0), numbers(12, 12, 0),
        numbers(17, 17, 0)], 'of buckets that are there, and of a new one';
};

subtest 'increments alone: an overflow fails alone' => sub {
    $counters->send('set', 'full', targetValue => '9223372036854775800');
    my @told = batch('over', ['full', 5], ['full', 3], ['full', 2],
        ['full', 1], ['over', 1]);
    is_deeply \@told, [numbers(('9223372036854775805') x 2, 0), $OVERFLOW,
        numbers((MAX) x 2, 0), $OVERFLOW, numbers(3, 3, 0)],
        'though others behind it fit';
    @told = batch('sum', ['huge', MAX], ['huge', MAX], ['sum', 1]);
    is_deeply \@told, [numbers((MAX) x 2, 0), $OVERFLOW, numbers(3, 3, 0)],
        'nor is their sum too large for all';
    is told('get', 'huge'), numbers((MAX) x 2, 0), 'what was answered';
};

subtest 'increments alone: buckets that have expired begin anew' => sub {
    $counters->send('increment', 'old', amount => 50,
        expiresAt => '2020-01-01T00:00:00Z');
    $counters->send('increment', 'young', amount => 50,
        expiresAt => '2100-01-01T00:00:00Z');
    my @told = batch('anew', ['old', 1], ['young', 1], ['old', 2],
        ['young', 2]);
    is_deeply \@told, [numbers(1, 1, 0), numbers(51, 51, 0),
        numbers(3, 3, 0), numbers(53, 53, 0)], 'and others go on';
    is told('get', 'old'), numbers(3, 3, 0), 'it stays';
    is $stack->query("SELECT string_agg(coalesce(expires_at::text, 'never'),"
            . " ' ' ORDER BY name) FROM meter.bucket_counter"
            . " WHERE name IN ('old', 'young')"),
        'never 2100-01-01 00:00:00+00',
        'an end that has come is no end any more';
};

# --- what it costs ------------------------------------------------------

# Writes of rows are counted by a sequence, which does not go back with a
# transaction.
subtest 'many operations on a bucket are one write of its row' => sub {
    $stack->query(<<'SQL');
CREATE SEQUENCE public.writes;
CREATE FUNCTION public.note() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER AS
    $$BEGIN PERFORM nextval('public.writes'); RETURN NULL; END$$;
CREATE TRIGGER note AFTER INSERT OR UPDATE ON meter.bucket_counter
    FOR EACH ROW EXECUTE FUNCTION public.note();
SQL
    my $writes = sub { $stack->query('SELECT last_value FROM public.writes') };
    my %row = (increment => ['increment'], mixed => ['increment', 'decrement']);
    for my $what (sort keys %row) {
        my @verbs = @{ $row{$what} };
        $counters->send('increment', "row-$what", amount => 100);
        my $locker  = $counters->lock_bucket($stack, "row-$what");
        my $before  = $writes->();
        my @clients = $counters->start($stack, $verbs[0], "row-$what");
        $counters->wait_blocked($stack);
        push @clients, map {
            $counters->start($stack, $verbs[$_ % @verbs], "row-$what")
        } 1 .. 30;
        $counters->unlock($stack, $locker);
        my @status = map { $_->receive->{status} } @clients;
        is "@status", join(' ', (200) x 31), "$what: 31 are applied";
        is $writes->() - $before, 2, "$what: the first one, and all others";
    }
    $stack->query('DROP FUNCTION public.note CASCADE');
};

subtest 'sumRange: one partition, by its key, summed in the database' => sub {
    $stack->query("INSERT INTO meter.bucket_counter SELECT 'acme', 'long',"
        . " 60, to_timestamp(60 * i), 1, 0, NULL FROM generate_series(1, 20000)"
        . " AS i; ANALYZE meter.bucket_counter");
    is told('sumRange', 'long', durationSeconds => 60, startTime => 60,
        endTime => 60 * 20_000), numbers(20_000, 20_000, 0), 'twenty thousand';
    my $reader = Edgemeter::SqlSession->new($stack, 'reader',
        sum => 'bucket_sum');
    my $plan = $reader->ask("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) EXECUTE"
        . " sum('acme', 'long', 60, '1970-01-02Z', '1970-01-02 01:00Z');");
    my @scans = $plan =~ /(Scan (?:using|on) .*\(actual.*)/g;
    is scalar @scans, 1, 'one partition is looked at' or diag $plan;
    like $plan, qr/Index Cond: .*time_start/, 'by the range';
    like $plan, qr/Scan.*rows=61 /, 'nothing but it is read';
    unlike $plan, qr/Rows Removed/, 'and nothing thrown away';
    $reader->end;
};

# --- what is said -------------------------------------------------------

subtest 'metrics: refusals, depth, times of batched and sync' => sub {
    my @names = qw(negative_total overflow_total key_taken_total
        repeated_total operations_total batched_seconds_count
        sync_seconds_count batches_total batch_operations_total);
    my $all = sub {
        map { $_ => $counters->metric("edgemeter_bucket_$_") } @names;
    };
    my %before = $all->();
    my $keyed  = { header => { 'idempotency-key' => 'metrics' } };
    told('increment', 'metered', amount => 3, %$keyed);
    told('increment', 'metered', amount => 3, %$keyed);
    told('increment', 'metered', amount => 4, %$keyed);
    told('decrement', 'metered', amount => 4);
    told('decrementSync', 'metered', amount => 4);
    told('incrementSync', 'metered', amount => \MAX);
    told('set', 'metered', targetValue => 9);
    my %after = $all->();
    my %more  = map { $_ => $after{$_} - $before{$_} } @names;
    is_deeply \%more, {
        negative_total => 2, overflow_total => 1, key_taken_total => 1,
        repeated_total => 1, operations_total => 2,
        batched_seconds_count => 4, sync_seconds_count => 3,
        batches_total => 7, batch_operations_total => 7,
    }, 'each is counted where it belongs';
    is $counters->metric('edgemeter_bucket_queue_operations'), 0,
        'nothing waits';
};

# --- tokens -------------------------------------------------------------

my $made;

subtest 'a token that is revoked is refused within its time' => sub {
    my (undef, $out) = $stack->meterd_command('token', 'create',
        $stack->config_arguments, '--tenant', 'acme', '--scopes', 'read,write');
    ($made) = $out =~ /\b(em_\w+_[\w-]+)/;
    my ($id) = $made =~ /^em_([^_]+)_/;
    my $as = Edgemeter::Counters->new($counters->http->as($made), 'acme');
    like $as->told('increment', 'revoked'), qr/^200 /, 'it is good';
    is(($stack->meterd_command('token', 'revoke', $id,
        $stack->config_arguments))[0], 0, 'revoked');
    my $begun = now();
    wait_until { $as->send('increment', 'revoked')->{status} == 401 } 10,
        'refused';
    cmp_ok now() - $begun, '<', 5, 'soon';
    is $as->send($_, 'revoked')->{status}, 401, "$_: 401"
        for qw(decrement incrementSync decrementSync set get sumRange);
};

subtest 'no log has a token' => sub {
    for my $log (qw(meterd postgres nginx-error nginx-access)) {
        my $text = $stack->log($log);
        for my $token ($made, map { $stack->token($_) } qw(acme globex)) {
            my ($secret) = $token =~ /^em_[^_]+_(.+)$/;
            ok index($text, $secret) < 0, "$log: not in it";
        }
    }
};

$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
done_testing;
