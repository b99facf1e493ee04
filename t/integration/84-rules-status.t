#!/usr/bin/perl

# 84-rules-status.t - the status of `meterd reconcile` after a change of rules:
# 4 where the change may explain each difference, 1 where it cannot explain
# one, and 0 and 1 again once all is rebuilt.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use JSON::PP ();
use Test::More;
use Edgemeter::Node;
use Edgemeter::Place;
use Edgemeter::Recount;
use Edgemeter::Wait qw(wait_until);

my $BASE = <<'YAML';
idempotency: { futureSkew: 2s }
events:
  - { type: call, indexed: [route] }
  - { type: open, indexed: [route] }
counters:
  - counterName: calls
    dimensions: [route]
    rules: [ { on: call, op: increment } ]
  - counterName: steady
    dimensions: [route]
    rules: [ { on: call, op: increment } ]
usage:
  entryCount: { increment: [open] }
  apiCallCount: { increment: [call] }
meters:
  - { metric: calls, on: [call], aggregation: count, period: month, groupBy: [route] }
  - { metric: steady, on: [call], aggregation: count, period: month }
series:
  - { name: calls, kind: gauge, on: [call], value: size, policy: last, dimensions: [route] }
  - { name: steady, kind: counter, on: [call], dimensions: [route] }
YAML

# One of each counts otherwise; the steady ones do not.
my $OTHER = $BASE =~ s/(calls\n    dimensions: \[route\]\n    rules: \[ \{ on: call, op: increment)/$1, by: size/r
    =~ s/apiCallCount: \{ increment: \[call\]/apiCallCount: { increment: [call, open]/r
    =~ s/metric: calls, on: \[call\]/metric: calls, on: [call, open]/r
    =~ s/gauge, on: \[call\], value: size/gauge, on: [call], value: length/r
    =~ s/type: call, indexed: \[route\]/type: call, indexed: [route, size]/r;

$Edgemeter::Recount::RULES = $BASE;
my $recount = Edgemeter::Recount->start(nodes => ['a'],
    env => { METERD_TEST_RECONCILE_MS => 50 });
my $stack = $recount->stack;
my $node  = $recount->node('a');
my $count = 0;
my $DAY   = 86_400;
my $DONE  = qr/"no event is counted by earlier rules any more"/;

sub rules_write {
    my ($text) = @_;
    Edgemeter::Place::replace_file(($stack->config_arguments)[1], 0644,
        $stack->account, $text);
    return;
}

# Until nobody counts by the old ones.
sub reload {
    my ($text) = @_;
    my $before = () = $node->log =~ /$DONE/g;
    rules_write($text);
    kill 'HUP', $node->pid;
    wait_until { (() = $node->log =~ /$DONE/g) > $before } 30,
        'the rules are taken';
    return;
}

sub flushed {
    wait_until {
        $stack->query('SELECT count(*) FROM meter.writer_seq JOIN'
            . ' meter.writer_flush USING (writer) WHERE last > upto') == 0
            && $stack->query('SELECT count(*) FROM meter.series_dirty') == 0
    } 60, 'everything is flushed and rolled up';
    return;
}

sub sent {
    my ($route, $ts, $tenant) = @_;
    $recount->send('a', $tenant // 'acme', [map { {
        event_id => 'e' . ++$count, type => $_, ts => $ts // time,
        attributes => { route => $route, size => 3, length => 5 } } }
        qw(call call open)]);
    flushed();
    return;
}

sub reconcile { return $recount->run('reconcile', @_) }

sub is_status {
    my ($wanted, $name, @words) = @_;
    my ($status, $out, $err) = reconcile(@words);
    is $status, $wanted, $name or diag $out, $err;
    return ($out, $err);
}

sub rebuild {
    for (@_) {
        my ($status, $out, $err) = $recount->run('rebuild', $_);
        is $status, 0, "rebuild $_" or diag $out, $err;
    }
    return;
}

# Done, looked at, taken back.
sub planted {
    my ($name, $wanted, $do, $undo, @words) = @_;
    isnt $stack->query("WITH done AS ($do RETURNING 1)"
            . ' SELECT count(*) FROM done'), 0, "$name: planted";
    my ($out) = is_status($wanted, $name, @words);
    $stack->query($undo);
    return $out;
}

my $OLD = q{dimensions = '{"route":"old"}'};
my $NEW = q{dimensions = '{"route":"new"}'};

sub counter {
    my ($name, $where, $by) = @_;
    return "UPDATE meter.counter SET value = value + $by"
        . " WHERE counter_name = '$name' AND $where";
}

sub planted_counter {
    my ($name, $wanted, $counter, $where) = @_;
    return planted($name, $wanted, counter($counter, $where, 1),
        counter($counter, $where, -1));
}

subtest 'before' => sub {
    sent('far', time - 3 * $DAY);
    sent('old');
    is_status(0, 'all is right');
    planted_counter('nothing has changed', 1, 'calls', $OLD);
    is $stack->query('SELECT count(*) FROM meter.rule_use'
            . ' WHERE since IS NOT NULL'), 0, 'nor is it noted so';
};

subtest 'after' => sub {
    reload($OTHER);
    my ($out) = is_status(4, 'rules have changed');
    sent('old');
    # Buckets that begin behind the change, and by futureSkew.
    my $changed = time;
    wait_until { int(time / 5) * 5 > $changed + 2 } 20, 'the next bucket';
    sent('new');
    sent('new', undef, 'globex');
    ($out, my $err) = is_status(4, 'also with events of the new rules');
    my %seen;
    for (split /\n/, $out) {
        like $_, qr/ \(rule changed 20\S+Z\)$/, 'each is told so';
        $seen{$1}++ if /^(\w+): /;
    }
    is join(' ', sort keys %seen), 'counters index meters series usage',
        'in all projections';
    unlike $out, qr/steady/, 'not those that count as before';
    unlike $out, qr/"new"/, 'nor what is there only since';
    like $err, qr/a change of rules may explain \d+ of them; meterd rebuild/,
        'and in the sum';
    my ($json) = map { JSON::PP->new->utf8->decode($_) } split /\n/,
        (reconcile('--json', 'counters'))[1];
    like $json->{rule_changed_at}, qr/^20\S+Z$/, 'and in JSON';

    wait_until { $node->metric('edgemeter_reconcile_status') == 4 } 20,
        'meterd tells it';
    is $stack->query(q{SELECT string_agg(projection || ' ' || status, ' '}
            . ' ORDER BY projection) FROM meter.reconcile_result'),
        'counters 4 index 4 ledger 0 meters 4 series 4 usage 4', 'of each';
};

subtest 'what a change cannot explain' => sub {
    planted_counter('a counter that has not changed', 1, 'steady', $OLD);
    my $out = planted_counter('a row of which all is later', 1, 'calls', $NEW);
    like $out, qr/"new"\}\}: expected 6, found 7$/m, 'is told without it';
    planted_counter('a row with earlier events', 4, 'calls', $OLD);
    planted('a row too many, made since', 1,
        q{INSERT INTO meter.counter VALUES ('acme', 'calls', sha256('x'),}
        . q{ '{"route":"x"}', 3, now())},
        q{DELETE FROM meter.counter WHERE dimensions = '{"route":"x"}'});
    my $meter = q{UPDATE meter.meter_counter SET count = count + %d}
        . q{ WHERE metric = '%s' AND groups = '%s'};
    planted("a meter, @$_[1, 2]", $$_[0], sprintf($meter, 1, @$_[1, 2]),
        sprintf $meter, -1, @$_[1, 2])
        for [1, 'calls', '{"route":"new"}'], [4, 'calls', '{"route":"old"}'],
        [1, 'steady', '{}'];
    my $series = 'UPDATE meter.series_%s SET count = count + %d WHERE (series,'
        . ' version, dimension_key) IN (SELECT series, version, dimension_key'
        . " FROM meter.series_key WHERE series = '%s' AND dimensions = '%s')";
    # A level above tells a planted figure of any time.
    planted("a series, @$_", 1, sprintf($series, $$_[0], 1, @$_[1, 2]),
        sprintf($series, $$_[0], -1, @$_[1, 2]), 'series')
        for ['5s', 'calls', '{"route":"new"}'],
        ['5s', 'steady', '{"route":"old"}'], ['1m', 'calls', '{"route":"old"}'];
    my $index = q{UPDATE meter.event_index SET value = '%s'}
        . q{ WHERE attribute = 'route' AND type = '%s' AND value = '%s'}
        . q{ AND writer_seq %s};
    planted("the index, @$_[1 .. 3]", $$_[0],
        sprintf($index, '"odd"', @$_[1 .. 3]),
        sprintf($index, @$_[2, 1], '"odd"', $$_[3]), 'index')
        for [1, 'call', '"new"', '> 0'], [4, 'call', '"old"', '<= 6'],
        [1, 'call', '"old"', '> 6'], [1, 'open', '"old"', '<= 6'];
    my $usage = 'UPDATE meter.tenant_usage_metrics SET entry_count ='
        . ' entry_count + %d';
    planted('another column of the usage row', 1, sprintf($usage, 1),
        sprintf $usage, -1);
    my $calls = 'UPDATE meter.tenant_usage_metrics SET api_call_count ='
        . q{ api_call_count + %d WHERE tenant_id = '%s'};
    planted("the usage row of $$_[1]", $$_[0], sprintf($calls, 1, $$_[1]),
        sprintf $calls, -1, $$_[1]) for [4, 'acme'], [1, 'globex'];
    planted('the registry', 1,
        q{UPDATE meter.event_registry SET tenant = 'other' WHERE tenant = 'acme'},
        q{UPDATE meter.event_registry SET tenant = 'acme' WHERE tenant = 'other'});
    is_status(4, 'all is taken back');
};

subtest 'not all could be compared' => sub {
    $stack->query(q{INSERT INTO meter.partition_floor VALUES ('event',}
        . qq{ to_timestamp(@{[ time - $DAY ]}))});
    is_status(3, 'no difference in what was', 'counters');
    my ($out, $err) = is_status(4, 'explained ones', 'counters', 'index');
    like $err, qr/may explain \d+ of them, but not all could be compared;/,
        'and that not all was is told';
    my $open = q{UPDATE meter.event_index SET value = '%s' WHERE type = 'open'}
        . q{ AND value = '%s'};
    planted('one that is not', 1, sprintf($open, '"odd"', '"new"'),
        sprintf($open, '"new"', '"odd"'), 'counters', 'index');
    $stack->query(q{DELETE FROM meter.partition_floor WHERE parent = 'event'});
    is_status(4, 'the floor is gone again');
};

subtest 'rebuilt' => sub {
    is +($recount->run('rebuild', 'counters', '--tenant', 'acme'))[0], 0,
        'one tenant';
    is_status(0, 'has no difference', 'counters');
    planted_counter('the others may have', 4, 'calls', $OLD);
    is +($recount->run('rebuild', 'counters', '--dry-run'))[0], 0, 'dry';
    planted_counter('writes nothing', 4, 'calls', $OLD);
    is +($recount->run('rebuild', 'counters', '--counter', 'steady'))[0], 0,
        'another counter';
    planted_counter('is not this one', 4, 'calls', $OLD);
    rebuild(qw(counters usage meters series index));
    is_status(0, 'all is right');
    planted_counter('a difference is one', 1, 'calls', $OLD);
    my $meter = q{UPDATE meter.meter_counter SET count = count + %d}
        . q{ WHERE metric = 'calls'};
    planted('of a meter', 1, sprintf($meter, 1), sprintf $meter, -1);
    my $index = q{UPDATE meter.event_index SET value = '"%s"'}
        . q{ WHERE type = 'call' AND value = '"%s"'};
    planted('of the index', 1, sprintf($index, 'odd', 'old'),
        sprintf $index, 'old', 'odd');
    my $series = 'UPDATE meter.series_5s SET count = count + %d';
    planted('of a series', 1, sprintf($series, 1), sprintf $series, -1);
};

subtest 'a rule that comes back' => sub {
    reload($OTHER =~ s/  - counterName: steady.*?(?=^usage)//msr);
    sent('old');
    reload($OTHER);
    my ($out) = is_status(4, 'events came meanwhile');
    like $out, qr/"steady"/, 'told';
    rebuild('counters');
    is_status(0, 'rebuilt');
};

subtest 'the same rules, written otherwise' => sub {
    my $since = $stack->query('SELECT max(since) FROM meter.rule_use');
    my @parts = split /^(?=\w)/m, $OTHER;
    ok $node->process->stop('TERM', 20), 'meterd ends';
    rules_write(join "# another order\n", reverse @parts);
    $recount->{node}{a} = $node = Edgemeter::Node->start($stack, name => 'a',
        env => { METERD_TEST_RECONCILE_MS => 50 });
    $node->wait_ready;
    sent('old');
    is_status(0, 'nothing has changed');
    is $stack->query('SELECT max(since) FROM meter.rule_use'), $since,
        'nor is it noted so';
    planted_counter('a difference is one', 1, 'calls', $OLD);
    rules_write($OTHER);
};

subtest 'another meterd with other rules' => sub {
    rules_write($BASE);
    my $second = Edgemeter::Node->start($stack, name => 'b');
    $second->wait_ready;
    $recount->{node}{b} = $second;
    for my $to (qw(a b)) {
        $recount->send($to, 'acme', [{ event_id => 'n' . ++$count,
            type => 'call', ts => time, attributes =>
                { route => "since-$to", size => 3, length => 5 } }]);
    }
    flushed();
    my ($out) = is_status(4, 'by the rules of one');
    like $out, qr/"since-a"\}\}: .* \(another rule is in use\)$/m,
        'also of rows that are new';
    rules_write($OTHER);
    ($out) = is_status(4, 'by those of the other one');
    like $out, qr/"since-b"\}\}: .* \(another rule is in use\)$/m, 'likewise';
    planted_counter('what both have alike', 1, 'steady', $OLD);

    ok $second->process->stop('TERM', 20), 'it ends';
    # All of it is two minutes old, but for the meterd that goes on.
    $stack->query("UPDATE meter.$$_[0] SET $$_[1] = $$_[1]"
        . " - interval '2 minutes' WHERE " . ($$_[2] // 'true'))
        for ['rule_use', 'since'], ['rule_rebuilt', 'rebuilt_at'],
        ['event', 'recorded_at'], ['counter', 'made_at'],
        ['writer_seq', 'heartbeat_at', q{writer IN (SELECT writer FROM}
            . q{ meter.writer WHERE node = 'b')}];
    ($out) = is_status(4, 'long ago', 'counters');
    like $out, qr/"since-b"\}\}: .* \(rule changed 20\S+Z\)$/m, 'told so';
    rebuild(qw(counters usage meters series index));
    is_status(0, 'rebuilt');
    planted_counter('a difference is one', 1, 'calls', $OLD);
};

ok $node->process->stop('TERM', 15), 'the node ends';
unlike $node->log, qr/"level":"error"/, 'without an error';
done_testing;
