#!/usr/bin/perl

# 106-counters-unhealthy.t - the counters API of a meterd that cannot serve:
# its database is away, a standby, without its lane, not migrated, or of a
# newer schema. All seven endpoints say so, healthz and readyz too, and none
# has done anything.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::Counters;
use Edgemeter::Node;
use Edgemeter::SqlSession;
use Edgemeter::Stack;
use Edgemeter::Wait qw(now wait_until);

my @WRITES = qw(increment decrement incrementSync decrementSync set);
my @ALL    = (@WRITES, qw(get sumRange));
my $AWAY   = '503 {"error":"the database is away"} 1';
my $NONE
    = q(404 {"error":"Counter doesn't exist for the specified bucket"} -);

my $stack   = Edgemeter::Stack->for_test->start;
my $cluster = $stack->cluster;
my $http    = $stack->http('acme');
my $acme    = Edgemeter::Counters->new($http, 'acme');
my $globex  = Edgemeter::Counters->new($http, 'globex');
is $acme->send('increment', 'hits', amount => 5)->{status}, 200, 'a counter';

# --- asking a node ------------------------------------------------------

# Status, body and Retry-After of a counter's endpoint.
sub ask {
    my ($node, $counters, $verb, %more) = @_;
    my ($path, $args) = split /\?/,
        $verb =~ /^(?:get|sumRange)$/ ? $counters->read_path($verb, 'hits')
        : $counters->path($verb, 'hits');
    my $got = $node->ask(
        method => Edgemeter::Counters::method_of($verb),
        path   => $path,
        args   => $args,
        token  => $stack->token('acme'),
        defined $args ? () : (type => 'application/json',
            body => Edgemeter::Counters::body_of(
                $verb eq 'set' ? (targetValue => 1) : ())),
        %more,
    );
    return "$got->{status} " . ($got->{body} // '') . ' '
        . ($got->{retry} // '-');
}

# All seven at once, without waiting for anything.
sub away_ok {
    my ($node, $what) = @_;
    my $begun = now();
    is ask($node, $acme, $_), $AWAY, "$what: $_: 503" for @ALL;
    cmp_ok now() - $begun, '<', 5, 'at once';
    return;
}

sub health_ok {
    my ($node, $what, $healthz, $readyz) = @_;
    my %body = (
        '/healthz 200' => '{"status":"ok"}',
        '/healthz 503' =>
            '{"error":"starting: the database has not been reached yet"}',
        '/readyz 200' => '{"status":"ready"}',
        '/readyz 503' => '{"error":"events cannot be committed now"}',
    );
    for (['/healthz', $healthz], ['/readyz', $readyz]) {
        my ($path, $status) = @$_;
        my $got = {};
        wait_until {
            $got = $node->ask(path => $path);
            $got->{status} == $status
        } 20, "$what: $path is $status";
        is $got->{body}, $body{"$path $status"}, "$what: $path is $status";
        is $got->{retry}, $status == 503 ? 1 : undef, 'Retry-After';
    }
    is $node->ask(path => '/metrics')->{status}, 200, 'metrics are there';
    return;
}

sub serves_ok {
    my ($node, $what) = @_;
    $node->wait_ready;
    health_ok($node, $what, 200, 200);
    my %status = map { $_ => substr ask($node, $acme, $_), 0, 3 } @ALL;
    is_deeply \%status, { map { $_ => 200 } @ALL }, "$what: all serve";
    return;
}

sub listens {
    my ($node) = @_;
    wait_until { $node->client } 20, 'it listens';
    return $node;
}

sub stop_ok {
    my ($node) = @_;
    ok $node->process->stop('TERM', 15), 'it ends';
    is $node->process->status, 0, 'well';
    return;
}

sub total {
    return $stack->query('SELECT sum(added) FROM meter.bucket_counter');
}

# --- states -------------------------------------------------------------

# A token can be looked up, and so everything else about a request comes first.
subtest 'the lane has not been ready yet' => sub {
    my $holder = Edgemeter::SqlSession->new($stack, 'holder');
    $holder->ask('RESET ROLE; BEGIN; LOCK TABLE meter.writer;');
    my $node = listens(Edgemeter::Node->start($stack, name => 'lane'));
    wait_until { ask($node, $globex, 'get') eq $NONE } 20,
        'tokens are looked up';
    health_ok($node, 'no lane', 503, 503);
    away_ok($node, 'no lane');
    is ask($node, $globex, $_), $NONE, "another tenant's: $_: 404" for @ALL;
    like ask($node, $acme, $_, body => '{'), qr/^400 /, "bad: $_: 400"
        for @WRITES;
    like ask($node, $acme, $_, args => 'x=1'), qr/^400 /, "bad: $_: 400"
        for qw(get sumRange);
    like ask($node, $acme, $_, token => 'nonsense'), qr/^401 /,
        "no token: $_: 401"
        for @ALL;
    is total(), 5, 'nothing was applied';
    $holder->ask('COMMIT;');
    serves_ok($node, 'ready');
    stop_ok($node);
    $holder->end;
};

subtest 'the server is a standby' => sub {
    my $before = total();
    $stack->stop_part('meterd');
    $cluster->stop('fast');
    my $signal = "$cluster->{data}/standby.signal";
    open my $file, '>', $signal or die "$signal: $!\n";
    close $file;
    $stack->account->own($signal);
    $cluster->start;
    is $stack->query('SELECT pg_is_in_recovery()'), 't', 'it is one';
    my $node = listens(Edgemeter::Node->start($stack, name => 'standby'));
    wait_until { $node->log =~ /the server is a standby in recovery/ } 20,
        'the log says why';
    health_ok($node, 'standby', 503, 503);
    away_ok($node, 'standby');
    like ask($node, $acme, 'get', token => undef), qr/^401 /,
        'without a token: 401';
    is total(), $before, 'nothing was applied';
    $stack->query('SELECT pg_promote()');
    serves_ok($node, 'promoted');
    stop_ok($node);
};

subtest 'the database is away' => sub {
    my $before = total();
    $cluster->stop('fast');
    my $node = listens(Edgemeter::Node->start($stack, name => 'away'));
    health_ok($node, 'away', 503, 503);
    away_ok($node, 'away');
    $stack->start_part('postgres');
    is total(), $before, 'nothing was applied';
    serves_ok($node, 'back');

    # From now on it is alive, though not ready.
    $cluster->stop('fast');
    health_ok($node, 'away again', 200, 503);
    is ask($node, $acme, $_), $AWAY, "away again: $_: 503" for qw(get sumRange);
    $stack->start_part('postgres');
    serves_ok($node, 'back again');
    stop_ok($node);
};

# meterd does not run on such a schema; nginx answers for it.
subtest 'a schema that does not fit' => sub {
    my %schema = (
        'a newer schema' => [
            "INSERT INTO meter.schema_migration VALUES (9999, 'later', '',"
                . ' now())',
            'DELETE FROM meter.schema_migration WHERE number = 9999',
            qr/use the newer meterd/,
        ],
        'not migrated' => [
            'ALTER TABLE meter.schema_migration RENAME TO hidden',
            'ALTER TABLE meter.hidden RENAME TO schema_migration',
            qr/run `meterd migrate`/,
        ],
    );
    for my $what (sort keys %schema) {
        my ($break, $mend, $reason) = @{ $schema{$what} };
        my $before = total();
        $stack->stop_part('meterd');
        $stack->query($break);
        $stack->start_part('meterd');
        wait_until { !$stack->alive('meterd') } 20, "$what: it ends";
        is $stack->part('meterd')->status, 1 << 8, "$what: with status 1";
        like((grep {/refused to run/} split /\n/, $stack->log('meterd'))[-1],
            $reason, 'the log says what to do');
        for my $verb (@ALL) {
            my $got = $acme->send($verb, 'hits',
                $verb eq 'set' ? (targetValue => 1) : ());
            is "$got->{status} $got->{headers}{'retry-after'} $got->{body}",
                qq(503 1 {"error":"the aggregator is away, try again"}\n),
                "$what: $verb: 503";
        }
        is $http->get($_)->{status}, 503, "$what: $_ is 503"
            for qw(/healthz /readyz);
        $stack->query($mend);
        $stack->start_part('meterd');
        $stack->wait_healthy;
        is total(), $before, 'nothing was applied';
        is $acme->send('get', 'hits')->{status}, 200, 'it serves again';
    }
};

$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
done_testing;
