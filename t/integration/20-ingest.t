#!/usr/bin/perl

# 20-ingest.t - the ingest transaction off its beaten track: repeats inside a
# batch, the careful path, halves after a data error, missing partitions,
# a server that refuses, deadlocks.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use File::Temp ();
use POSIX ();
use Test::More;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

my $stack = Edgemeter::Stack->for_test(
    rules => \<<'YAML', settings => { deadlock_timeout => '5ms' })->start;
events:
  - { type: api.request }
  - { type: account.connected }
  - { type: account.disconnected }
counters:
  - counterName: active
    mode: persistent
    dimensions: [account]
    floorAtZero: true
    rules:
      - { on: account.connected, op: increment }
      - { on: account.disconnected, op: decrement }
    idempotency: { requireEventId: true, scope: globalEventId }
  - counterName: requests
    mode: persistent
    dimensions: [method, region, route, status]
    floorAtZero: false
    rules: [ { on: api.request, op: increment } ]
    idempotency: { requireEventId: true, scope: globalEventId }
YAML
my $acme = $stack->http('acme');

sub event {
    my ($id, %more) = @_;
    return {
        event_id   => $id,
        type       => 'account.connected',
        ts         => '2026-09-01T12:00:00Z',
        attributes => { account => 'a1' },
        %more
    };
}

sub post {
    my (@events) = @_;
    return $acme->post('/v1/events', \@events)->{json};
}

sub counts {
    my ($answer) = @_;
    return join ' ', map { $answer->{$_} // '-' }
        qw(accepted duplicates conflicts rejected);
}

sub metric {
    my ($name) = @_;
    my ($value)
        = $stack->http->get('/metrics')->{body} =~ /^\Q$name\E (\d+)$/m;
    return $value;
}

sub active {
    my ($account) = @_;
    return $stack->query("SELECT value FROM meter.counter WHERE tenant = 'acme'"
            . " AND counter_name = 'active'"
            . qq( AND dimensions = '{"account":"$account"}'));
}

# What must hold after everything: no effect without its registry row.
sub books_balance {
    my ($name) = @_;
    my $sums = $stack->query(<<'SQL');
SELECT (SELECT count(*) FROM meter.event_registry)
     = (SELECT count(*) FROM meter.event),
    (SELECT count(*) FROM meter.event)
     = (SELECT count(DISTINCT (tenant, event_id)) FROM meter.event),
    (SELECT bool_and(last = (SELECT count(*) FROM meter.event AS e
        WHERE e.writer = w.writer)) FROM meter.writer_seq AS w)
SQL
    is $sums, "t\tt\tt", "$name: registry and ledger agree, numbers are dense";
    return;
}

subtest 'a hundred copies of one id in one batch' => sub {
    is counts(post((event('copy')) x 100)), '1 99 0 0',
        'one accepted, the others duplicates';
    is $stack->query("SELECT count(*) FROM meter.duplicate_audit"
            . " WHERE event_id = 'copy' AND verdict = 1"), 99,
        'each of them audited';
    is active('a1'), 1, 'one counted';
    is counts(post(event('first'), event('first', quantity => 2),
            event('first'), event('second'))), '2 1 1 0',
        'the first content wins';
};

subtest 'the clamp in arrival order' => sub {
    my @steps = map {
        event("clamp$_",
            type => 'account.' . ($_ % 2 ? 'disconnected' : 'connected'),
            attributes => { account => 'clamp' })
    } 1 .. 101;
    is counts(post(@steps)), '101 0 0 0', 'down, up, down, ... down';
    is active('clamp'), 0, 'is nothing';
    is counts(post(event('up', attributes => { account => 'clamp' }))),
        '1 0 0 0', 'one up';
    is active('clamp'), 1, 'is one';
};

subtest 'an old id after a long calm' => sub {
    my $careful = metric('edgemeter_batches_careful_total');
    my @old = map { event("calm-0-$_", attributes => { account => 'calm' }) }
        1 .. 20;
    is counts(post(@old)), '20 0 0 0', 'new ones';
    for my $round (1 .. 12) {
        post(map { event("calm-$round-$_", attributes => { account => 'calm' }) }
                1 .. 20);
    }
    my $retries = metric('counter_update_conflict_retries');
    is counts(post(@old, event('calm-new', attributes => { account => 'calm' }))),
        '1 20 0 0', 'old ones are duplicates, the new one is accepted';
    is metric('counter_update_conflict_retries'), $retries + 1,
        'the unique index spoke';
    is metric('edgemeter_batches_careful_total'), $careful,
        'asking was enough';
    is active('calm'), 261, 'each counted once';
};

subtest 'a key registered while we wait for it' => sub {
    for my $size (1, 40) {
        my @events = map { event("race-$size-$_") } 1 .. $size;
        post(@events);

        # The rows go, and a transaction that is open puts them back.
        $stack->query(<<"SQL");
CREATE TABLE kept AS SELECT * FROM meter.event_registry
WHERE key IN (SELECT key FROM meter.event_registry
    ORDER BY first_seen_at DESC LIMIT $size);
DELETE FROM meter.event_registry WHERE key IN (SELECT key FROM kept);
SQL
        my $careful = metric('edgemeter_batches_careful_total');
        my $holder = Edgemeter::Process->spawn(
            name => 'holder',
            log  => $stack->place->path('tmp') . '/holder.log',
            user => $stack->account,
            command => [
                $stack->cluster->{bin} . '/psql', '-q', '--dbname',
                $stack->database_url, '-c',
                'BEGIN', '-c', 'INSERT INTO meter.event_registry'
                    . ' SELECT * FROM kept', '-c', <<'SQL', '-c', 'COMMIT'],
DO $$
BEGIN
    FOR i IN 1 .. 2000 LOOP
        EXIT WHEN EXISTS (SELECT FROM pg_locks WHERE NOT granted
            AND locktype = 'transactionid');
        PERFORM pg_sleep(0.005);
    END LOOP;
END
$$
SQL
        );
        wait_until {
            $stack->query("SELECT count(*) FROM pg_locks WHERE granted AND"
                . " mode = 'RowExclusiveLock' AND relation ="
                . " 'meter.event_registry'::regclass")
        } 10, 'the rows are back, not committed';
        is counts(post(@events)), "0 $size 0 0", "$size: duplicates";
        wait_until { !$holder->alive } 10, 'the other transaction ends';
        cmp_ok metric('edgemeter_batches_careful_total'), '>', $careful,
            "$size: by the careful path";
        $stack->query('DROP TABLE kept');
    }
    books_balance('race');
};

subtest 'the database refuses one event' => sub {
    $stack->query("ALTER TABLE meter.event ADD CONSTRAINT no_poison"
        . " CHECK (event_id NOT LIKE 'poison%') NOT VALID");
    for my $place (0, 1, 57, 99) {
        my @events = map { event("good-$place-$_") } 1 .. 99;
        splice @events, $place, 0, event("poison-$place");
        my $got = post(@events);
        is counts($got), '99 0 0 1', "at $place: only that one is rejected";
        is $got->{results}[$place]{verdict}, 'rejected', 'the right one';
        like $got->{results}[$place]{error}, qr/SQLSTATE 23514/,
            'the reason has the code';
    }
    is counts(post(event('poison-alone'))), '0 0 0 1', 'alone';
    cmp_ok metric('edgemeter_batches_bisected_total'), '>=', 20,
        'batches were halved';
    $stack->query('ALTER TABLE meter.event DROP CONSTRAINT no_poison');
    is counts(post(event('poison-alone'))), '1 0 0 0',
        'a rejected id stays free';
    books_balance('poison');
};

subtest 'a partition is gone' => sub {
    is counts(post(event('day1', ts => '2026-03-03T00:00:00Z'))), '1 0 0 0',
        'a day on demand';
    my ($table) = $stack->query("SELECT tableoid::regclass FROM meter.event"
        . " WHERE event_id = 'day1'");
    $stack->query("DELETE FROM $table; ALTER TABLE meter.event"
        . " DETACH PARTITION $table; DROP TABLE $table");
    is counts(post(map { event("day2-$_", ts => '2026-03-03T00:00:00Z') }
            1 .. 30)), '30 0 0 0', 'made again';
    is $stack->query("SELECT count(*) FROM meter.event"
            . " WHERE part_day = '2026-03-03'"), 30, 'rows are where they belong';
    $stack->query("DELETE FROM meter.event_registry WHERE part_day ="
        . " '2026-03-03' AND NOT EXISTS (SELECT FROM meter.event AS e WHERE"
        . " e.part_day = '2026-03-03' AND e.ts = event_registry.ts AND"
        . " e.recorded_at = event_registry.first_seen_at)");
    $stack->query("UPDATE meter.writer_seq AS w SET last = (SELECT count(*)"
        . " FROM meter.event AS e WHERE e.writer = w.writer)");
    books_balance('day');
};

subtest 'a server that refuses is waited for' => sub {
    $stack->query('REVOKE INSERT ON meter.event FROM meter_writer');
    my $pid = fork // die "fork: $!";
    if ($pid == 0) {
        my $got = $stack->http('acme')->post('/v1/events', [event('wait')]);
        POSIX::_exit(($got->{json}{accepted} // 0) == 1 ? 0 : 1);
    }
    wait_until { $stack->http->get('/readyz')->{status} == 503 } 10,
        'not able to commit';
    $stack->query('GRANT INSERT ON meter.event TO meter_writer');
    waitpid $pid, 0;
    is $?, 0, 'accepted when it could be';
    wait_until { $stack->http->get('/readyz')->{status} == 200 } 10, 'ready';
    books_balance('wait');
};

subtest 'two dimension sets with one key' => sub {
    post(event('collide0', attributes => { account => 'collide' }));
    $stack->query(q(UPDATE meter.counter SET dimensions = '{"account":"x"}')
        . q( WHERE dimensions = '{"account":"collide"}'));
    my $got = post(event('before'),
        event('collide1', attributes => { account => 'collide' }),
        event('after'));
    is counts($got), '2 0 0 1', 'only the event on that row is rejected';
    like $got->{results}[1]{error}, qr/share their key/, 'with a reason';
    like $stack->log('meterd'), qr/two dimension sets share a key/, 'logged';
    is active('x'), 1, 'the other row did not move';
    books_balance('collision');
};

subtest 'log lines of duplicates are few' => sub {
    post(event('noisy'));
    post((event('noisy')) x 500);
    my $lines = () = $stack->log('meterd')
        =~ /"eventId":"noisy","op":"INC","result":"DROPPED_DUPLICATE"/g;
    cmp_ok $lines, '>=', 1,   'some';
    cmp_ok $lines, '<=', 200, 'not all';
    wait_until { $stack->log('meterd') =~ /lines suppressed/ } 10,
        'the rest is told as a number';
    pass 'the rest is told as a number';
};

# Two lanes with the same ids and the same counter rows, in one process each.
subtest 'two lanes at once' => sub {
    my $driver = $ENV{INGEST_DRIVER}
        || Edgemeter::Stack::root() . '/build/bench/ingest_driver';
    plan skip_all => "$driver is not built" unless -x $driver;
    my $deadlocks = sub {
        return $stack->query('SELECT deadlocks FROM pg_stat_database'
            . " WHERE datname = 'edgemeter'");
    };
    my @state = map { File::Temp->newdir('em-lane-XXXXXX', TMPDIR => 1) } 0, 1;
    my $both = sub {
        my ($env, @options) = @_;
        my @lanes;
        for my $lane (0, 1) {
            my $log = "$state[$lane]/log";
            unlink $log;
            push @lanes, Edgemeter::Process->spawn(
                name    => "lane $lane",
                log     => $log,
                env     => $env,
                command => [
                    $driver,
                    '--database', $stack->cluster->url('meterd', 'edgemeter'),
                    '--admin', $stack->cluster->url('meter_owner', 'edgemeter'),
                    '--state-dir', "$state[$lane]",
                    '--rules', Edgemeter::Stack::root() . '/bench/rules.yaml',
                    '--ids', 'random',
                    map { ref $_ ? $_->[$lane] : $_ } @options
                ],
            );
        }
        wait_until { !grep { $_->alive } @lanes } 120, 'both lanes end';
        my %sum;
        for my $lane (0, 1) {
            is $lanes[$lane]->status, 0, "lane $lane ended well";
            open my $file, '<', "$state[$lane]/log" or die;
            local $/;
            my $out = <$file>;
            $sum{$1} += $2 while $out =~ /(\w+)=(\d+)/g;
        }
        return \%sum;
    };

    my $before = $stack->query('SELECT count(*) FROM meter.event');
    # Two processes that start at different moments may miss each other.
    my ($meetings, $met, $sum) = (0, 0);
    while (!$met && $meetings < 20) {
        $meetings++;
        $sum = $both->({}, '--batches', 150, '--events', 20,
            '--seed', 1000 + $meetings, '--outstanding', 1);
        is $sum->{accepted},   3000, 'every id accepted once';
        is $sum->{duplicates}, 3000, 'and once a duplicate';
        $met += $sum->{retries};
    }
    cmp_ok $met, '>', 0, 'they met';
    my $met_events = 3000 * $meetings;
    is $stack->query('SELECT count(*) FROM meter.event'),
        $before + $met_events, 'the ledger has each once';
    is $stack->query("SELECT sum(value) FROM meter.counter"
            . " WHERE counter_name = 'requests'"), $met_events, 'counted once';

    my $start = $deadlocks->();
    # The same rows from both ends, many to a batch.
    my @crossing = ('--batches', 600, '--events', 50, '--outstanding', 40,
        '--tenants', 20, ['--ids=random', '--reverse']);
    $sum = $both->({}, @crossing, '--seed', [8, 9]);
    is $sum->{accepted}, 60_000, 'other ids, same counter rows';
    is $sum->{retries}, 0, 'sorted keys: nothing had to run again';
    is $deadlocks->(), $start, 'the server saw no deadlock';

    # The control: without the order there are deadlocks, sooner or later.
    my ($rounds, $retries) = (0, 0);
    while (!$retries && $rounds < 20) {
        $rounds++;
        $sum = $both->({ METERD_TEST_UNSORTED => 1 }, @crossing,
            '--seed', [10 * $rounds, 10 * $rounds + 1]);
        is $sum->{accepted}, 60_000, 'unsorted keys: still all accepted';
        $retries += $sum->{retries};
    }
    cmp_ok $retries, '>', 0, 'after deadlocks, so the test can fail';
    wait_until { $deadlocks->() > $start } 60, 'the server counted them';
    is $stack->query("SELECT sum(value) FROM meter.counter"
            . " WHERE counter_name = 'requests'"),
        $met_events + 60_000 * (1 + $rounds), 'counted once';
    books_balance('lanes');
};

$stack->stop;
done_testing;
