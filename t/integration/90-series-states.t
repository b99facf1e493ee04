#!/usr/bin/perl

# 90-series-states.t - state series: what an entity was before is decided in
# the order of commits and is in the ledger, whatever node took the event,
# however many came together, and wherever meterd died.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use POSIX ();
use Test::More;
use Edgemeter::Node;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(now wait_until);

my $seconds  = $ENV{TORTURE_SECONDS} || 3;
my $clients  = 3;                            # on each node
my $entities = 5;

my $rules = <<'YAML';
events:
  - { type: order.changed }
  - { type: device.changed }
  - { type: call }
counters:
  - counterName: changes
    dimensions: []
    rules: [ { on: order.changed, op: increment } ]
  - counterName: online
    dimensions: []
    transitions: { entity: order }
    rules: [ { on: device.changed, op: increment } ]
series:
  - { name: orders, kind: state, on: [order.changed, device.changed],
      entity: order, state: state }
  - { name: regions, kind: state, on: [order.changed], entity: order,
      state: region, dimensions: [shop] }
  - { name: calls, kind: counter, on: [call], dimensions: [shop] }
YAML

my $stack = Edgemeter::Stack->for_test(
    rules    => \$rules,
    settings => { deadlock_timeout => '20ms' });
$stack->prepare;
$stack->start_database;
$stack->migrate;
$stack->make_tokens;
# The registry takes a while: what can be prepared meanwhile is.
$stack->query(<<'SQL');
CREATE FUNCTION meter.dawdle() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_catalog.pg_sleep(0.003); RETURN NEW; END';
CREATE TRIGGER dawdle BEFORE INSERT ON meter.event_registry
    FOR EACH ROW WHEN (random() < 0.05) EXECUTE FUNCTION meter.dawdle();
SQL
my $ts = POSIX::strftime('%Y-%m-%dT%H:%M:%SZ', gmtime);

sub change {
    my ($id, $order, $state, %more) = @_;
    return {
        event_id   => $id,
        type       => $more{type} // 'order.changed',
        ts         => $ts,
        attributes => {
            order => $order,
            state => $state,
            $more{region} ? (region => $more{region}) : ()
        }
    };
}

# Ledger rows whose state before is not that of the row before; entities
# that are not where their last row left them.
sub broken {
    my ($series, $member) = @_;
    return $stack->query(<<"SQL");
WITH moved AS (
    SELECT tenant, (attributes::jsonb -> 'order')::text AS entity,
        (attributes::jsonb -> '$member')::text AS state,
        from_state::jsonb ? 'series:$series' AS is_told,
        from_state::jsonb ->> 'series:$series' AS told,
        lag((attributes::jsonb -> '$member')::text) OVER chain AS was,
        lead(writer_seq) OVER chain IS NULL AS is_last
    FROM meter.event
    WHERE attributes::jsonb ? '$member'
    WINDOW chain AS (
        PARTITION BY tenant, (attributes::jsonb -> 'order')::text
        ORDER BY recorded_at, writer, writer_seq
    )
)
SELECT (SELECT count(*) FROM moved
        WHERE NOT is_told OR told IS DISTINCT FROM was),
    (SELECT count(*) FROM moved AS last
        FULL JOIN (SELECT * FROM meter.entity_state
            WHERE owner = 'series:$series') AS held
            USING (tenant, entity)
        WHERE coalesce(last.is_last, true)
            AND (held.dimensions IS DISTINCT FROM last.state
                OR held.dimension_key IS NOT NULL))
SQL
}

# --- two nodes on the same entities ---------------------------------------

my %node = map {
    $_ => Edgemeter::Node->start($stack, name => $_)->wait_ready
} qw(a b);

sub client {
    my ($node, $name, $until) = @_;
    srand $$;
    for (my $list = 0; now() < $until; $list++) {
        my @events = map {
            change(
                "$name-$list-$_",
                'o' . int rand $entities,
                's' . int rand 4,
                region => 1 + int rand 3)
        } 1 .. ($list % 2 ? 1 + $list % 7 : 40);
        my $answer = $node->post('acme', \@events);
        POSIX::_exit(1)
            unless $answer->{status} == 200
            && $answer->{json}{accepted} == @events;
    }
    POSIX::_exit(0);
}

my @children;
for my $name (qw(a b)) {
    for my $number (1 .. $clients) {
        my $pid = fork // die "fork: $!";
        client($node{$name}, "$name$number", now() + $seconds) if $pid == 0;
        push @children, $pid;
    }
}
my $failed = 0;
for my $pid (@children) {
    waitpid $pid, 0;
    $failed += $? != 0;
}
is $failed, 0, 'every event was accepted';
my $events = $stack->query('SELECT count(*) FROM meter.event');
cmp_ok $events, '>', 200, "$events changes on $entities entities";
is $stack->query('SELECT count(DISTINCT writer) FROM meter.event'), 2,
    'from both nodes';
cmp_ok $stack->query(<<'SQL'), '>', 5, 'and in turns';
SELECT count(*) FROM (
    SELECT writer, lag(writer) OVER (
        PARTITION BY attributes::jsonb ->> 'order'
        ORDER BY recorded_at, writer, writer_seq
    ) AS other
    FROM meter.event
) AS turns
WHERE writer <> other
SQL
is broken('orders', 'state'), "0\t0", 'every state before is right';
is broken('regions', 'region'), "0\t0", 'of the other series, too';
is $stack->query("SELECT value FROM meter.counter"), $events,
    'counters went along';
for my $name (qw(a b)) {
    is $node{$name}->metric('edgemeter_batches_careful_total'), 0,
        "$name: never on the careful path";
    unlike $node{$name}->log, qr/do not go through|a statement failed/,
        "$name: nothing was tried in vain";
}
is $stack->query(<<'SQL'), 0, 'no deadlock';
SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()
SQL

# --- no states, duplicates, the careful path ------------------------------

my $held = 'SELECT count(*), max(updated_at), max(xmin::text::bigint)'
    . ' FROM meter.entity_state';
my $before = $stack->query($held);
is $node{a}->post('acme', [
        map {
            {   event_id => "call-$_", type => 'call', ts => $ts,
                attributes => { shop => $_ }
            }
        } 1 .. 20
    ])->{json}{accepted}, 20, 'other series';
is $stack->query($held), $before, 'they touch no entity';

my @again = map { change("again-$_", "o$_", 'new') } 1 .. 12;
is $node{a}->post('acme', \@again)->{json}{accepted}, 12, 'new entities';
$before = $stack->query($held);
is $node{b}->post('acme', \@again)->{json}{duplicates}, 12, 'sent again';
is $node{b}->post('acme', [map { { %$_, event_id => 'again-1' } } @again])
    ->{json}{accepted}, 0, 'conflicts';
is $stack->query($held), $before, 'duplicates and conflicts change nothing';

is $node{b}->post('acme', [
        change('twice-1', 'o1', 'x'), change('twice-1', 'o1', 'x'),
        change('twice-2', 'o1', 'y')
    ])->{json}{accepted}, 2, 'a repeat inside a list';
is $stack->query(<<'SQL'), q("x"), 'it is no step of its own';
SELECT from_state::jsonb ->> 'series:orders' FROM meter.event
WHERE event_id = 'twice-2'
SQL

# A transition counter makes the list careful; its mark stands beside.
is $node{a}->post('acme', [
        change('both-1', 'o1', 'z', type => 'device.changed'),
        change('both-2', 'o1', 7),
        change('both-3', 'o1', 'w"', type => 'device.changed')
    ])->{json}{accepted}, 3, 'counters with transitions in the list';
is $node{a}->metric('edgemeter_batches_careful_total'), 1, 'carefully';
is $stack->query(<<'SQL'), <<'TEXT' =~ s/\n\z//r, 'both are in the ledger';
SELECT from_state FROM meter.event WHERE event_id LIKE 'both-%'
ORDER BY event_id
SQL
{"online":null,"series:orders":"\"y\""}
{"series:orders":"\"z\""}
{"online":{},"series:orders":"7"}
TEXT
is broken('orders', 'state'), "0\t0", 'the chains still hold';

# --- commands for counters --------------------------------------------------

sub meterd {
    my (@words) = @_;
    my ($status, $out, $err) = Edgemeter::Process::capture(
        command => [
            $stack->{program}, @words, '-c', ($stack->config_arguments)[1],
            '-c', $stack->place->path('tmp') . '/a.yaml'
        ],
        user => $stack->account);
    return ($status >> 8, $out, $err);
}

my $rows = q(SELECT * FROM meter.entity_state WHERE owner LIKE 'series:%')
    . ' ORDER BY 1, 2, 3';
$before = $stack->query($rows);
my $file = $stack->place->path('tmp') . '/checkpoint.ndjson';
my ($status, $out, $err) = meterd('checkpoint', 'export', $file);
is $status, 0, 'a checkpoint' or diag $err;
my $saved = do { open my $text, '<', $file or die $!; local $/; <$text> };
unlike $saved, qr/series:/, 'leaves state series out';
like $saved, qr/"owner":"online"/, 'but not the counters';
$stack->query(q(UPDATE meter.counter SET value = value + 1
    WHERE counter_name = 'changes'));
$stack->query(q(DELETE FROM meter.entity_state WHERE owner = 'online'));
($status, $out, $err) = meterd('rebuild', 'counters');
is $status, 0, 'counters are rebuilt' or diag $err;
is $stack->query("SELECT value FROM meter.counter"
        . " WHERE counter_name = 'changes'"),
    $stack->query("SELECT count(*) FROM meter.event"
        . " WHERE type = 'order.changed'"), 'and are right again';
is $stack->query($rows), $before, 'states of series are as they were';
is +(meterd('reconcile', 'counters'))[0], 0, 'no drift';
$_->process->stop('TERM', 20) for values %node;

# --- death at every step ---------------------------------------------------

my @points = (
    [after_registry           => 'no'],
    [after_entities           => 'no'],
    [after_ledger             => 'no'],
    [after_counters           => 'no'],
    [before_commit            => 'no'],
    [after_commit_sent        => 'maybe'],
    [after_commit             => 'yes'],
    [after_commit_before_fold => 'yes'],
    [before_answer            => 'yes'],
);

# 1: few events go by INSERT; 30: more go by COPY.
for my $count (1, 30) {
    for my $point (@points) {
        my ($where, $committed) = @$point;
        my $name = "$where-$count";
        my @list = map { change("$name-$_", 'o' . $_ % 3, $name) } 1 .. $count;
        my $dying = Edgemeter::Node->start($stack, name => $name,
            env => { METERD_CRASH_POINT => $where })->wait_ready;
        my $got = $dying->post('acme', \@list);
        isnt $got->{status}, 200, "$name: no answer";
        wait_until { !$dying->process->alive } 10, 'meterd is gone';
        my $stored = $stack->query(
            "SELECT count(*) FROM meter.event WHERE event_id LIKE '$name-%'");
        if ($committed eq 'maybe') {
            ok $stored == 0 || $stored == $count, "$name: all or nothing";
        }
        else {
            is $stored, $committed eq 'yes' ? $count : 0,
                "$name: committed: $committed";
        }
        my $heir = Edgemeter::Node->start($stack, name => "$name-heir",
            copy_of => $dying->state_dir)->wait_ready;
        is $heir->post('acme', \@list)->{json}{accepted}, $count - $stored,
            "$name: sent again";
        is broken('orders', 'state'), "0\t0", "$name: the chains hold";
        $heir->process->stop('TERM', 20);
    }
}

# --- and the series say the same -------------------------------------------

my $reader = Edgemeter::Node->start($stack, name => 'last')->wait_ready;
my $missing = <<'SQL';
WITH told AS (
    SELECT '[' || coalesce(from_state::jsonb ->> 'series:orders', 'null')
        || ',' || (attributes::jsonb -> 'state')::text || ']' AS label,
        count(*) AS count
    FROM meter.event
    WHERE from_state::jsonb ? 'series:orders'
    GROUP BY 1
),
held AS (
    SELECT tally.label, sum(tally.count) AS count
    FROM meter.series_5s
    CROSS JOIN LATERAL unnest(labels, counts) AS tally (label, count)
    WHERE series = 'orders'
    GROUP BY 1
)
SELECT count(*) FROM told FULL JOIN held USING (label)
WHERE told.count IS DISTINCT FROM held.count
SQL
ok eval {
    wait_until { $stack->query($missing) eq '0' } 60, 'the tallies';
    1;
}, 'all transitions are in the series once' or diag $stack->query(<<'SQL');
SELECT series, sum(count) FROM meter.series_5s GROUP BY 1
SQL
is $stack->query("SELECT sum(sum) FROM meter.series_5s"
        . " WHERE series = 'calls'") + 0, 20, 'so are the others';
$reader->process->stop('TERM', 20);
$stack->stop;
done_testing;
