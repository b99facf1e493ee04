#!/usr/bin/perl

# 37-isolation.t - many tenants on few shared connections, with errors in
# between: nobody ever gets a foreign row, and what belongs to another
# tenant looks exactly like what does not exist.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use POSIX ();
use Test::More;
use Time::HiRes ();
use Edgemeter::SocketClient;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

my $reads   = $ENV{ISOLATION_READS} || 3000;
my @tenants = map {"tenant-$_"} 0 .. 7;
my $stack   = Edgemeter::Stack->for_test(
    tenants => [@tenants],
    yaml    => { limits => '{ readConnections: 2, tokenCacheTtl: 1s }' },
)->start;
my %token = map { $_ => $stack->token($_) } @tenants;
my %http  = map { $_ => $stack->http($_) } @tenants;

sub event {
    my ($id, $tenant, $quantity) = @_;
    return {
        event_id => $id, type => 'api.request', quantity => $quantity,
        ts => '2026-09-01T12:00:00Z', customer => "of-$tenant",
        attributes => { route => '/shared', owner => $tenant }
    };
}

# Every tenant has the same ids with content of its own, and one of its own.
subtest 'the same ids in every tenant' => sub {
    for my $round (1 .. 2) {
        for my $n (0 .. $#tenants) {
            my $tenant = $tenants[$n];
            my $got = $http{$tenant}->post('/v1/events', [
                (map { event("shared-$_", $tenant, $n + 1) } 1 .. 20),
                event("own-$n", $tenant, 1)]);
            is $got->{json}{ $round == 1 ? 'accepted' : 'duplicates' }, 21,
                $round == 1 ? "$tenant: all are new"
                            : "$tenant: and known to itself";
            is $got->{json}{conflicts}, 0, 'no conflict with another tenant';
        }
    }
    is $stack->query("SELECT count(*) FROM meter.event"), 21 * @tenants,
        'one row each';
    is $stack->query("SELECT count(DISTINCT tenant) FROM"
        . " meter.duplicate_audit"), scalar @tenants, 'audits are apart too';
};

# --- random reads -------------------------------------------------------

# What a tenant must see: undef for nothing.
sub question {
    my $n      = int rand @tenants;
    my $tenant = $tenants[$n];
    my $kind   = int rand 4;
    if ($kind == 0) {
        my $id = 1 + int rand 20;
        return ($tenant, { path => "/v1/events/shared-$id" }, $n + 1);
    }
    if ($kind == 1) {
        my $other = int rand @tenants;
        return ($tenant, { path => "/v1/events/own-$other" },
            $other == $n ? 1 : undef);
    }
    if ($kind == 2) {
        return ($tenant, { path => '/v1/counters/api_requests',
            args => 'route=/shared' }, 21);
    }
    return ($tenant, { path => '/v1/events/never' }, undef);
}

sub judge {
    my ($tenant, $expect, $answer) = @_;
    my $body = $answer->{body} // '';
    for my $other (@tenants) {
        return "a row of $other" if $other ne $tenant && $body =~ /\Q$other\E/;
    }
    return 'error' if $answer->{status} =~ /^50[03]$/;
    if (!defined $expect) {
        return $answer->{status} == 404 ? 'right' : "status $answer->{status}";
    }
    return "status $answer->{status}" if $answer->{status} != 200;
    my $value = $answer->{json}{value} // $answer->{json}{quantity};
    return "$value, not $expect" if $value != $expect;
    return 'right';
}

sub upset {
    my ($turn) = @_;
    my $of = "usename = 'meterd' AND application_name LIKE 'meterd reader%'";
    my @ways = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE $of"
            . ' LIMIT 1',
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE $of",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE $of",

        # Reads fail inside their transaction, behind the set tenant.
        'ALTER TABLE meter.event RENAME TO away; SELECT pg_sleep(0.05);'
            . ' ALTER TABLE meter.away RENAME TO event',
        'BEGIN; REVOKE SELECT ON meter.counter FROM meter_reader; COMMIT;'
            . ' SELECT pg_sleep(0.05);'
            . ' GRANT SELECT ON meter.counter TO meter_reader',
    );
    $stack->query($ways[$turn % @ways]);
    return;
}

subtest 'random reads with errors in between' => sub {
    srand 4711;
    my @clients = map { Edgemeter::SocketClient->new($stack->socket) } 1 .. 8;
    my %seen;
    my $child = fork // die "fork: $!";
    if ($child == 0) {
        my $turn = 0;
        while (getppid() != 1) {
            eval { upset($turn++) };
            select undef, undef, undef, 0.03;
        }
        POSIX::_exit(0);
    }
    my $done = 0;
    while ($done < $reads) {
        my @asked;
        for my $client (@clients) {
            my ($tenant, $request, $expect) = question();
            $client->send(Edgemeter::SocketClient::encode(
                %$request, token => $token{$tenant}));
            push @asked, [$client, $tenant, $expect];
        }
        for my $asked (@asked) {
            my ($client, $tenant, $expect) = @$asked;
            my $answer = $client->receive // { status => 0 };
            $seen{ judge($tenant, $expect, $answer) }++;
            $done++;
        }
    }
    kill 'TERM', $child;
    waitpid $child, 0;
    $stack->query('ALTER TABLE IF EXISTS meter.away RENAME TO event');
    $stack->query('GRANT SELECT ON meter.counter TO meter_reader');

    my $right  = delete $seen{right} // 0;
    my $errors = delete $seen{error} // 0;
    is join(', ', map {"$seen{$_} x $_"} sort keys %seen), '',
        'no foreign row, no wrong value';
    cmp_ok $right, '>', $reads / 3, "$right right answers";
    cmp_ok $errors, '>', 5, "$errors reads met an error";
};

# --- foreign and unknown are the same -----------------------------------

subtest 'foreign looks like unknown' => sub {
    my $http = $http{'tenant-0'};
    wait_until { $http->get('/v1/events/own-0')->{status} == 200 } 10,
        'reads work';
    for my $tenant (@tenants[1, 2]) {
        is $http{$tenant}->post('/v1/usage/close',
            { metric => 'api_calls', period => '2025-01' })->{status}, 200,
            "$tenant has closed a period";
        is $http{$tenant}->get('/v1/usage/closes')->{json}{closes}[0]{closed_by},
            $stack->query("SELECT actor FROM meter.meter_close WHERE tenant"
                . " = '$tenant'"), 'and sees its own';
    }
    is $http->get('/v1/usage/closes')->{body}, '{"closes":[]}',
        'others do not';
    my @pairs = (
        ['/v1/events/own-1', '/v1/events/own-x'],
        ['/v1/counters/api_requests?route=/never',
            '/v1/counters/api_requests?route=/other'],
        ['/v1/usage/closes?metric=api_calls&period=2025-01',
            '/v1/usage/closes?metric=api_calls&period=2025-02'],
    );
    for my $pair (@pairs) {
        my ($foreign, $unknown) = map { $http->get($_) } @$pair;
        is $foreign->{status}, 404, "$pair->[0]: 404";
        is $foreign->{body}, $unknown->{body}, 'the same body';
        delete $_->{headers}{date} for $foreign, $unknown;
        is_deeply $foreign->{headers}, $unknown->{headers},
            'the same headers';
    }

    # The same work, so about the same time; medians of interleaved reads.
    my %took;
    for (1 .. 300) {
        for my $path (qw(own-1 own-x)) {
            my $begun = Time::HiRes::time();
            $http->get("/v1/events/$path");
            push @{ $took{$path} }, Time::HiRes::time() - $begun;
        }
    }
    my ($one, $two) = map {
        (sort { $a <=> $b } @{ $took{$_} })[150] * 1e6
    } qw(own-1 own-x);
    my $ratio = $one > $two ? $one / $two : $two / $one;
    cmp_ok $ratio, '<', 1.25,
        sprintf 'the same time (%d and %d microseconds)', $one, $two;
};

# Writing first does not take another tenant's id, nor tell of it.
subtest 'ids cannot be taken or probed' => sub {
    my ($one, $two) = @http{qw(tenant-1 tenant-2)};
    is $one->post('/v1/events', event('taken', 'tenant-1', 5))
        ->{json}{accepted}, 1, 'tenant-1 sends first';
    my $got = $two->post('/v1/events', event('taken', 'tenant-2', 9));
    is $got->{json}{accepted}, 1, 'tenant-2 is not refused';
    is $got->{body} =~ s/taken/fresh/r,
        $two->post('/v1/events', event('fresh', 'tenant-2', 9))->{body},
        'and cannot tell';
    is $two->get('/v1/events/taken')->{json}{quantity}, '9', 'it has its own';
    is $one->get('/v1/events/taken')->{json}{quantity}, '5', 'as the other';
};

$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
done_testing;
