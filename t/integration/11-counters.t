#!/usr/bin/perl

# 11-counters.t - persistent dimension counters: what events do to them and
# how they are asked for.

use strict;
use warnings;
use utf8;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use POSIX ();
use Test::More;
use Edgemeter::Stack;

binmode Test::More->builder->$_, ":utf8"
    for qw(output failure_output todo_output);

my $stack = Edgemeter::Stack->for_test(rules => \<<'YAML')->start;
events:
  - { type: account.connected }
  - { type: account.disconnected }
  - { type: api.request }
counters:
  - counterName: active_connections
    mode: persistent
    dimensions: [masterAccountId]
    floorAtZero: true
    rules:
      - { on: account.connected, op: increment }
      - { on: account.disconnected, op: decrement }
    idempotency: { requireEventId: true, scope: globalEventId }
  - counterName: net_connections
    mode: persistent
    dimensions: [masterAccountId]
    floorAtZero: false
    rules:
      - { on: account.connected, op: increment }
      - { on: account.disconnected, op: decrement }
    idempotency: { requireEventId: true, scope: globalEventId }
  - counterName: connects_total
    mode: persistent
    dimensions: [masterAccountId]
    floorAtZero: false
    rules: [ { on: account.connected, op: increment } ]
    idempotency: { requireEventId: true, scope: globalEventId }
  - counterName: by_route
    mode: persistent
    dimensions: [status, route, resource.region]
    rules: [ { on: api.request, op: increment } ]
    idempotency: { requireEventId: true, scope: globalEventId }
  - counterName: everything
    mode: persistent
    dimensions: []
    rules: [ { on: api.request, op: increment } ]
    idempotency: { requireEventId: true, scope: globalEventId }
YAML
my $http = $stack->http('acme');

sub send_event {
    my ($id, $type, $attributes) = @_;
    my $got = $http->post('/v1/events', {
        event_id => $id, type => $type, ts => '2026-09-01T12:00:00Z',
        attributes => $attributes
    });
    return $got->{json}{results}[0]{verdict};
}

sub connected {
    my ($id, $account) = @_;
    return send_event($id, 'account.connected',
        { masterAccountId => $account });
}

sub disconnected {
    my ($id, $account) = @_;
    return send_event($id, 'account.disconnected',
        { masterAccountId => $account });
}

sub value {
    my ($counter, %dimensions) = @_;
    my $got = $http->get("/v1/counters/$counter", %dimensions);
    return $got->{status} == 200 ? $got->{json}{value} : $got->{status};
}

subtest 'single connect, disconnect, duplicate delivery' => sub {
    is value('active_connections', masterAccountId => 'M'), 404,
        'a key nobody touched is no zero';
    is connected('E1', 'M'), 'accepted', 'connect';
    is value('active_connections', masterAccountId => 'M'), '1', 'active 1';
    is value('connects_total', masterAccountId => 'M'), '1', 'total 1';

    is disconnected('E2', 'M'), 'accepted', 'disconnect';
    is value('active_connections', masterAccountId => 'M'), '0', 'active 0';
    is value('connects_total', masterAccountId => 'M'), '1', 'total stays';

    is connected('E1', 'M'), 'duplicate', 'the connect once more';
    is value('active_connections', masterAccountId => 'M'), '0', 'no effect';
    is value('connects_total', masterAccountId => 'M'), '1', 'on either';
};

subtest 'the answer' => sub {
    my $got = $http->get('/v1/counters/connects_total',
        masterAccountId => 'M');
    like delete $got->{json}{updated_at}, qr/^20\d\d-.*Z$/, 'updated_at';
    is_deeply $got->{json},
        {   counter    => 'connects_total',
            dimensions => { masterAccountId => 'M' },
            value      => '1'
        },
        'counter, dimensions, value as text';
};

subtest 'out of order' => sub {
    disconnected('O1', 'O');
    is value('active_connections', masterAccountId => 'O'), '0',
        'clamped at zero';
    is value('net_connections', masterAccountId => 'O'), '-1',
        'the raw one is below';
    connected('O2', 'O');
    is value('active_connections', masterAccountId => 'O'), '1', 'then 1';
    is value('net_connections', masterAccountId => 'O'), '0', 'then 0';
};

subtest 'order within a batch counts under the clamp' => sub {
    my $n = 0;
    my $batch = sub {
        my ($account, $steps) = @_;
        return map {
            {   event_id => "C" . $n++,
                type => $_ eq '+' ? 'account.connected'
                                  : 'account.disconnected',
                ts => '2026-09-01T12:00:00Z',
                attributes => { masterAccountId => $account }
            }
        } split //, $steps;
    };
    my %expect = ('+--+' => 1, '--++' => 2, '++--' => 0, '-+-+-' => 0,
        '---+' => 1, '+-+-++' => 2);
    my @all = map { $batch->("clamp$_", $_) } sort keys %expect;
    is $http->post('/v1/events', \@all)->{json}{accepted}, scalar @all,
        'all in one request';
    for my $steps (sort keys %expect) {
        is value('active_connections', masterAccountId => "clamp$steps"),
            $expect{$steps}, $steps;
    }
};

subtest 'concurrent connects' => sub {
    my @children;
    for my $child (1 .. 8) {
        my $pid = fork // die "fork: $!";
        if ($pid == 0) {
            my $own = $stack->http('acme');
            my $bad = 0;
            for my $i (1 .. 50) {

                # Every id is sent by two of the children.
                my $id = sprintf 'P%d-%d', int(($child - 1) / 2), $i;
                my $got = $own->post('/v1/events', {
                    event_id => $id, type => 'account.connected',
                    ts => '2026-09-01T12:00:00Z',
                    attributes => { masterAccountId => 'P' }
                });
                $bad++ if $got->{status} != 200;
            }
            POSIX::_exit($bad ? 1 : 0);
        }
        push @children, $pid;
    }
    for my $pid (@children) {
        waitpid $pid, 0;
        is $?, 0, 'every request was answered 200';
    }
    is value('active_connections', masterAccountId => 'P'), '200',
        'each id counted once';
    is value('connects_total', masterAccountId => 'P'), '200', 'everywhere';
};

subtest 'typed dimensions' => sub {
    my $n = 0;
    my $request = sub {
        my (%attributes) = @_;
        return send_event('T' . $n++, 'api.request', \%attributes);
    };
    $request->(route => '/a b', status => 200,
        resource => { region => 'eu' });
    $request->(route => '/a b', status => 200,
        'resource.region' => 'eu');
    is value('by_route', route => '/a b', status => 200,
        'resource.region' => 'eu'), '2', 'number, text with blank, path';
    is value('by_route', route => '/a b', status => '2e2',
        'resource.region' => '"eu"'), '2', 'another spelling of the number';
    is value('by_route', route => '/a b', status => '"200"',
        'resource.region' => 'eu'), 404, 'the text "200" never came';

    $request->(route => '/a b', status => '200',
        resource => { region => 'eu' });
    my $got = $http->get('/v1/counters/by_route', route => '/a b',
        status => 200, 'resource.region' => 'eu');
    is $got->{status}, 400, 'text and number exist: 400';
    like $got->{json}{error}, qr/quotes/, 'asks for quotes';
    is value('by_route', route => '/a b', status => '"200"',
        'resource.region' => 'eu'), '1', 'in quotes: the text';
    is value('by_route', route => '/a b', status => '200.0',
        'resource.region' => 'eu'), '2', 'spelled otherwise: the number';

    $request->(route => 'x', status => undef);
    $request->(route => 'x');
    is value('by_route', route => 'x', status => '',
        'resource.region' => ''), '2', 'empty: null and absent are one';
    is value('by_route', route => 'x', status => 'null',
        'resource.region' => 'null'), '2', 'null finds it too';

    $request->(route => 'x', status => JSON::PP::true);
    is value('by_route', route => 'x', status => 'true',
        'resource.region' => ''), '1', 'a boolean';
    $request->(route => '', status => 'ö');
    is value('by_route', route => '""', status => 'ö',
        'resource.region' => ''), '1', 'the empty text, and UTF-8';
    is value('everything'), $n, 'no dimensions: one value';
};

subtest 'questions that cannot be answered' => sub {
    my $error = sub {
        my ($path) = @_;
        my $got = $http->get("/v1/counters/$path");
        return "$got->{status} $got->{json}{error}";
    };
    is $error->('none'), '404 no such counter', 'unknown counter';
    is $error->('connects_total?masterAccountId=M&x%22y=1'),
        '400 the counter has no dimension "x\\"y"', 'an unknown one is named';
    like $error->('connects_total?masterAccountId=M&masterAccountId=N'),
        qr/^400 .*twice/, 'twice';
    like $error->('connects_total?masterAccountId=%zz'), qr/^400/, 'escape';
    is $error->('connects_total?masterAccountId=never'), '404 no such key',
        'a key nobody touched';
    my $other = $stack->http('globex')
        ->get('/v1/counters/connects_total', masterAccountId => 'M');
    is "$other->{status} $other->{json}{error}", '404 no such key',
        "another tenant's key";
};

$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
done_testing;
