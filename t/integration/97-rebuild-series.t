#!/usr/bin/perl

# 97-rebuild-series.t - series and index: `meterd reconcile` names every row
# that is not what the ledger says, of each level; `meterd rebuild` puts it
# right to the byte, while events arrive, when it is killed on the way, with
# no meterd at all; and refuses where the ledger lacks the events.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use POSIX qw(:sys_wait_h);
use Test::More;
use Edgemeter::Process;
use Edgemeter::Recount;
use Edgemeter::Wait qw(wait_until);

srand 97;

my $rules = $Edgemeter::Recount::RULES
    =~ s/\{ type: call \}/{ type: call, indexed: [route, size] }/r . <<'YAML';
series:
  - { name: calls, kind: counter, on: [call], value: quantity, dimensions: [route] }
  - { name: depth, kind: gauge, policy: last, on: [call, opened], value: size, dimensions: [route] }
  - { name: sizes, kind: histogram, on: [call], value: size, buckets: [1000, 4000000], dimensions: [] }
  - { name: devices, kind: state, on: [up, down, born], entity: device, state: route, dimensions: [] }
retention: { event: 3650d, eventIndex: 3650d, series5s: 3650d, series1m: 3650d, series1h: 3650d }
YAML

my $recount = Edgemeter::Recount->start(rules => \$rules,
    env => { METERD_TEST_FLUSH_MS => 300 });
my $stack   = $recount->stack;
my @levels  = qw(5s 1m 1h 1d 7d);

# A test that dies leaves no process behind that stands still.
my $standing;
END { kill 'KILL', $standing if $standing }

# --- what is there --------------------------------------------------------

# All that was accepted is in all levels.
sub settle {
    wait_until {
        $stack->query(q{SELECT (SELECT count(*) FROM meter.series_dirty)
            + (SELECT count(*) FROM meter.writer_seq s
                JOIN meter.writer_flush f USING (writer)
                WHERE f.upto <> s.last)}) eq '0';
    } 60, 'everything is flushed and rolled up';
    return;
}

my %columns = (
    (map { ("series_$_" => 'tenant, series, version, dimension_key, bucket,'
            . ' count, sum, min, max, last, last_at, last_recorded_at,'
            . ' last_writer, last_seq, labels, counts') } @levels),
    series_key   => 'tenant, series, version, dimension_key, dimensions',
    entity_state => 'tenant, owner, entity, dimension_key, dimensions',
    event_index  => 'tenant, type, attribute, value, ts, part_day, writer,'
        . ' writer_seq',
);

# All in one question: it is asked often.
sub tables {
    my @names = sort keys %columns;
    my %rows;
    for my $line ($stack->query(join ' UNION ALL ', map {
        "SELECT '$_', ROW($columns{$_})::text FROM meter.$_" } @names))
    {
        my ($name, $row) = split /\t/, $line, 2;
        push @{ $rows{$name} }, $row;
    }
    return join "\n", map { ("-- $_", sort @{ $rows{$_} // [] }) } @names;
}

# The lines that are not in both.
sub is_as {
    my ($wanted, $name) = @_;
    my %in;
    my $of = '';
    $in{$_}++ for map { $of = $_ if /^-- /; "$of $_" } split /\n/, tables();
    $in{$_}-- for map { $of = $_ if /^-- /; "$of $_" } split /\n/, $wanted;
    my @differ = map { ($in{$_} > 0 ? '+' : '-') . $_ }
        grep { $in{$_} } sort keys %in;
    ok !@differ, $name
        or diag join "\n", @differ[0 .. ($#differ < 20 ? $#differ : 20)];
    return;
}

sub reconcile { return $recount->run('reconcile', @_) }

sub is_clean {
    my ($name, @words) = @_;
    my ($status, $out, $err) = reconcile(@words);
    is "$status $out", '0 ', $name or diag $err;
    return $err;
}

sub is_rebuilt {
    my ($name, @words) = @_;
    my ($status, $out, $err) = $recount->run('rebuild', @words);
    is $status, 0, $name or diag $out, $err;
    return ($out, $err);
}

# --- nothing is wrong -----------------------------------------------------

subtest 'nothing is wrong' => sub {
    is_clean('an empty database');
    $recount->load(400);
    $recount->load(60, ts => '2025-03-15T12:00:00Z');
    is_clean('before all is flushed');
    settle();
    is_clean('afterwards');
    my ($out) = is_rebuilt('nothing to rebuild', 'series');
    like $out, qr/: 0 differences, 0 slices written\n/, 'told';
    ($out) = is_rebuilt('nor in the index', 'index');
    like $out, qr/: 0 differences, 0 days written\n/, 'told';
    for (@levels) {
        ok $stack->query("SELECT count(*) FROM meter.series_$_") > 4,
            "there are buckets of $_";
    }
    ok $stack->query('SELECT count(*) FROM meter.event_index') > 50,
        'and an index';
    ok $stack->query(q{SELECT count(*) FROM meter.entity_state
        WHERE starts_with(owner, 'series:')}) > 5, 'and states';
};

subtest 'while events arrive' => sub {
    my $stop = $recount->load_start(3);
    is_clean("run $_", 'series', 'index') for 1 .. 3;
    is $stop->(), 0, 'all were accepted';
    settle();
    is_clean('afterwards');
};

# --- damage ---------------------------------------------------------------

my $key = 'tenant, series, version, dimension_key, bucket';

# One row of a series in a level.
sub one {
    my ($level, $series) = @_;
    return "($key) IN (SELECT $key FROM meter.series_$level"
        . " WHERE series = '$series' ORDER BY $key LIMIT 1)";
}

my @damage;
for my $level (@levels) {
    my $at = qr/acme: bucket \{"series":"calls","level":"$level","dimensions":\{.*\},"bucket":"[-0-9T:.Z]+"\}/;
    push @damage,
        ["$level: a count", series =>
            "UPDATE meter.series_$level SET count = count + 1 WHERE "
            . one($level, 'calls'),
            qr/$at: expected \{"count":"\d+"\}, found \{"count":"\d+"\}\n/],
        ["$level: a row is missing", series =>
            "DELETE FROM meter.series_$level WHERE " . one($level, 'calls'),
            qr/$at: expected \{"count":"\d+","sum":"[\d.]+"\}, found no row\n/],
        ["$level: a row too many", series =>
            "INSERT INTO meter.series_$level (tenant, series, version,"
            . " dimension_key, bucket, count, sum) SELECT tenant, series,"
            . " version, sha256('x'), bucket, 3, 1.5"
            . " FROM meter.series_$level WHERE " . one($level, 'calls'),
            qr/acme: bucket \{"series":"calls","level":"$level","dimension_key":"[0-9a-f]{64}".*: expected no row, found \{"count":"3","sum":"1.5"\}\n/];
}
push @damage,
    ['a sum', series => 'UPDATE meter.series_5s SET sum = sum + 0.000000001'
        . ' WHERE ' . one('5s', 'calls'),
        qr/"level":"5s".*expected \{"sum":.*found \{"sum":/],
    ['min and max', series => 'UPDATE meter.series_5s SET min = min - 1,'
        . ' max = NULL WHERE ' . one('5s', 'depth'),
        qr/"depth","level":"5s".*expected \{"min":"\d+","max":"\d+"\}, found \{"min":"-?\d+","max":null\}/],
    ['the place of the last one', series => 'UPDATE meter.series_1h'
        . " SET last_seq = last_seq + 1, last_at = last_at + interval '1 us'"
        . ' WHERE ' . one('1h', 'depth'),
        qr/"depth","level":"1h".*expected \{"last_at":.*"last_seq"/],
    ['a tally', series => 'UPDATE meter.series_5s SET counts[1] = counts[1] + 1'
        . ' WHERE ' . one('5s', 'sizes'),
        qr/"sizes","level":"5s".*expected \{"counts":\[.*found \{"counts":\[/],
    ['a label', series => q{UPDATE meter.series_1d SET labels[1] = '!'}
        . ' WHERE ' . one('1d', 'devices'),
        qr/"devices","level":"1d".*expected \{"labels":\["\[.*found \{"labels":\["!"/],
    ['labels in another order', series => 'UPDATE meter.series_7d SET labels ='
        . ' array(SELECT unnest(labels) ORDER BY 1 DESC), counts = array('
        . ' SELECT c FROM unnest(labels, counts) AS t (l, c) ORDER BY l DESC)'
        . ' WHERE ' . one('7d', 'devices'),
        qr/"devices","level":"7d".*expected \{"labels"/],
    ['dimensions', series => q{UPDATE meter.series_key SET dimensions =}
        . q{ '{"route":"z"}' WHERE tenant = 'acme' AND series = 'calls'}
        . q{ AND dimensions = '{"route":"/1"}'},
        qr/acme: dimensions \{"series":"calls","dimension_key":"[0-9a-f]{64}"\}: expected \{"route":"\/1"\}, found \{"route":"z"\}\n/],
    ['no dimensions', series => q{DELETE FROM meter.series_key},
        qr/globex: dimensions .*found no row\n/],
    ['a state', series => q{UPDATE meter.entity_state SET dimensions = '"x"'}
        . q{ WHERE tenant = 'acme' AND owner = 'series:devices'},
        qr/acme: state \{"series":"devices","entity":"d\d"\}: expected \/\d, found x\n/],
    ['no state', series => q{DELETE FROM meter.entity_state}
        . q{ WHERE starts_with(owner, 'series:')},
        qr/globex: state .*found no row\n/],
    ['a state too many', series => q{INSERT INTO meter.entity_state VALUES}
        . q{ ('acme', 'series:devices', '"new"', NULL, '"x"', now())},
        qr/acme: state \{"series":"devices","entity":"new"\}: expected no row, found x\n/],
    ['all series', series => 'TRUNCATE '
        . join(', ', map {"meter.series_$_"} @levels, 'key'),
        qr/"sizes","level":"5s"/],
    ['entries are missing', index => q{DELETE FROM meter.event_index}
        . q{ WHERE attribute = 'route' AND tenant = 'acme'},
        qr/acme: event \{"writer":"[0-9a-f]{32}","writerSeq":"\d+"\}: expected \{"route":"\\"\/\d\\""\}, found no row\n/],
    ['entries twice', index => q{INSERT INTO meter.event_index SELECT *}
        . q{ FROM meter.event_index WHERE tenant = 'globex'},
        qr/globex: event .*: expected no row, found \{/],
    ['another value', index => q{UPDATE meter.event_index SET value = '"y"'}
        . q{ WHERE attribute = 'route'},
        qr/expected \{"route":"\\"\/\d\\""\}, found \{"route":"\\"y\\""\}\n/],
    ['another time', index => q{UPDATE meter.event_index}
        . q{ SET ts = ts + interval '1 us' WHERE attribute = 'size'},
        qr/expected \{"size":"(\d+)"\}, found \{"size":"\1"\}\n/],
    ['entries of no event', index => q{INSERT INTO meter.event_index}
        . q{ SELECT 'ghost', type, attribute, value, ts, part_day, writer, 0}
        . q{ FROM meter.event_index LIMIT 1},
        qr/ghost: event .*"writerSeq":"0"\}: expected no row, found \{/],
    ['all entries', index => 'TRUNCATE meter.event_index',
        qr/expected \{"route":.*"size":.*found no row\n/];

my $right = tables();
for (@damage) {
    my ($name, $what, $sql, $told) = @$_;
    subtest $name => sub {
        $stack->query($sql);
        my ($status, $out, $err) = reconcile('--limit', 100_000);
        is $status, 1, 'is found' or diag $err;
        like $out, $told, 'and told' or diag substr $out, 0, 2000;
        my @others = grep { !/^$what: / } split /^/, $out;
        is "@others", '', 'nothing else';
        is_rebuilt("rebuild $what", $what);
        is_as($right, 'all as it was');
    };
}
is_clean('then nothing is wrong');

# --- some of it -----------------------------------------------------------

subtest 'some of it' => sub {
    $stack->query('UPDATE meter.series_5s SET count = count + 1');
    my (undef, $out) = reconcile('--name', 'depth', '--limit', 100_000);
    like $out, qr/"depth"/,   'a series';
    unlike $out, qr/"calls"/, 'no other one';
    (undef, $out) = reconcile('series', '--tenant', 'globex', '--limit',
        100_000);
    unlike $out, qr/acme/, 'a tenant';
    (undef, $out) = reconcile('--to', '2025-04-01', '--limit', 100_000);
    like $out, qr/2025-03-15/, 'up to a day';
    unlike $out, qr/"bucket":"2026/, 'nothing later';
    is_rebuilt('before a day', 'series', '--to', '2025-04-01');
    is_clean('is right', '--to', '2025-04-01');
    is_rebuilt('a series', 'series', '--name', 'depth');
    is_clean('is right', '--name', 'depth');
    my ($dry) = is_rebuilt('a dry run', 'series', '--dry-run');
    like $dry, qr/nothing was written/, 'told';
    isnt tables(), $right, 'nothing is';
    is_rebuilt('all the rest', 'series');
    is_as($right, 'all as it was');

    for (['series', '--to', 'x'], ['counters', '--name', 'depth'],
        ['series', '--name', 'nonsense'], ['index', '--to', '2025-01-01'],
        ['series', '--from', '2025-01-02', '--to', '2025-01-01'],
        ['series', '--checkpoint', 'x'], ['series', 'index'])
    {
        is +($recount->run('rebuild', @$_))[0], 2, "rebuild @$_";
    }
};

# --- killed ---------------------------------------------------------------

subtest 'killed on the way' => sub {
    for my $point (qw(rebuild_after_compare rebuild_after_lock
        rebuild_in_write rebuild_before_commit rebuild_after_commit
        rebuild_after_lock:2 rebuild_before_commit:2 rebuild_after_commit:2))
    {
        $stack->query('UPDATE meter.series_5s SET count = count + 1,'
            . ' sum = sum + 1');
        my $before = $stack->query('SELECT count(*) FROM meter.series_5s');
        my ($status) = $recount->run_with({ METERD_CRASH_POINT => $point },
            'rebuild', 'series');
        is $status, 256 + 9, "killed at $point";
        is $stack->query('SELECT count(*) FROM meter.series_5s'), $before,
            'no row is lost';
        is_rebuilt('a second run', 'series');
        settle();
        is_as($right, 'makes it right');
    }
    # all levels agree, and all are wrong
    $stack->query('UPDATE meter.series_5s SET count = count + 1');
    $stack->query('INSERT INTO meter.series_dirty (level, tenant, series,'
        . ' version, dimension_key, bucket, marked_at) SELECT DISTINCT 1,'
        . ' tenant, series, version, dimension_key, meter.series_bucket('
        . '1::smallint, bucket), now() FROM meter.series_5s');
    settle();
    my ($status) = $recount->run_with(
        { METERD_CRASH_POINT => 'rebuild_after_commit' }, 'rebuild', 'series');
    is $status, 256 + 9, 'killed behind a slice';
    settle();
    my (undef, $out) = reconcile('series', '--limit', 100_000);
    like $out, qr/"level":"5s"/, 'other slices are as they were';
    unlike $out, qr/"level":"(?!5s)/, 'the levels above know of it';
    is_rebuilt('a second run', 'series');
    is_as($right, 'makes it right');

    for my $point (qw(rebuild_in_write rebuild_after_commit)) {
        $stack->query(q{UPDATE meter.event_index SET value = 'x'});
        ($status) = $recount->run_with({ METERD_CRASH_POINT => $point },
            'rebuild', 'index');
        is $status, 256 + 9, "index: killed at $point";
        is_rebuilt('a second run', 'index');
        is_as($right, 'makes it right');
    }
};

# --- while events arrive --------------------------------------------------

subtest 'rebuilt while events arrive' => sub {
    my $stop = $recount->load_start(3);
    for (1 .. 3) {
        # rows of series are not in the way of those that ingest
        $stack->query('BEGIN; LOCK TABLE meter.writer_flush IN EXCLUSIVE MODE;'
            . ' UPDATE meter.series_5s SET count = count + 1, sum = sum - 1;'
            . q{ DELETE FROM meter.series_1m WHERE series = 'sizes';}
            . ' DELETE FROM meter.series_key; COMMIT');
        is_rebuilt("run $_", 'series');
        is_clean('is right', 'series');
        $stack->query(q{DELETE FROM meter.event_index WHERE value < '"/2'});
        is_rebuilt("index $_", 'index');
        is_clean('is right', 'index');
    }
    is $stop->(), 0, 'all events were accepted';
    settle();
    is_clean('and afterwards');
};

# A flush that comes between what is read and what is written must wait: its
# samples would be written over.
subtest 'a flush meanwhile' => sub {
    my $now = POSIX::strftime('%Y-%m-%dT%H:%M:%SZ', gmtime(time - 60));
    $recount->load(40, ts => $now);
    settle();
    my $before = $stack->query('SELECT sum(upto) FROM meter.writer_flush');
    $stack->query("UPDATE meter.series_5s SET count = count + 1"
        . " WHERE series = 'depth' AND bucket ="
        . " meter.series_bucket(0::smallint, '$now')");
    my $process = Edgemeter::Process->spawn(
        name => 'rebuild', user => $stack->account,
        log  => $stack->place->path('tmp') . '/rebuild.log',
        env  => { METERD_TEST_REBUILD_STOP => 1 },
        command => $recount->command('rebuild', 'series'));
    $standing = $process->pid;
    my $stands = sub {
        wait_until { waitpid($process->pid, WNOHANG | WUNTRACED) > 0 } 60,
            'the rebuild stands still or ends';
        return WIFSTOPPED(${^CHILD_ERROR_NATIVE});
    };
    ok $stands->(), 'it stands between reading and writing';
    $recount->load(40, ts => $now);
    wait_until {
        $stack->query(q{SELECT count(*) FROM pg_locks WHERE NOT granted
            AND relation = 'meter.writer_flush'::regclass}) > 0;
    } 60, 'a flush waits';
    is $stack->query('SELECT sum(upto) FROM meter.writer_flush'), $before,
        'nothing is flushed, and events are accepted';
    # It may stand again, where it looks once more before it writes.
    my $ends;
    for (1 .. 20) {
        kill 'CONT', $process->pid;
        $ends = !$stands->() and last;
    }
    ok $ends, 'it ends';
    is $?, 0, 'well';
    undef $standing;
    settle();
    ok $stack->query('SELECT sum(upto) FROM meter.writer_flush') > $before,
        'then they are flushed';
    is_clean('nothing is lost');
};

# --- levels that are not kept ------------------------------------------------

# Late events go to the lowest level that is kept; it is made from the ledger.
subtest 'below the floor of a level' => sub {
    $stack->query(q{UPDATE meter.partition_floor SET floor = '2025-03-20'
        WHERE parent IN ('series_5s', 'series_1m')});
    $stack->query("DELETE FROM meter.series_$_ WHERE bucket < '2025-03-20'")
        for qw(5s 1m);
    is_clean('the rest is right');
    $recount->load(60, ts => '2025-03-15T12:00:07Z');
    $recount->load(60, ts => '2025-03-19T23:59:59Z');
    $recount->load(60, ts => '2025-03-20T00:00:00Z');
    settle();
    is $stack->query(q{SELECT count(*) FROM meter.series_5s
        WHERE bucket < '2025-03-20'}), 0, 'no late event is below';
    is_clean('with late events');
    $right = tables();
    $stack->query(q{UPDATE meter.series_1h SET count = count + 1,
        sum = sum - 1 WHERE bucket < '2025-03-20'});
    $stack->query(q{DELETE FROM meter.series_1d WHERE bucket < '2025-04-01'});
    my ($status, $out) = reconcile('series');
    is $status, 1, 'damage is found';
    like $out, qr/"level":"1h".*"bucket":"2025-03-15/, 'and told';
    is_rebuilt('rebuilt', 'series');
    is_as($right, 'all as it was');
    is_clean('and told so');
};

# --- without a meterd -----------------------------------------------------

subtest 'without meterd' => sub {
    $right = tables();
    ok $recount->node($_)->process->stop('TERM', 30), "$_ ends" for qw(a b);
    is $stack->query('SELECT count(*) FROM meter.series_dirty'), 0,
        'all is rolled up';
    $stack->query('TRUNCATE '
        . join ', ', map {"meter.series_$_"} @levels, 'key', 'dirty');
    my ($status) = $recount->run_with(
        { METERD_CRASH_POINT => 'rebuild_in_rollup:2' }, 'rebuild', 'series');
    is $status, 256 + 9, 'killed while it computes the levels';
    is_rebuilt('rebuilt', 'series');
    is $stack->query('SELECT count(*) FROM meter.series_dirty'), 0,
        'no marks are left';
    is_as($right, 'all as it was');
    is_clean('and told so');

    $stack->query('UPDATE meter.series_1m SET count = count + 1');
    is +(reconcile('series'))[0], 1, 'wrong buckets';
    for (1, 2) {
        $stack->query('INSERT INTO meter.series_dirty (level, tenant, series,'
            . " version, dimension_key, bucket, marked_at) SELECT $_, tenant,"
            . ' series, version, dimension_key,'
            . " meter.series_bucket(${_}::smallint, bucket), now()"
            . ' FROM meter.series_1m');
    }
    is_clean('that wait to be computed are no difference', 'series');
    is_rebuilt('they are computed', 'series');
    is_as($right, 'and right');
};

# --- versions -------------------------------------------------------------

subtest 'another version' => sub {
    $recount->rules_use($rules =~ s/(name: calls.*dimensions: \[route)/$1, device/r);
    my ($status, $out, $err) = reconcile('series');
    is $status, 4, 'has no rows yet, since the rule is another one';
    unlike $out, qr/"depth"/, 'only this one';
    my (undef, $said) = is_rebuilt('rebuilt', 'series', '--name', 'calls');
    like $said, qr/ \d+ dimension sets of series, or versions of them/,
        'the old ones are told';
    is_clean('is right', 'series');
    is $stack->query(q{SELECT sum(sum) FROM meter.series_7d
        WHERE series = 'calls' GROUP BY version ORDER BY 1 LIMIT 1}),
        $stack->query(q{SELECT sum(quantity) FROM meter.event
            WHERE type = 'call'}), 'adds up to the same';
    $recount->rules_back;
    is_clean('the old one is as it was', 'series');
};

# --- retention ------------------------------------------------------------

subtest 'where the ledger lacks events' => sub {
    my $floor = $stack->query('SELECT current_date - 1');
    $right = tables();
    $stack->query("INSERT INTO meter.partition_floor VALUES ('event', '$floor')"
        . ' ON CONFLICT (parent) DO UPDATE SET floor = excluded.floor');
    $stack->query('UPDATE meter.series_1h SET count = count + 1'
        . q{ WHERE bucket < '2025-04-01'});    # of other versions, too
    my $damaged = tables();
    my ($status, undef, $err) = $recount->run('rebuild', 'series');
    is $status, 1, 'is refused';
    like $err, qr/retention has removed events before $floor, and there are series of that time/,
        'with the reason';
    is_as($damaged, 'nothing is changed');

    my $from = $floor;
    $stack->query('UPDATE meter.series_5s SET count = count + 1'
        . " WHERE series = 'depth' AND bucket >= '$from'");
    is_rebuilt('what is later', 'series', '--from', $from);
    is_as($damaged, 'is right, the rest is as it was');
    $stack->query('UPDATE meter.series_1h SET count = count - 1'
        . q{ WHERE bucket < '2025-04-01'});
    $stack->query('UPDATE meter.series_5s SET count = count + 1'
        . q{ WHERE bucket < '2025-04-01'});
    ($status, my $out, $err) = reconcile('series');
    like $err, qr/buckets of series before $floor are left out/, 'told';
    unlike $out, qr/"level":"5s"/, 'they are not compared with the ledger';
    like $out, qr/"level":"1m"/, 'but with each other';
    $stack->query('UPDATE meter.series_5s SET count = count - 1'
        . q{ WHERE bucket < '2025-04-01'});
    ($status, $out) = reconcile('series');
    is "$status $out", '3 ', 'no difference, but not all was compared';
    ($status, $out, $err) = reconcile('series', '--from', $from);
    is "$status $out", '3 ', 'nor were states, which are of all time';
    like $err, qr/states of entities are left out/, 'told';
};

done_testing;
