#!/usr/bin/perl

# 76-reconcile.t - `meterd reconcile`: finds nothing where nothing is wrong,
# also while events arrive, and every kind of damage by its row; `meterd
# rebuild` then puts it right to the byte.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use JSON::PP ();
use POSIX ();
use Test::More;
use Edgemeter::Recount;
use Edgemeter::Wait qw(wait_until);

srand 76;
my $recount
    = Edgemeter::Recount->start(env => { METERD_TEST_RECONCILE_MS => 50 });
my $stack   = $recount->stack;

sub reconcile {
    my (@words) = @_;
    return $recount->run('reconcile', @words);
}

sub is_clean {
    my ($name, @words) = @_;
    my ($status, $out, $err) = reconcile(@words);
    is "$status $out", '0 ', $name or diag $err;
    return $err;
}

# A closed period is left, and then put right on purpose.
sub rebuild {
    my ($projection) = @_;
    my ($status, $out, $err) = $recount->run('rebuild', $projection);
    if ($status == 3) {
        like $err, qr/^meterd rebuild: devices 2025-03 is closed: /m,
            'a closed period is left';
        ($status, $out, $err) = $recount->run('rebuild', 'meters', '--metric',
            'devices', '--reopen', '2025-03', '--reason', 'damage');
    }
    is $status, 0, "rebuild $projection" or diag $out, $err;
    return;
}

# A period that is over is closed, gets one more event, and a correction.
sub history {
    my $then = '2025-03-15T12:00:00Z';
    $recount->load(600);
    $recount->load(60, ts => $then);
    my $close = $recount->node('a')->ask(
        method => 'POST', path => '/v1/usage/close',
        type => 'application/json', token => $stack->token('acme'),
        body => '{"metric":"devices","period":"2025-03"}');
    is $close->{status}, 200, 'a period is closed';
    $recount->load(60, ts => $then);
    my $adjust = $recount->node('b')->ask(
        method => 'POST', path => '/v1/adjustments',
        type => 'application/json', token => $stack->token('acme'),
        body => '{"id":"a1","metric":"calls","period":"2025-03",'
            . '"amount":"-1.5","reason":"refund",'
            . '"group":{"route":"/1"}}');
    is $adjust->{status}, 201, 'a manual correction' or diag $adjust->{body};
    return;
}

subtest 'nothing is wrong' => sub {
    like is_clean('an empty database'), qr/0 tenants, 0 events: 0 diff/,
        'told';
    history();
    ok $stack->query('SELECT count(*) FROM meter.meter_adjustment'
            . ' WHERE NOT is_manual') > 20, 'some events were late';
    like is_clean('a full one'), qr/2 tenants, 720 events: 0 diff/, 'told';
    is $recount->totals, $recount->model, 'another program agrees';
};

subtest 'while events arrive' => sub {
    my $stop = $recount->load_start(4);
    is_clean("run $_") for 1 .. 5;
    is $stop->(), 0, 'all were accepted';
    is_clean('afterwards');
};

subtest 'what meterd tells of it' => sub {
    my $node = $recount->node('b');
    my $told = sub {
        my ($wanted, $name) = @_;
        my $is;
        wait_until {
            $is = join ' ', map { $node->metric("edgemeter_reconcile_$_") }
                qw(status differences);
            $is eq $wanted;
        } 20, "$name: $wanted";
        return pass $name;
    };
    my $seconds = 'edgemeter_reconcile_last_seconds';
    $told->('0 0', 'no difference');
    wait_until { $node->metric($seconds) > time - 300 } 20, 'a time';
    my @parts = $stack->query('SELECT projection FROM meter.reconcile_result'
            . ' ORDER BY 1') =~ /(\w+)/g;
    is "@parts", 'counters index ledger meters series usage', 'of each part';

    $stack->query('UPDATE meter.tenant_usage_metrics SET storage_bytes = 5'
        . q{ WHERE tenant_id = 'acme'});
    is +(reconcile())[0], 1, 'a difference';
    $told->('1 1', 'is told');
    is_clean('another tenant', '--tenant', 'globex');
    is_clean('other projections', 'counters');
    is $stack->query(q{SELECT string_agg(projection, ' ') FROM}
            . ' meter.reconcile_result WHERE status = 1 AND differences = 1'),
        'usage', 'neither takes it back';
    rebuild('usage');
    is_clean('all of it', 'usage');
    $told->('0 0', 'does');

    $stack->query(q{UPDATE meter.reconcile_result SET status = 3,}
        . q{ finished_at = '2020-01-01Z' WHERE projection = 'index'});
    $told->('3 0', 'one part was not compared');
    is $node->metric($seconds), 1_577_836_800, 'the oldest part counts';
    $stack->query(q{UPDATE meter.reconcile_result SET status = 1,}
        . q{ differences = 2 WHERE projection = 'ledger'});
    $told->('1 2', 'a difference counts more');
    is_clean('again');
    $told->('0 0', 'all is right');
};

# What is done, to which projection, and what is told of it.
my @damage = (
    ['a counter', counters => <<'SQL', qr/acme: counter .*open.*expected \d+, found \d+/],
UPDATE meter.counter SET value = value + 1 WHERE (tenant, counter_name,
    dimension_key) IN (SELECT tenant, counter_name, dimension_key
    FROM meter.counter WHERE tenant = 'acme' AND counter_name = 'open' LIMIT 1)
SQL
    ['a counter row is missing', counters => <<'SQL', qr/globex: counter .*found no row\n/],
DELETE FROM meter.counter WHERE (tenant, counter_name, dimension_key) IN
    (SELECT tenant, counter_name, dimension_key FROM meter.counter
    WHERE tenant = 'globex' AND counter_name = 'calls' LIMIT 1)
SQL
    ['a counter row too many', counters => <<'SQL', qr/counter \{"counter":"calls","dimensions":\{"route":"x"\}\}: expected no row, found 3\n/],
INSERT INTO meter.counter VALUES ('acme', 'calls', sha256('x'),
    '{"route":"x"}', 3, now())
SQL
    ['a tenant too many', counters => <<'SQL', qr/ghost: counter .*: expected no row, found 3\n/],
INSERT INTO meter.counter VALUES ('ghost', 'calls', sha256('x'),
    '{"route":"x"}', 3, now())
SQL
    ['dimensions', counters => <<'SQL', qr/dimensions .*expected \{"route":"\/1"\}, found .*z/],
UPDATE meter.counter SET dimensions = '{"route":"z"}' WHERE tenant = 'acme'
    AND counter_name = 'calls' AND dimensions = '{"route":"/1"}'
SQL
    ['the number of keys', counters => <<'SQL', qr/acme: keys \{"counter":"online"\}: expected \d, found 77\n/],
UPDATE meter.counter_keys SET keys = 77 WHERE tenant = 'acme'
    AND counter_name = 'online'
SQL
    ['no number of keys', counters => <<'SQL', qr/acme: keys \{"counter":"open"\}: expected \d, found no row\n/],
DELETE FROM meter.counter_keys WHERE tenant = 'acme' AND counter_name = 'open'
SQL
    ['an entity', counters => <<'SQL', qr/acme: entity \{"counter":"online","entity":"d\d"\}: expected \{.*\}, found no row\n/],
UPDATE meter.entity_state SET dimension_key = NULL, dimensions = NULL
    WHERE tenant = 'acme' AND dimension_key IS NOT NULL
SQL
    ['an entity too many', counters => <<'SQL', qr/globex: entity .*"new"\}: expected no row, found \{/],
INSERT INTO meter.entity_state SELECT 'globex', 'online', '"new"',
    dimension_key, dimensions, now() FROM meter.counter
    WHERE tenant = 'globex' AND counter_name = 'online' LIMIT 1
SQL
    ['the audit log', counters => <<'SQL', qr/acme: audit .*open.*expected \d+, found 999\n/],
INSERT INTO meter.counter_audit (tenant, counter_name, dimension_key,
    dimensions, value, writer, seq_first, seq_last, recorded_at)
    SELECT tenant, counter_name, dimension_key, dimensions, 999,
    gen_random_uuid(), 1, 1, now() FROM meter.counter
    WHERE tenant = 'acme' AND counter_name = 'open' LIMIT 1
SQL
    ['usage', usage => <<'SQL', qr/acme: usage \{\}: expected \{"storageBytes":"\d+"\}, found \{"storageBytes":"5"\}\n/],
UPDATE meter.tenant_usage_metrics SET storage_bytes = 5
    WHERE tenant_id = 'acme'
SQL
    ['the status', usage => <<'SQL', qr/globex: usage \{\}: expected \{"status":"\w+"\}, found \{"status":"\w+"\}\n/],
UPDATE meter.tenant_usage_metrics SET status = CASE status WHEN 'active'
    THEN 'decommissioned' ELSE 'active' END WHERE tenant_id = 'globex'
SQL
    ['no usage row', usage => <<'SQL', qr/acme: usage .*found no row\n/],
DELETE FROM meter.tenant_usage_metrics WHERE tenant_id = 'acme'
SQL
    ['a usage row too many', usage => <<'SQL', qr/ghost: usage \{\}: expected no row, found \{/],
INSERT INTO meter.tenant_usage_metrics (tenant_id) VALUES ('ghost')
SQL
    ['a sum', meters => <<'SQL', qr/acme: meter \{"metric":"calls".*expected \{"sum":.*found \{"sum"/],
UPDATE meter.meter_counter SET sum = sum + 0.000000001
    WHERE tenant = 'acme' AND metric = 'calls'
SQL
    ['the newest value', meters => <<'SQL', qr/"newest".*expected \{"last".*"last_ts"/],
UPDATE meter.meter_counter SET last = 1.5, last_ts = last_ts - interval '1 s'
    WHERE metric = 'newest'
SQL
    ['a watermark', meters => <<'SQL', qr/expected \{"watermark_ts":"2.*found \{"watermark_ts":"2/],
UPDATE meter.meter_counter SET watermark_ts = watermark_ts + interval '1 h'
    WHERE metric = 'peak'
SQL
    ['late ones', meters => <<'SQL', qr/expected \{"late_sum".*"late_count"/],
UPDATE meter.meter_counter SET late_sum = late_sum + 1,
    late_count = late_count + 1 WHERE metric = 'calls'
SQL
    ['a manual sum', meters => <<'SQL', qr/acme: .*"period":"2025-03".*expected \{"manual_sum":"-1.5"\}, found \{"manual_sum":null\}\n/],
UPDATE meter.meter_counter SET manual_sum = NULL
SQL
    ['meter rows are missing', meters => <<'SQL', qr/meter .*found no row\n/],
DELETE FROM meter.meter_counter WHERE metric IN ('calls', 'devices')
SQL
    ['a meter row too many', meters => <<'SQL', qr/"customer":"ghost".*expected no row, found \{"sum":"0","count":"0"/],
INSERT INTO meter.meter_counter (tenant, metric, period_start, customer,
    group_key, groups, sum, count, uniques, updated_at)
    VALUES ('acme', 'peak', '2026-01-01', 'ghost', sha256('x'), '{}', 0, 0, 0,
    now())
SQL
    ['a unique value is missing', meters => <<'SQL', qr/unique .*"value":"d3"\}: expected \w+, found no row\n/],
DELETE FROM meter.meter_unique WHERE value = '"d3"'
SQL
    ['a unique value too many', meters => <<'SQL', qr/unique .*"value":"x"\}: expected no row, found late\n/],
INSERT INTO meter.meter_unique SELECT tenant, metric, period_start, customer,
    group_key, '"x"', false FROM meter.meter_unique LIMIT 1
SQL
    ['a unique value as late', meters => <<'SQL', qr/expected folded, found late\n/],
UPDATE meter.meter_unique SET is_folded = false
SQL
    ['all tables', all => <<'SQL', qr/counters: .*meters: .*usage: /s],
TRUNCATE meter.counter, meter.counter_keys, meter.entity_state,
    meter.tenant_usage_metrics, meter.meter_counter, meter.meter_unique
SQL
);

my $right = $recount->tables;
for my $damage (@damage) {
    my ($name, $projection, $sql, $told) = @$damage;
    my @projections
        = $projection eq 'all' ? qw(counters usage meters) : ($projection);
    subtest $name => sub {
        $stack->query($sql);
        my ($status, $out) = reconcile();
        is $status, 1, 'is found';
        $out = join '', sort split /^/, $out;
        like $out, $told, 'and told';
        my @others = grep { !/^\Q$projection\E: / } split /^/, $out;
        is "@others", '', 'nothing else' if $projection ne 'all';
        rebuild($_) for @projections;
        is_clean('then nothing');
        is $recount->tables, $right, 'all as it was';
    };
}

subtest 'some of it' => sub {
    $stack->query('UPDATE meter.counter SET value = value + 1');
    my ($status, $out, $err) = reconcile('--limit', 2, '--json');
    is $status, 1, 'differences';
    my @lines = map { JSON::PP->new->utf8->decode($_) } split /\n/, $out;
    is scalar @lines, 2, 'at most so many';
    is join(' ', sort keys %{ $lines[0] }),
        'expected found key projection rule_changed_at tenant what', 'members';
    is $lines[0]{expected} + 1, $lines[0]{found}, 'values';
    is "$lines[0]{projection} $lines[0]{tenant} $lines[0]{what}",
        'counters acme counter', 'where';
    my $all = $stack->query('SELECT count(*) FROM meter.counter');
    # the audit log of the clamped counter ends elsewhere too, in one row
    like $err, qr/ $all differences\n/, 'all are counted';
    like $err, qr/ @{[ $all - 2 ]} more are not printed\n/, 'and said';

    is_clean('other projections', 'usage', 'meters');
    like is_clean('another tenant', '--tenant', 'nobody'),
        qr/no events of tenant "nobody" were found\n/, 'maybe a slip: told';
    (undef, $out) = reconcile('--counter', 'online', '--tenant', 'globex');
    unlike $out, qr/acme|"(?:calls|open|balance)"/, 'a counter of a tenant';
    is scalar(() = $out =~ /\n/g),
        $stack->query("SELECT count(*) FROM meter.counter WHERE"
            . " tenant = 'globex' AND counter_name = 'online'"), 'all its rows';
    $recount->run('rebuild', 'counters');
    is $recount->tables, $right, 'right again';

    $stack->query('UPDATE meter.meter_counter SET sum = sum + 1');
    (undef, $out) = reconcile('--from', '2025-04-01');
    unlike $out, qr/2025-03/, 'from a period on';
    like $out, qr/calls/, 'later ones';
    (undef, $out) = reconcile('--metric', 'peak');
    unlike $out, qr/calls/, 'a metric';
    $recount->run('rebuild', 'meters', '--from', '2025-04-01');
    (undef, $out) = reconcile();
    unlike $out, qr/2026/, 'rebuilt from there on';
    like $out, qr/2025-03/, 'not before';
    rebuild('meters');
    is $recount->tables, $right, 'right again';
};

subtest 'other rules' => sub {
    my $before = $recount->tables;
    $recount->rules_use($Edgemeter::Recount::RULES =~ s/counterName: balance/counterName: other/r);
    my ($status, $out, $err) = reconcile();
    is $status, 4, 'a new counter has no rows';
    like $out, qr/"other".*found no row \(another rule is in use\)/, 'told';
    unlike $out, qr/"balance"/, 'the one that is gone is not compared';
    like $err, qr/\d+ rows of names that the rules do not have/, 'told';
    $recount->run('rebuild', 'counters', '--counter', 'other');
    is $stack->query("SELECT count(*) FROM meter.counter a JOIN meter.counter b"
            . " USING (tenant, dimension_key, value)"
            . " WHERE a.counter_name = 'other' AND b.counter_name = 'balance'"),
        $stack->query("SELECT count(*) FROM meter.counter"
            . " WHERE counter_name = 'balance'"), 'made from the ledger';
    $recount->rules_back;
    $stack->query("DELETE FROM meter.counter WHERE counter_name = 'other'");
    $stack->query("DELETE FROM meter.counter_keys WHERE counter_name = 'other'");
    is $recount->tables, $before, 'the rest is as it was';

    $recount->rules_use($Edgemeter::Recount::RULES =~ s/by: size \} \]/by: device } ]/r);
    ($status, $out, $err) = reconcile('counters');
    is $status, 4, 'an amount that is none';
    like $err, qr/\d+ events do not fit the rules given/, 'told';
    like $err, qr/event "e-.*: counters: attribute "?device/, 'with the reason';
    $recount->rules_back;
};

# A floor that nothing has gone below: an event of an earlier time lies in the
# oldest day that is left.
subtest 'periods before a floor of a whole ledger' => sub {
    $stack->query(q{INSERT INTO meter.partition_floor VALUES ('event',}
        . q{ '2025-03-01')});
    $recount->load(40, ts => '2025-01-10T12:00:00Z');
    my $early = q{period_start < '2025-02-01' AND metric = 'calls'};
    isnt $stack->query("SELECT count(*) FROM meter.meter_counter WHERE $early"),
        0, 'there are some';
    unlike is_clean('all is right', 'meters'), qr/left out/,
        'nothing is left out';
    $stack->query("UPDATE meter.meter_counter SET sum = sum + 1 WHERE $early");
    my ($status, $out) = reconcile('meters');
    is $status, 1, 'a wrong one is found';
    like $out, qr/^meters: .*2025-01/m, 'and told';
    rebuild('meters');
    is_clean('put right', 'meters');
    $stack->query(q{DELETE FROM meter.partition_floor WHERE parent = 'event'});
};

subtest 'ledger and registry' => sub {
    $stack->query("CREATE TEMP TABLE kept AS SELECT * FROM meter.event_registry LIMIT 1;"
        . " DELETE FROM meter.event_registry WHERE key IN (SELECT key FROM kept)");
    my ($status, $out) = reconcile();
    is $status, 1, 'a registry row is missing';
    like $out, qr/^registry: \w+: events \{\}: expected (\d+), found (\d+)\n$/,
        'told';

    $stack->query("DELETE FROM meter.event WHERE event_id IN"
        . " (SELECT event_id FROM meter.event WHERE type = 'call' LIMIT 2)");
    ($status, $out, my $err) = reconcile();
    is $status, 1, 'events are lost';
    like $out, qr/^ledger: events \{"writer":"[0-9a-f]{32}"\}: expected \d+, found \d+\n/m,
        'told';
    like $out, qr/^counters: /m, 'and what they did';
    my $before = $recount->tables;
    for (qw(counters usage meters)) {
        ($status, $out, $err) = $recount->run('rebuild', $_);
        is $status, 1, "$_ are not rebuilt from what is left";
        like $err, qr/the ledger lacks 2 events/, 'with the reason';
    }
    is $recount->tables, $before, 'nothing changed';
};

subtest 'command lines' => sub {
    my %wrong = (
        'a projection'    => ['nonsense'],
        'an option'       => ['--nonsense'],
        'a limit'         => ['--limit', 'x'],
        'a date'          => ['--from', '2025'],
        'two names'       => ['--counter', 'a', '--metric', 'b'],
        'other names'     => ['meters', '--counter', 'calls'],
        'an unknown name' => ['--counter', 'nonsense'],
        'dry'             => ['--dry-run'],
        'no meters'       => ['meters', '--checkpoint', 'x'],
    );
    for (sort keys %wrong) {
        my ($status, $out, $err) = reconcile(@{ $wrong{$_} });
        is $status, 2, $_;
        like $err, qr/meterd reconcile/, 'told';
    }
    for (['usage', 'meters'], [], ['usage', '--from', '2025-01-01']) {
        is +($recount->run('rebuild', @$_))[0], 2, "rebuild @$_";
    }
    for my $command (qw(rebuild reconcile)) {
        my ($status, $out) = $recount->run($command, '--help');
        is $status, 0, "$command --help";
        like $out, qr/^usage: meterd $command/, 'usage';
    }
    is +(reconcile('--checkpoint', '/nowhere', 'usage'))[0], 3,
        'no such checkpoint';
    $stack->query("ALTER ROLE meterd CONNECTION LIMIT 0");
    is +(reconcile())[0], 3, 'no database';
    is +($recount->run('rebuild', 'usage'))[0], 1, 'rebuild likewise';
};

done_testing;
