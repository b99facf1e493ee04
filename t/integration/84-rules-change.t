#!/usr/bin/perl

# 84-rules-change.t - rules that change under counters, usage and meters that
# have figures already (SIGHUP): nothing is lost or counted twice, reconcile
# goes by the rules that are given, and a rebuild makes all of it theirs.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use POSIX qw(:sys_wait_h);
use Test::More;
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::Recount;
use Edgemeter::Wait qw(wait_until);

my $BASE = <<'YAML';
events:
  - { type: call }
  - { type: opened }
  - { type: closed }
  - { type: up }
  - { type: down }
counters:
  - counterName: calls
    dimensions: [route]
    rules: [ { on: call, op: increment } ]
  - counterName: level
    dimensions: [route]
    floorAtZero: false
    rules: [ { on: opened, op: increment }, { on: closed, op: decrement } ]
  - counterName: online
    dimensions: [route]
    transitions: { entity: device }
    rules: [ { on: up, op: increment }, { on: down, op: decrement } ]
usage:
  entryCount: { increment: [opened], decrement: [closed] }
  apiCallCount: { increment: [call] }
meters:
  - { metric: calls, on: [call], aggregation: sum, period: month, lateness: 1h, groupBy: [route] }
YAML

$Edgemeter::Recount::RULES = $BASE;
my $recount = Edgemeter::Recount->start(nodes => ['a']);
my $stack   = $recount->stack;
my $node    = $recount->node('a');
my $count   = 0;

sub reload {
    my ($text) = @_;
    my $done = $node->metric('edgemeter_config_reloads_total');
    Edgemeter::Place::replace_file(($stack->config_arguments)[1], 0644,
        $stack->account, $text);
    kill 'HUP', $node->pid;
    wait_until { $node->metric('edgemeter_config_reloads_total') > $done } 10,
        'the rules are taken';
    return;
}

sub event {
    my ($type, $route, %arg) = @_;
    return { event_id => 'e' . ++$count, type => $type, ts => time,
        attributes => { route => $route, device => 'd1', zone => 'z' }, %arg };
}

# All in one request.
sub sent {
    my (@events) = @_;
    return $recount->send('a', 'acme', \@events);
}

sub value {
    my ($counter, $route) = @_;
    return $stack->query("SELECT value FROM meter.counter WHERE counter_name"
        . " = '$counter' AND dimensions = '{\"route\":\"$route\"}'");
}

sub reconcile {
    my ($status, $out, $err) = $recount->run('reconcile', @_);
    return ("$status $out", $err);
}

sub is_clean {
    my ($name, @words) = @_;
    my ($got, $err) = reconcile(@words);
    is $got, '0 ', $name or diag $err;
    return $err;
}

sub rebuild {
    for (@_) {
        my ($status, $out, $err) = $recount->run('rebuild', $_);
        is $status, 0, "rebuild $_" or diag $out, $err;
    }
    return;
}

subtest 'a floor' => sub {
    for my $route ('r1' .. 'r5') {
        sent(map { event('closed', $route) } 1 .. 3);
        is value('level', $route), -3, 'below zero';
    }
    is_clean('by the old rules');
    my $floor = $BASE =~ s/floorAtZero: false/floorAtZero: true/r;
    reload($floor);
    is value('level', 'r1'), -3, 'a value stays until something happens to it';
    like +(reconcile())[0], qr/^4 .*"r1"\}\}: expected 0, found -3 \(rule changed /ms,
        'reconcile goes by the new rules';

    sent(event('opened', 'r1'));
    is value('level', 'r1'), 0, 'up: to zero, not above';
    sent(event('opened', 'r2'), event('opened', 'r2'));
    is value('level', 'r2'), 1, 'two at once count as one by one';
    sent(event('closed', 'r3'));
    is value('level', 'r3'), 0, 'down: to zero';
    sent(event('opened', 'r4'), event('up', 'x'), event('opened', 'r4'));
    is value('level', 'r4'), 1, 'likewise on the careful path';
    is_clean('usage was always clamped', 'usage');

    rebuild('counters');
    is join(' ', map { value('level', $_) } 'r1' .. 'r5'), '1 2 0 2 0',
        'as if the floor had always been there';
    sent(event('closed', 'r2'));
    is_clean('it goes on from there');

    reload($BASE);
    like +(reconcile('counters'))[0], qr/^4 .*"r2"\}\}: expected -2, found 1 \(rule changed /ms,
        'back: differences again';
    sent(event('closed', 'r1'), event('closed', 'r1'));
    is value('level', 'r1'), -1, 'without the floor';
    rebuild('counters');
    is join(' ', map { value('level', $_) } 'r1' .. 'r5'), '-4 -2 -4 -1 -3',
        'plain sums';
    is_clean('right');
};

subtest 'a counter and usage that are gone for a while' => sub {
    sent(event('call', 'a'), event('call', 'a'), event('opened', 'a'));
    my $without = $BASE =~ s/^usage:.*(?=^meters:)//msr
        =~ s/^  - counterName: calls.*?(?=^  - counterName: level)//msr;
    reload($without);
    sent(event('call', 'a'), event('opened', 'a'));
    is value('calls', 'a'), 2, 'its rows stay';
    like is_clean('the rest is right'),
        qr/\d+ rows of names that the rules do not have/, 'they are not compared';

    reload($BASE);
    sent(event('call', 'a'));
    is value('calls', 'a'), 3, 'it goes on from its rows';
    my ($got) = reconcile();
    like $got, qr/^4 counters: .*"calls".*expected 4, found 3 \(rule changed /,
        'what came meanwhile is missing';
    like $got, qr/^usage: .*"entryCount"/m, 'in usage too';
    rebuild(qw(counters usage));
    is value('calls', 'a'), 4, 'filled from the ledger';
    sent(event('call', 'a'));
    is value('calls', 'a'), 5, 'once each';
    is_clean('right');
};

subtest 'lateness' => sub {
    my $sums = sub {
        return $stack->query('SELECT trim_scale(sum), trim_scale('
            . 'coalesce(late_sum, 0)) FROM meter.meter_counter'
            . q{ WHERE groups = '{"route":"late"}'}) =~ s/\t/ /r;
    };
    # in one month: on its 15th
    my $noon = 1_742_040_000;
    my @late = ('call', 'late', ts => $noon - 7200);
    sent(event('call', 'late', ts => $noon));
    sent(event(@late));
    is $sums->(), '1 1', 'two hours are too late for one';
    reload($BASE =~ s/lateness: 1h/lateness: 10h/r);
    sent(event(@late));
    is $sums->(), '2 1', 'not for ten';
    is_clean('each was decided when it came');
    reload($BASE =~ s/lateness: 1h/lateness: 0s/r);
    sent(event('call', 'late', ts => $noon - 1));
    sent(event('call', 'late', ts => $noon));
    is $sums->(), '3 2', 'with none a second is too late';
    is_clean('likewise');
    $stack->query('UPDATE meter.meter_counter SET sum = 0, late_sum = 0');
    rebuild('meters');
    is $sums->(), '3 2', 'a rebuild does not decide anew';
    reload($BASE);
    is_clean('right');
};

subtest 'dimensions and modes' => sub {
    my %other = (
        'another dimension' =>
            $BASE =~ s/(online\n    dimensions: )\[route\]/$1\[zone\]/r,
        'no dimensions' => $BASE =~ s/(online\n    dimensions: )\[route\]/$1\[\]/r,
        'no transitions' => $BASE =~ s/    transitions: .*\n//r,
        'another entity' => $BASE =~ s/entity: device/entity: zone/r,
        'a count' => $BASE =~ s/aggregation: sum/aggregation: max/r,
        'other groups' => $BASE =~ s/groupBy: \[route\]/groupBy: [zone]/r,
        'another period' => $BASE =~ s/period: month/period: hour/r,
    );
    my $random = sub {
        sent(map { event((qw(up down call))[rand 3], 'r' . int rand 2,
            attributes => { route => 'r' . int rand 2,
                device => 'd' . int rand 3, zone => 'z' . int rand 2 }) }
            1 .. 1 + rand 4) for 1 .. 12;
    };
    srand 84;
    for my $name (sort keys %other) {
        note $name;
        reload($BASE);
        rebuild(qw(counters meters));
        $random->();
        is_clean("before: $name");
        reload($other{$name});
        $random->();
        is_clean('usage is as it was', 'usage');
        rebuild(qw(counters meters));
        is_clean('rebuilt');
        $random->();
        is_clean('and on');
    }
    reload($BASE);
    rebuild(qw(counters meters));
};

# What is billed stays, whatever the rules say now, until someone says which
# period is to be put right, and why.
subtest 'periods that are closed' => sub {
    my @calls = map {
        my $month = $_;
        map { event('call', $_, ts => "2025-$month-10T00:00:00Z",
            customer => 'c', quantity => 5) } qw(r1 r1 r2)
    } qw(04 05 06);
    sent(@calls);
    my $close = sub {
        my ($period) = @_;
        my $got = $node->ask(method => 'POST', path => '/v1/usage/close',
            type => 'application/json', token => $stack->token('acme'),
            body => qq({"metric":"calls","period":"$period"}));
        is $got->{status}, 200, "$period is closed" or diag $got->{body};
        return;
    };
    my $rows = sub {
        my ($period) = @_;
        return $stack->query("SELECT string_agg(groups || ' ' || trim_scale("
            . "sum), ', ' ORDER BY groups) FROM meter.meter_counter"
            . " WHERE metric = 'calls' AND period_start = '$period-01Z'");
    };
    my $closes = sub {
        my (%arg) = @_;
        return $node->ask(path => '/v1/usage/closes',
            token => $stack->token('acme'),
            args => join '&', map {"$_=$arg{$_}"} sort keys %arg)->{json};
    };
    my $run = sub {
        my ($status, $out, $err) = $recount->run('rebuild', 'meters', @_);
        return ($status, "$out$err");
    };
    my ($billed, $rebuilt) = ('{"route":"r1"} 10, {"route":"r2"} 5',
        '{"zone":"z"} 15');
    $close->('2025-04');
    reload($BASE =~ s/groupBy: \[route\]/groupBy: [zone]/r);

    for my $dry ('--dry-run', undef, undef) {
        my ($status, $said) = $run->(grep {defined} $dry);
        is $status, 3, 'something is left' . ($dry ? ', dry' : '')
            or diag $said;
        like $said, qr/calls 2025-04 is closed: 3 differences of tenant "acme" (?:are|would be) left/,
            'and told';
        like $said, qr/meter calls stays changed for reconcile: rows of other/,
            'which reconcile knows' if !$dry;
        is $rows->('2025-04'), $billed, 'what was billed stays';
        is $rows->('2025-05'), $dry ? $billed : $rebuilt, 'what is open is put right'
            . ($dry ? ' later' : '');
    }

    my @reason = ('--reason', 'the contract of August');
    my @reopen = ('--metric', 'calls', '--reopen', '2025-04');
    for (['no reason', @reopen], ['an empty reason', @reopen, '--reason', ''],
        ['no period', '--metric', 'calls', @reason],
        ['no metric', '--reopen', '2025-04', @reason],
        ['no period of it', '--metric', 'calls', '--reopen', '2025-04-01', @reason]) {
        my ($name, @words) = @$_;
        is +($run->(@words))[0], 2, $name;
    }
    is +($recount->run('reconcile', 'meters', @reopen, @reason))[0], 2,
        'a comparison reopens nothing';
    is +($recount->run('rebuild', 'counters', '--reopen', '2025-04', @reason))[0],
        2, 'counters have no periods';
    is +($run->(@reopen, @reason, '--dry-run'))[0], 0, 'tried out';
    is $rows->('2025-04'), $billed, 'which changes nothing';
    is +($run->('--tenant', 'globex', @reopen, @reason))[0], 0,
        'a tenant that has no such close';
    is @{ $closes->()->{closes}[0]{reopenings} }, 0, 'has reopened nothing';

    like +(reconcile('meters'))[0], qr/^4 .*2025-04/, 'and says';
    my ($status, $said) = $run->(@reopen, @reason);
    is $status, 0, 'reopened' or diag $said;
    $stack->query('UPDATE meter.meter_counter SET sum = sum + 1'
        . q{ WHERE period_start = '2025-04-01Z'});
    like +(reconcile('meters'))[0], qr/^1 /, 'then a difference is one';
    $stack->query('UPDATE meter.meter_counter SET sum = sum - 1'
        . q{ WHERE period_start = '2025-04-01Z'});
    is $rows->('2025-04'), $rebuilt, 'it is put right';
    my $one = $closes->(metric => 'calls', period => '2025-04');
    is_deeply [sort map {
            "$_->{customer} $_->{group}{route} $_->{value} $_->{total}"
        } @{ $one->{figures} }], ['c r1 10 10', 'c r2 5 5'],
        'what was billed is known';
    is @{ $one->{reopenings} }, 1, 'it is a row';
    my $account = $stack->account->name;
    is $one->{reopenings}[0]{reason}, $reason[1], 'with the reason';
    is $one->{reopenings}[0]{reopened_by}, "$account (database user meterd)",
        'and who it was';
    is $one->{reopenings}[0]{figures}, 3, 'and of how many figures';
    is +($run->(@reopen, @reason))[0], 0, 'once more';
    is @{ $closes->()->{closes}[0]{reopenings} }, 1, 'writes nothing';

    # Closed after the comparison, before the lock.
    reload($BASE);
    my $process = Edgemeter::Process->spawn(name => 'rebuild',
        log => $stack->place->path('tmp') . '/rebuild.log',
        user => $stack->account, env => { METERD_TEST_REBUILD_STOP => 1 },
        command => $recount->command('rebuild', 'meters', '--from', '2025-06-01'));
    my $stands = sub {
        wait_until { waitpid($process->pid, WNOHANG | WUNTRACED) > 0 } 30,
            'it stands still or ends';
        return WIFSTOPPED(${^CHILD_ERROR_NATIVE});
    };
    ok $stands->(), 'a rebuild has compared';
    $close->('2025-06');
    kill 'CONT', $process->pid;
    ok !$stands->(), 'it ends';
    is $? >> 8, 3, 'something was left';
    is $rows->('2025-06'), $rebuilt, 'what was closed meanwhile';
    for ('2025-04', '2025-06') {
        is +($run->('--metric', 'calls', '--reopen', $_, @reason))[0],
            $_ eq '2025-06' ? 0 : 3, "$_ reopened";
        is $rows->($_), $billed, 'back';
    }
};

subtest 'under load' => sub {
    my $stop = do {
        no warnings 'redefine';
        local @Edgemeter::Recount::TYPES = qw(call opened closed up down);
        $recount->load_start(3);
    };
    for (1 .. 6) {
        reload($BASE =~ s/lateness: 1h/lateness: ${_}h/r);
        reload($BASE =~ s/floorAtZero: false/floorAtZero: true/r);
    }
    reload($BASE);
    is $stop->(), 0, 'all events were accepted';
    is_clean('usage and meters are right', 'usage', 'meters');
    is_clean("counter $_", '--counter', $_) for qw(calls online);
    rebuild('counters');
    is_clean('the rest is, rebuilt');
    ok $node->process->stop('TERM', 15), 'the node ends';
    is $node->process->status, 0, 'well';
    unlike $node->log, qr/"level":"error"/, 'without an error';
};

done_testing;
