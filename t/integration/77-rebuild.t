#!/usr/bin/perl

# 77-rebuild.t - `meterd rebuild` while two meterd take events: what is
# damaged is right again behind it, to the event, and nothing else changes;
# where retention took events it refuses, or starts at a checkpoint.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use POSIX ();
use Test::More;
use Edgemeter::Recount;
use Edgemeter::Wait qw(wait_until);

srand 77;
my $rounds  = $ENV{TORTURE_SECONDS} ? 20 : 4;
my $recount = Edgemeter::Recount->start;
my $stack   = $recount->stack;
my $then    = '2025-03-15T12:00:00Z';

sub rebuild {
    my ($name, @words) = @_;
    my ($status, $out, $err) = $recount->run('rebuild', @words);
    is $status, 0, $name or diag $out, $err;
    unlike $err, qr/WARNING/, 'the server has nothing to complain about';
    return $out;
}

sub is_clean {
    my ($name, @words) = @_;
    my ($status, $out, $err) = $recount->run('reconcile', @words);
    is "$status $out", '0 ', $name or diag $err;
    return $err;
}

# One statement for each row, so that no one waits in a circle.
my %damage = (
    counters => [
        'UPDATE meter.counter SET value = value + 3 WHERE ctid ='
            . ' (SELECT ctid FROM meter.counter ORDER BY random() LIMIT 1)',
        'UPDATE meter.counter SET value = 0 WHERE ctid ='
            . q{ (SELECT ctid FROM meter.counter WHERE counter_name = 'open'}
            . ' ORDER BY random() LIMIT 1)',
        'DELETE FROM meter.counter WHERE ctid ='
            . ' (SELECT ctid FROM meter.counter ORDER BY random() LIMIT 1)',
        'UPDATE meter.counter_keys SET keys = keys + 2 WHERE ctid ='
            . ' (SELECT ctid FROM meter.counter_keys ORDER BY random() LIMIT 1)',
    ],
    usage => [
        'UPDATE meter.tenant_usage_metrics SET entry_count = 1,'
            . q{ storage_bytes = 7, api_call_count = 5, status = 'active'}
            . ' WHERE ctid = (SELECT ctid FROM meter.tenant_usage_metrics'
            . ' ORDER BY random() LIMIT 1)',
        'DELETE FROM meter.tenant_usage_metrics WHERE ctid = (SELECT ctid'
            . ' FROM meter.tenant_usage_metrics ORDER BY random() LIMIT 1)',
    ],
    meters => [
        'UPDATE meter.meter_counter SET sum = sum * 2, count = 1,'
            . ' watermark_ts = watermark_ts - interval $$2 h$$ WHERE ctid ='
            . ' (SELECT ctid FROM meter.meter_counter ORDER BY random() LIMIT 1)',
        'UPDATE meter.meter_counter SET manual_sum = 17 WHERE ctid ='
            . ' (SELECT ctid FROM meter.meter_counter WHERE manual_sum IS NOT'
            . ' NULL ORDER BY random() LIMIT 1)',
        'DELETE FROM meter.meter_counter WHERE ctid ='
            . ' (SELECT ctid FROM meter.meter_counter ORDER BY random() LIMIT 1)',
        'DELETE FROM meter.meter_unique WHERE ctid ='
            . ' (SELECT ctid FROM meter.meter_unique ORDER BY random() LIMIT 1)',
    ],
);

sub damage {
    my ($projection) = @_;
    $stack->query($_) for @{ $damage{$projection} };
    return;
}

# Corrections by hand, one after the other; stop gives what failed.
sub corrections_start {
    my $stop = $stack->place->path('tmp') . '/stop-corrections';
    my $pid  = fork // die "fork: $!\n";
    if ($pid == 0) {
        my $failed = 0;
        my $month  = POSIX::strftime('%Y-%m', gmtime);
        for (my $i = 1; !-e $stop; $i++) {
            my $answer = $recount->node($i % 2 ? 'a' : 'b')->ask(
                method => 'POST', path => '/v1/adjustments',
                type => 'application/json', token => $stack->token('acme'),
                body => qq({"id":"m$i","metric":"calls","period":"$month",)
                    . qq("amount":"0.5","reason":"test","customer":"c0",)
                    . qq("group":{"route":"/1"}}));
            $failed++ if $answer->{status} != 201;
        }
        POSIX::_exit($failed ? 1 : 0);
    }
    return sub {
        open my $file, '>', $stop or die "$stop: $!\n";
        close $file;
        waitpid $pid, 0;
        return $?;
    };
}

subtest 'while events arrive' => sub {
    $recount->load(300);
    my $stop        = $recount->load_start(4);
    my $corrections = corrections_start();
    wait_until {
        $stack->query('SELECT count(*) FROM meter.meter_adjustment'
                . ' WHERE is_manual') > 0
    } 20, 'corrections';
    my $written = 0;
    for my $round (1 .. $rounds) {
        for my $projection (qw(counters usage meters)) {
            damage($projection);
            my $out = rebuild("$projection, round $round", $projection);
            $written++ if $out =~ /differences, [1-9]\d* tenants written/;
            is_clean("$projection, round $round: right", $projection);
        }
    }
    ok $written > 0, "$written runs had something to do";
    is $corrections->(), 0, 'all corrections were accepted';
    is $stop->(), 0, 'all events were accepted';
    is_clean('all is right');
    is $recount->totals, $recount->model, 'another program agrees';
    my $manual = $stack->query('SELECT sum(amount) FROM meter.meter_adjustment'
        . ' WHERE is_manual');
    is $stack->query('SELECT sum(manual_sum) FROM meter.meter_counter'),
        $manual, 'corrections are all there';
};

subtest 'two at once' => sub {
    my $stop = $recount->load_start(2);
    damage('counters') for 1 .. 3;
    my @pids = map {
        my $pid = fork // die "fork: $!\n";
        POSIX::_exit(($recount->run('rebuild', 'counters'))[0]) if $pid == 0;
        $pid;
    } 1 .. 2;
    for (@pids) {
        waitpid $_, 0;
        is $?, 0, 'done';
    }
    is_clean('right');
    is $stop->(), 0, 'all events were accepted';
};

subtest 'again and dry' => sub {
    like rebuild('nothing to do', 'meters'),
        qr/2 tenants, \d+ events: 0 differences, 0 tenants written\n/, 'told';
    my $audit = $stack->query('SELECT count(*) FROM meter.counter_audit');
    my $events = $stack->query('SELECT count(*) FROM meter.counter_audit WHERE'
        . q{ writer <> '00000000-0000-0000-0000-000000000000'});
    my $right = $recount->tables;
    damage($_) for sort keys %damage;
    $stack->query('UPDATE meter.counter SET value = value + 2'
        . q{ WHERE counter_name = 'open'});    # the one that is audited
    my $damaged = $recount->tables;
    isnt $damaged, $right, 'damaged';
    for (qw(counters usage meters)) {
        my $out = rebuild("$_: dry", $_, '--dry-run');
        like $out, qr/^$_: .*: expected .*, found /m, 'told';
        like $out, qr/ [1-9]\d* differences, nothing was written\n/, 'sum';
    }
    is $recount->tables, $damaged, 'nothing was written';
    rebuild('a tenant', $_, '--tenant', 'acme') for qw(counters usage meters);
    is_clean('that one is right', '--tenant', 'acme');
    rebuild($_, $_) for qw(counters usage meters);
    is $recount->tables, $right, 'all are';
    ok $stack->query('SELECT count(*) FROM meter.counter_audit') > $audit,
        'the audit log knows of it';
    is $stack->query('SELECT count(*) FROM meter.counter_audit WHERE writer'
            . q{ <> '00000000-0000-0000-0000-000000000000'}), $events,
        'as of no writer';
};

subtest 'retention' => sub {
    my $scratch = $stack->place->path('tmp');
    $recount->load(200, ts => $then);
    my $removed = $stack->query('SELECT count(*) FROM meter.event_20250315');
    ok $removed > 100, 'an old day';
    my ($status, $out, $err)
        = $recount->run('checkpoint', 'export', "$scratch/check.ndjson");
    is $status, 0, 'a checkpoint' or diag $err;
    $recount->load(100);
    my $right = $recount->tables;
    my $total = sub {
        return $recount->node('a')->ask(path => '/v1/counters/calls',
            token => $stack->token('acme'))->{body};
    };
    my $told = $total->();
    like $told, qr/"value":"?[1-9]/, 'counters are told';

    # The floor comes first: what is below may go at any moment.
    $stack->query(q{INSERT INTO meter.partition_floor VALUES ('event',}
        . q{ '2025-03-16') ON CONFLICT (parent) DO UPDATE SET floor =}
        . q{ excluded.floor});
    ($status, $out, $err) = $recount->run('rebuild', 'counters');
    is $status, 1, 'the floor is raised: refused';
    $stack->query('DROP TABLE meter.event_20250315');
    for (qw(counters usage)) {
        ($status, $out, $err) = $recount->run('rebuild', $_);
        is $status, 1, "the day is gone: $_ refused";
        like $err, qr/retention has removed $removed events: counters and/,
            'with the reason';
    }
    is $recount->tables, $right, 'nothing changed';
    is +($recount->run('reconcile', 'counters'))[0], 3, 'nor compared';
    is $total->(), $told, 'clients are told the same';
    my @sum = (q{SELECT sum(value) FROM meter.counter}
            . q{ WHERE counter_name = 'calls'},
        'SELECT sum(api_call_count) FROM meter.tenant_usage_metrics',
        'SELECT count(*) FROM meter.event WHERE type = $$call$$');
    my @was = map { $stack->query($_) } @sum;
    my $last = $stack->query('SELECT coalesce(max(recorded_at), now())'
        . ' FROM meter.event');
    $recount->load(100);
    my @is = map { $stack->query($_) } @sum;
    is $is[0] - $was[0], $stack->query(q{SELECT sum((attributes::jsonb ->>}
            . q{ 'size')::bigint) FROM meter.event WHERE type = 'call'}
            . qq{ AND recorded_at > '$last'}), 'counters go on';
    is $is[1] - $was[1], $is[2] - $was[2], 'usage too';

    ($status, $out, $err) = $recount->run('reconcile');
    is "$status $out", '3 ', 'the rest is right: not all was compared'
        or diag $err;
    like $err, qr/before 2025-03-16 are left out/, 'told';
    like $err, qr/retention has removed $removed events/, 'and why';

    damage('meters');
    $stack->query(q{UPDATE meter.meter_counter SET sum = sum + 1 WHERE}
        . q{ period_start < '2025-04-01' AND metric = 'calls'});
    my @old = $stack->query('SELECT tenant, metric, customer, group_key, sum'
        . q{ FROM meter.meter_counter WHERE period_start < '2025-04-01'}
        . ' ORDER BY 1, 2, 3, 4');
    ($status, $out, $err) = $recount->run('rebuild', 'meters');
    is $status, 0, 'meters of whole periods are rebuilt';
    like $err, qr/before 2025-03-16 are left out/, 'told';
    ($status, $out) = $recount->run('reconcile', 'meters');
    is "$status $out", '3 ', 'right, but older ones are not compared';
    is_clean('all that was asked for is', 'meters', '--from', '2025-04-01');
    is_deeply [$stack->query('SELECT tenant, metric, customer, group_key, sum'
                . q{ FROM meter.meter_counter WHERE period_start}
                . q{ < '2025-04-01' ORDER BY 1, 2, 3, 4})], \@old,
        'older ones keep their figures';

    my @check = ('--checkpoint', "$scratch/check.ndjson");
    is_clean('with a checkpoint', 'counters', 'usage', @check);
    $stack->query(q{UPDATE meter.meter_counter SET sum = sum + 1 WHERE}
        . q{ period_start > '2025-04-01' AND metric = 'calls'});
    is +($recount->run('reconcile'))[0], 1,
        'a difference counts more than what was not compared';
    rebuild('meters', 'meters');
    $stack->query('TRUNCATE meter.counter, meter.counter_keys,'
        . ' meter.entity_state, meter.tenant_usage_metrics');
    is +($recount->run('reconcile', 'usage', @check))[0], 1, 'all is lost';
    my $stop = $recount->load_start(2);
    rebuild("$_ from the checkpoint on", $_, @check) for qw(counters usage);
    is_clean('right', 'counters', 'usage', @check);
    is $stop->(), 0, 'all events were accepted';
    is_clean('and stays so', 'counters', 'usage', @check);

    $stack->query(q{DELETE FROM meter.event WHERE (writer, writer_seq) IN}
        . ' (SELECT writer, max(writer_seq) FROM meter.event GROUP BY 1)');
    ($status, $out, $err) = $recount->run('rebuild', 'usage', @check);
    is $status, 1, 'an event behind it is lost: refused';
    like $err, qr/behind the numbers of the checkpoint the ledger lacks 2/,
        'with the reason';
};

done_testing;
