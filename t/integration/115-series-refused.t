#!/usr/bin/perl

# 115-series-refused.t - data that the database refuses at every try: a flush
# leaves out the rows that are refused alone, says so, and goes on; meterd
# rebuild makes them from the ledger. A rollup passes the mark over and keeps
# it. Where all is refused nothing is left out.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::SeriesNodes;
use Edgemeter::Wait qw(wait_until poll_until);

my $nodes = Edgemeter::SeriesNodes->new;
my %quick = (env => { METERD_TEST_FLUSH_MS => 300 });
my $node  = $nodes->start('a', %quick);
$nodes->query(<<'SQL');
CREATE SCHEMA test;
GRANT USAGE ON SCHEMA test TO PUBLIC;
CREATE FUNCTION test.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'this row is refused'
        USING ERRCODE = 'numeric_value_out_of_range';
END
$$;
SQL

sub refuse {
    my ($table, $which) = @_;
    $nodes->query("CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON"
        . " meter.$table FOR EACH ROW WHEN ($which)"
        . ' EXECUTE FUNCTION test.refuse()');
    return;
}

sub allow {
    my ($table) = @_;
    $nodes->query("DROP TRIGGER refuse ON meter.$table");
    return;
}

sub key_is {
    my ($dimensions) = @_;
    my $key = $nodes->query('SELECT dimension_key FROM meter.series_key'
        . " WHERE dimensions = '$dimensions'");
    return "new.dimension_key = '$key'";
}

sub metric { return $node->metric("edgemeter_$_[0]") }

sub failures { return metric('series_flush_failures_total') }

# Lines of the log that match all of these.
sub told {
    my (@all) = @_;
    my @lines = split /\n/, $node->log;
    for my $pattern (@all) {
        @lines = grep {/$pattern/} @lines;
    }
    return scalar @lines;
}

sub meterd {
    my ($command, @words) = @_;
    my ($status, $out, $err) = $nodes->stack->meterd_command($command,
        'series', @words, $nodes->stack->config_arguments);
    return $status >> 8, $out . $err;
}

sub is_rebuilt {
    my ($name) = @_;
    my ($status, $said) = meterd('rebuild');
    is $status, 0, "$name: rebuilt from the ledger" or diag $said;
    $nodes->is_right($name);
    return;
}

# Of each level as much as of 5s.
sub is_rolled_up {
    my ($name) = @_;
    my $left = '';
    ok +(poll_until {
        $left = $nodes->query(q{SELECT (SELECT count(*) FROM meter.series_dirty),
            (SELECT sum(count) FROM meter.series_5s)
            - (SELECT sum(count) FROM meter.series_1m),
            (SELECT sum(count) FROM meter.series_5s)
            - (SELECT sum(count) FROM meter.series_7d)});
        $left eq "0\t0\t0";
    } 30), "$name: all is rolled up" or diag $left;
    return;
}

$nodes->send('a', 40);
$nodes->is_right('before');
my $one = key_is('{"route":"/1"}');

subtest 'a key that is refused' => sub {
    refuse('series_5s', $one);
    $nodes->send('a', 40);
    $nodes->is_flushed('refused');
    is $nodes->differences('/1'), '0 0 t', 'all others are as the ledger says';
    isnt $nodes->differences, '0 0 t', 'this one is not';
    my $asides = $nodes->query(q{SELECT count(DISTINCT
        meter.series_bucket(0::smallint, ts)) FROM meter.event
        WHERE attributes::jsonb ->> 'route' = '/1' AND writer_seq > 40});
    wait_until { metric('series_aside_total') } 10, 'it is counted';
    is metric('series_aside_total'), $asides, 'each of its buckets is counted';
    is told('"level":"error"', 'meterd rebuild series makes it',
        '"series":"calls"', '\\{\\\\"route\\\\":\\\\"/1\\\\"\\}', '"series_level":"5s"',
        '"bucket":"20', '22003'), $asides, 'and told';
    is failures(), 3, 'after three tries';

    $nodes->send('a', 40);
    $nodes->is_flushed('refused again');
    is $nodes->differences('/1'), '0 0 t', 'the others go on';
    cmp_ok metric('series_aside_total'), '>', $asides, 'it is counted again';
    is failures(), 3, 'at the first try';
    is_rolled_up('what is there');

    $nodes->end('a', 'TERM');
    is $node->process->status, 0, 'it can end';
    allow('series_5s');
    $node = $nodes->start('a', %quick);
    is +(meterd('reconcile'))[0], 1, 'reconcile finds it';
    is_rebuilt('the key');
    is_rolled_up('the key');
    $nodes->send('a', 40);
    $nodes->is_right('and on');
    is metric('series_aside_total'), 0, 'without a word';
};

subtest 'a death before the COMMIT' => sub {
    $nodes->end('a', 'TERM');
    refuse('series_5s', $one);
    $node = $nodes->start('a',
        env => { %{ $quick{env} }, METERD_CRASH_POINT => 'before_flush_commit' });
    my $before = length $node->log;
    $nodes->send('a', 40);
    $nodes->end('a');
    unlike substr($node->log, $before), qr/set aside/, 'nothing was told';
    is $nodes->unflushed, 40, 'and nothing left out';
    allow('series_5s');
    $node = $nodes->start('a', %quick);
    $nodes->is_right('all of it');
};

subtest 'a name and a mark that are refused' => sub {
    refuse('series_key', q{new.dimensions = '{"route":"/77"}'});
    refuse('series_dirty', $one);
    my $at = Edgemeter::SeriesNodes::stamp(time);
    my $got = $node->post('acme', [map {
        { event_id => "named$_", type => 'call', ts => $at,
            attributes => { route => "/$_" } } } 1, 2, 77, 78]);
    is $got->{status}, 200, 'taken';
    $nodes->is_flushed('refused');
    is $nodes->differences('/77'), '0 0 t', 'others are as the ledger says';
    is $nodes->differences, '1 0 t', 'one has no name';
    wait_until { metric('series_aside_total') == 2 } 10, 'two are counted';
    is told('"level":"error"', 'a dimension set is refused', '/77'), 1,
        'the name is told';
    is told('"level":"error"', 'a bucket is refused', '"series_level":"1m"'), 1,
        'and the bucket above';
    allow($_) for qw(series_key series_dirty);
    is_rebuilt('name and mark');
    is_rolled_up('name and mark');
};

# A table that takes nothing is no matter of single rows.
subtest 'all is refused' => sub {
    refuse('series_5s', q{new.series = 'load'});
    my $asides = metric('series_aside_total');
    $nodes->send('a', 400, 1009);
    wait_until { told('a flush failed', 'too many rows are refused') } 60,
        'it is told';
    is metric('series_aside_total'), $asides, 'nothing is left out';
    cmp_ok $nodes->unflushed, '>=', 400, 'and nothing flushed';
    $nodes->send('a', 40);
    allow('series_5s');
    $nodes->is_right('then', 60);
    is metric('series_aside_total'), $asides, 'all of it';
    is_rolled_up('then');
};

subtest 'a rollup that is refused' => sub {
    refuse('series_1m', $one);
    $nodes->send('a', 40);
    $nodes->is_right('5s');
    wait_until { metric('rollup_asides') } 60, 'marks are set aside';
    ok +(poll_until {
        $nodes->query(q{SELECT count(*) FROM meter.series_dirty})
            == metric('rollup_asides')
    } 30), 'all others are worked off';
    is $nodes->query(<<"SQL"), 0, 'all other buckets are right';
SELECT count(*) FROM (
    SELECT series, dimension_key, meter.series_bucket(1::smallint, bucket),
        sum(count)
    FROM meter.series_5s GROUP BY 1, 2, 3
    EXCEPT SELECT series, dimension_key, bucket, count FROM meter.series_1m
) AS new WHERE NOT ($one)
SQL
    cmp_ok told('"level":"error"', 'a bucket is refused', 'stays marked',
        '"series_level":"1m"', '"series":"calls"', '22003'), '>', 0, 'it is told';
    is $nodes->query("SELECT count(*) FROM meter.series_dirty AS new"
        . " WHERE NOT ($one)"), 0, 'the marks of the refused one stay';
    $nodes->send('a', 40);
    $nodes->is_right('and on');

    allow('series_1m');
    $nodes->end('a', 'KILL');
    $node = $nodes->start('a', %quick);
    is_rolled_up('tried again');
    is metric('rollup_asides'), 0, 'nothing is aside';
};

done_testing;
