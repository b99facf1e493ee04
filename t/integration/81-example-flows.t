#!/usr/bin/perl

# 81-example-flows.t - connections that open and close, as the manual tells
# it: single events, a repeated delivery, two at once, a disconnect before
# its connect; counted raw, clamped at zero and by valid transitions.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use JSON::PP ();
use POSIX ();
use Test::More;
use Edgemeter::Stack;
use Edgemeter::Verify qw(verify_projections);
use Edgemeter::Wait qw(wait_until);

my $rules = <<'YAML';
events:
  - { type: account.connected }
  - { type: account.disconnected }
  - { type: file.stored }
counters:
  - counterName: active_connections
    mode: persistent
    dimensions: [masterAccountId]
    floorAtZero: true
    rules:
      - on: account.connected
        op: increment
      - on: account.disconnected
        op: decrement
    idempotency:
      requireEventId: true
      scope: globalEventId
  - counterName: connects_total
    mode: persistent
    dimensions: [masterAccountId]
    floorAtZero: false
    rules:
      - on: account.connected
        op: increment
    idempotency:
      requireEventId: true
      scope: globalEventId
  - counterName: balance
    mode: persistent
    dimensions: [masterAccountId]
    floorAtZero: false
    audit: true
    rules:
      - { on: account.connected, op: increment }
      - { on: account.disconnected, op: decrement }
    idempotency: { requireEventId: true, scope: globalEventId }
  - counterName: connected_accounts
    mode: persistent
    dimensions: [masterAccountId]
    floorAtZero: false
    transitions: { entity: accountId }
    rules:
      - { on: account.connected, op: increment }
      - { on: account.disconnected, op: decrement }
    idempotency: { requireEventId: true, scope: globalEventId }
  - counterName: stored_bytes
    mode: persistent
    dimensions: []
    floorAtZero: false
    rules: [ { on: file.stored, op: increment, by: size } ]
    idempotency: { requireEventId: true, scope: globalEventId }
YAML

my $stack = Edgemeter::Stack->for_test(
    rules => \$rules,
    yaml  => { log => '{ level: debug }' },
);
$stack->start;
my $http = $stack->http('acme');

sub event {
    my ($id, $what, $master, %more) = @_;
    my $account = delete $more{account};
    return {
        event_id => $id,
        type     => "account.$what",
        ts       => '2026-09-01T12:00:00Z',
        attributes => {
            masterAccountId => $master,
            defined $account ? (accountId => $account) : (),
        },
        %more
    };
}

sub verdict {
    my ($event) = @_;
    my $answer = $http->post('/v1/events', $event);
    return $answer->{json}{results}[0]{verdict}
        // "$answer->{status} $answer->{body}";
}

sub value {
    my ($counter, $master) = @_;
    my $answer = $http->get("/v1/counters/$counter"
            . (defined $master ? "?masterAccountId=$master" : ''));
    return $answer->{status} == 200 ? $answer->{json}{value}
        : $answer->{status};
}

subtest 'a single connect, then a disconnect' => sub {
    is verdict(event('E1', 'connected', 'm1')), 'accepted', 'E1';
    is value('active_connections', 'm1'), '1', 'one is active';
    is value('connects_total', 'm1'), '1', 'one in all';
    is verdict(event('E2', 'disconnected', 'm1')), 'accepted', 'E2';
    is value('active_connections', 'm1'), '0', 'none is active';
    is value('connects_total', 'm1'), '1', 'still one in all';
};

subtest 'a repeated delivery' => sub {
    is verdict(event('E1', 'connected', 'm1')), 'duplicate', 'E1 again';
    is value('active_connections', 'm1'), '0', 'nothing is counted';
    is value('connects_total', 'm1'), '1', 'nowhere';
    is(($stack->query(q{SELECT count(*) FROM meter.duplicate_audit
        WHERE event_id = 'E1'}))[0], 1, 'it is in the audit');
    wait_until {
        $stack->log('meterd') =~ /"eventId":"E1".*"DROPPED_DUPLICATE"/
    } 10, 'and in the log';
};

subtest 'two at once' => sub {
    my @pids;
    for my $id (qw(E3 E4)) {
        my $pid = fork // die "fork: $!";
        if ($pid == 0) {
            my $ok = verdict(event($id, 'connected', 'm2')) eq 'accepted';
            POSIX::_exit($ok ? 0 : 1);
        }
        push @pids, $pid;
    }
    for my $pid (@pids) {
        waitpid $pid, 0;
        is $?, 0, 'accepted';
    }
    is value('active_connections', 'm2'), '2', 'both count';
    is value('connects_total', 'm2'), '2', 'both ever';
};

subtest 'a disconnect before its connect' => sub {
    is verdict(event('E5', 'disconnected', 'm3', account => 'a')), 'accepted',
        'the disconnect';
    is value('balance', 'm3'), '-1', 'raw: below zero';
    is value('active_connections', 'm3'), '0', 'clamped: zero';
    is value('connected_accounts', 'm3'), '404',
        'by transitions: no such key, nothing was connected';
    is verdict(event('E6', 'connected', 'm3', account => 'a')), 'accepted',
        'the connect';
    is value('balance', 'm3'), '0', 'raw: even';
    is value('active_connections', 'm3'), '1', 'clamped: one';
    is value('connected_accounts', 'm3'), '1', 'by transitions: one';
};

subtest 'only valid transitions count' => sub {
    my @list = (
        event('T1', 'connected',    'm4', account => 1),
        event('T2', 'connected',    'm4', account => 1),
        event('T3', 'connected',    'm4', account => '1'),
        event('T4', 'disconnected', 'm4', account => 2),
        event('T5', 'disconnected', 'm4', account => 1),
        event('T6', 'disconnected', 'm4', account => 1),
        event('T7', 'connected',    'm4'),
    );
    my $answer = $http->post('/v1/events', \@list);
    is $answer->{json}{accepted}, scalar @list, 'all are accepted';
    is value('connected_accounts', 'm4'), '1', 'the text 1 is connected';
    is value('connects_total', 'm4'), '4', 'four connects';

    # It moved: the disconnect names another master than the connect did.
    is verdict(event('T8', 'disconnected', 'm5', account => '1')),
        'accepted', 'a disconnect under another master';
    is value('connected_accounts', 'm4'), '0', 'counts where it was counted';
    is value('connected_accounts', 'm5'), '404', 'and nowhere else';
    is_deeply [$stack->query(q{SELECT from_state FROM meter.event
        WHERE event_id IN ('T1', 'T2', 'T8') ORDER BY event_id})],
        [   '{"connected_accounts":null}',
            '{"connected_accounts":{"masterAccountId":"m4"}}',
            '{"connected_accounts":{"masterAccountId":"m4"}}'
        ], 'the ledger knows where each came from';

    # What the log says at debug level, by event.
    my %said;
    for my $line (grep {/"counter update"/} split /\n/, $stack->log('meterd')) {
        my $fields = JSON::PP::decode_json($line);
        next if $fields->{counterName} ne 'connected_accounts';
        $said{ $fields->{eventId} }
            = [@$fields{qw(op result dimensionKey)}];
    }
    is_deeply { map { $_ => join ' ', @{ $said{$_} // [] }[0, 1] }
            map {"T$_"} 1 .. 6, 8 },
        {   T1 => 'INC APPLIED', T2 => 'INC IGNORED', T3 => 'INC APPLIED',
            T4 => 'DEC IGNORED', T5 => 'DEC APPLIED', T6 => 'DEC IGNORED',
            T8 => 'DEC APPLIED',
        }, 'the log tells transitions that count from those that do not';
    is $said{T8}[2], $said{T1}[2], 'and where they count';
};

subtest 'a dimension that is missing, an amount' => sub {
    my $event = event('N1', 'connected', 'x');
    delete $event->{attributes}{masterAccountId};
    is verdict($event), 'accepted', 'no masterAccountId';
    is value('connects_total', ''), '1', 'is counted under null';
    for my $case ([F1 => 100, 'accepted'], [F2 => '5e1', 'accepted'],
        [F3 => undef, 'accepted'], [F4 => -1, 'rejected'],
        [F5 => 1.5, 'rejected'], [F6 => '9223372036854775807', 'rejected']) {
        my ($id, $size, $verdict) = @$case;
        my $body = sprintf '{"event_id":"%s","type":"file.stored",'
            . '"ts":"2026-09-01T12:00:00Z","attributes":{%s}}', $id,
            defined $size ? qq{"size":$size} : '';
        my $answer = $http->post('/v1/events', $body);
        is $answer->{json}{results}[0]{verdict}, $verdict,
            "$id: $verdict" or diag $answer->{body};
        like $answer->{json}{results}[0]{error}, qr/stored_bytes/,
            'and says which counter' if $verdict eq 'rejected';
    }
    is value('stored_bytes'), '150', 'bytes add up';
};

subtest 'the log of updates' => sub {
    my @rows = $stack->query(q{
        SELECT step_add, value FROM meter.counter_audit
         WHERE counter_name = 'balance' AND dimensions LIKE '%m3%'
         ORDER BY id});
    is_deeply \@rows, ["-1\t-1", "1\t0"], 'every update, in order';
    is(($stack->query(q{SELECT count(*) FROM meter.counter_audit
        WHERE counter_name <> 'balance'}))[0], 0,
        'of the counter that asks for it');
};

verify_projections($stack);
$stack->stop;
done_testing;
