#!/usr/bin/perl

# 91-series-flush.t - what was accepted is in series_5s once: at the end of
# the window, after a death at any step of a flush, from two nodes, with too
# little room, and from a writer that never comes back.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::SeriesNodes;
use Edgemeter::Wait qw(poll_until);

my $nodes = Edgemeter::SeriesNodes->new;
my $stack = $nodes->stack;

# Only the first subtest waits for the end of 5 s.
my %quick = (METERD_TEST_FLUSH_MS => 300);

sub start_node {
    my ($name, %arg) = @_;
    return $nodes->start($name, %arg, env => { %quick, %{ $arg{env} // {} } });
}

sub end_node  { return $nodes->end(@_) }
sub node      { return $nodes->node(@_) }
sub send_some { return $nodes->send(@_) }
sub unflushed { return $nodes->unflushed }
sub is_right  { return $nodes->is_right(@_) }

subtest 'at the end of the window' => sub {
    $nodes->start('a');
    send_some('a', 40);
    is_right('a flush');
    cmp_ok node('a')->metric('edgemeter_series_flushed_rows_total'), '>', 0,
        'rows were counted';
    send_some('a', 40);
    is_right('a second one into the same rows');
    my $then = $stack->query('SELECT flushed_at FROM meter.writer_flush');
    ok poll_until(sub {
        $stack->query("SELECT flushed_at > '$then' FROM meter.writer_flush")
            eq 't' }, 15), 'time moves when nothing comes in';
    ok poll_until(sub {
        $stack->query('SELECT count(*) FROM meter.series_dirty') == 0 }, 30),
        'marks are worked off';
    is $stack->query('SELECT sum(count) FROM meter.series_1m'),
        $stack->query('SELECT sum(count) FROM meter.series_5s'),
        'and the level above has it';
};

subtest 'the end of the process is a flush' => sub {
    send_some('a', 30);
    end_node('a', 'TERM');
    is node('a')->process->status, 0, 'a good end';
    is unflushed(), 0, 'nothing is left';
    is_right('after the end');
};

for my $point (qw(before_flush_commit inside_flush after_flush_commit)) {
    subtest "death: $point" => sub {
        start_node('a', env => { METERD_CRASH_POINT => $point });
        send_some('a', 50);
        end_node('a');
        my $left = unflushed();
        $point eq 'after_flush_commit'
            ? is($left, 0, 'it was committed')
            : is($left, 50, 'nothing was committed');
        my $before = length node('a')->log;
        start_node('a');
        send_some('a', 10);
        is_right($point);
        my $log = substr node('a')->log, $before;
        is $log =~ /recovered.*"events":50\b/ ? 50 : 0, $left,
            'read again from the ledger, or not';
        end_node('a', 'KILL');
        start_node('a');
        is_right("$point, killed once more");
        end_node('a', 'TERM');
    };
}

# Of these some is not flushed when the database goes.
subtest 'two nodes add to the same rows' => sub {
    start_node($_, env => { METERD_TEST_FLUSH_MS => 2000 }) for qw(a b);
    for (1 .. 10) {
        send_some($_, 20) for qw(a b);
    }
    is_right('two nodes');
};

subtest 'the database goes away in the middle' => sub {
    for my $mode (qw(fast immediate)) {
        send_some('a', 50);
        $stack->cluster->stop($mode);
        $stack->cluster->relaunch;
        send_some('b', 50);
        is_right("after $mode", 60);
    }
    end_node($_, 'TERM') for qw(a b);
};

subtest 'no room' => sub {
    start_node('a', yaml => { limits => '{ seriesCells: 20, batchEvents: 40 }' });
    for (1 .. 10) {
        send_some('a', 400, 97);
    }
    is_right('a small buffer', 60);
    my $lost = 0;
    for (1 .. 12) {           # between any two answers of a flush
        send_some('a', 40, 97);
        $lost += $stack->query('SELECT count(pg_terminate_backend(pid))'
            . " FROM pg_stat_activity WHERE application_name ~ 'series'");
    }
    cmp_ok $lost, '>', 0, "$lost connections were cut";
    is_right('flushes without an answer', 60);
    cmp_ok node('a')->metric('edgemeter_series_early_flushes_total'), '>', 0,
        'flushed early';
    cmp_ok node('a')->metric('edgemeter_series_stalls_total'), '>', 0,
        'and events waited';
    end_node('a', 'TERM');
};

sub writer_of {
    my ($name) = @_;
    open my $file, '<', node($name)->state_dir . '/writer-0' or die $!;
    chomp(my $writer = <$file>);
    return $writer;
}

sub writer_row {
    my ($name) = @_;
    my $writer = writer_of($name);
    return split /\t/, $stack->query('SELECT epoch, retired_at IS NOT NULL'
        . " FROM meter.writer WHERE writer = '$writer'");
}

subtest 'a writer that never comes back' => sub {
    # Longer than a writer that lives may have a tail and no heartbeat.
    start_node('a', env => { METERD_TEST_ORPHAN_MS => 4000 });
    start_node('b', env => { METERD_CRASH_POINT => 'inside_flush' });
    my ($epoch) = writer_row('b');
    send_some('b', 60);
    end_node('b');
    is_right('its tail', 30);
    is_deeply [writer_row('b')], [$epoch + 1, 't'], 'fenced and retired';
    is node('a')->metric('edgemeter_series_orphans_total'), 1, 'by the other';
    start_node('b');
    is_deeply [writer_row('b')], [$epoch + 2, 'f'], 'it may come back';
    send_some('b', 10);
    is_right('then it goes on');
};

subtest 'a writer that only slept' => sub {
    my ($epoch) = writer_row('b');
    for my $try (1 .. 5) {    # it may flush just before it sleeps
        send_some('b', 60);
        node('b')->process->signal('STOP');
        last if unflushed() > 0;
        node('b')->process->signal('CONT');
    }
    cmp_ok unflushed(), '>', 0, 'it sleeps with a tail';
    is_right('its tail', 30);
    is_deeply [writer_row('b')], [$epoch + 1, 't'], 'fenced and retired';
    my $before = $stack->query('SELECT count(*) FROM meter.event');
    node('b')->process->signal('CONT');
    end_node('b');
    like node('b')->log, qr/another instance took this writer/, 'it ends';
    is $stack->query('SELECT count(*) FROM meter.event'), $before,
        'and has committed nothing';
    is_right('afterwards');
    end_node('a', 'TERM');
};

subtest 'older than a level is kept' => sub {
    $stack->query(<<'SQL');
UPDATE meter.partition_floor SET floor = CASE parent
    WHEN 'series_5s' THEN current_date
    WHEN 'series_1m' THEN current_date
    ELSE meter.partition_first(parent, current_date - 400) END
WHERE parent LIKE 'series_%'
SQL
    start_node('a');
    my $day = 86_400 * int(time / 86_400);
    my @ages = (3 * 86_400, 3 * 86_400 + 7, 3 * 86_400 + 5000, 5000 * 86_400);
    my $got = node('a')->post('acme', [map {
        { event_id => "old$_", type => 'old', ts => Edgemeter::SeriesNodes::stamp($day - $_),
            quantity => 2 } } @ages]);
    is $got->{status}, 200, 'taken';
    ok poll_until(sub { unflushed() == 0 }, 20), 'flushed';
    is $stack->query(q{SELECT count(*) FROM meter.series_5s
        WHERE series = 'old'}), 0, 'not in 5s';
    is $stack->query(q{SELECT count(*), sum(count), sum(sum)::int
        FROM meter.series_1h WHERE series = 'old'}), "3\t3\t6",
        'in the lowest level that is kept';
    ok poll_until(sub { $stack->query(q{SELECT count(*), sum(count)
        FROM meter.series_7d WHERE series = 'old'}) eq "1\t3" }, 30),
        'and in those above' or diag $stack->query(q{SELECT bucket, count
            FROM meter.series_7d WHERE series = 'old'});
    is node('a')->metric('edgemeter_series_expired_total'), 1,
        'older than all: counted';
};

done_testing;
