#!/usr/bin/perl

# 110-series-commit.t - a flush whose COMMIT gets no answer: writer_flush.upto
# decides. And a database that went back while meterd runs: what is folded
# again is what its ledger has.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::Proxy;
use Edgemeter::SeriesNodes;
use Edgemeter::Url;
use Edgemeter::Wait qw(wait_until);

my $nodes   = Edgemeter::SeriesNodes->new;
my $cluster = $nodes->stack->cluster;
my $proxy   = Edgemeter::Proxy->new(every => 0, name => qr/meterd series/,
    socket => "$cluster->{sockets}/.s.PGSQL.5432")->start;
my $host = Edgemeter::Url::encode($proxy->directory);
my $node = $nodes->start('a',
    yaml => { database => "'postgresql://meterd\@$host/edgemeter'" },
    env  => { METERD_TEST_FLUSH_MS => 300 });

# How often the log has said this.
sub said {
    my ($what) = @_;
    return scalar(() = $node->log =~ /\Q$what\E/g);
}

# --- no answer ------------------------------------------------------------

# The flush stands in front of its marks: the next COMMIT is its own.
sub cut {
    my ($kind) = @_;
    my %before = $proxy->cuts;
    $nodes->holding('LOCK TABLE meter.series_dirty IN EXCLUSIVE MODE', sub {
        $nodes->send('a', 40);
        $nodes->wait_held;
        $proxy->arm($kind);
    });
    wait_until { +{ $proxy->cuts }->{$kind} > $before{$kind} } 20,
        'the COMMIT is cut';
    return;
}

$nodes->send('a', 40);
$nodes->is_right('without a cut');
for (['after', 1], ['before', 0], ['late', 1]) {
    my ($kind, $is_committed) = @$_;
    subtest "a COMMIT without an answer: $kind" => sub {
        my ($committed, $failed)
            = map { said($_) } 'had been committed', 'a flush failed';
        cut($kind);
        $nodes->is_right($kind);
        $nodes->send('a', 40);
        $nodes->is_right("$kind, and on");
        is said('had been committed') - $committed, $is_committed,
            $is_committed ? 'it is found to be committed'
            : 'it is found not to be';
        is said('a flush failed') - $failed, 1, 'after one failure';
        is said('astray'), 0, 'and the buffer was kept';
    };
}

# --- an older database ----------------------------------------------------

# The state of the database as it is with nobody on it.
sub database_keep {
    my ($name) = @_;
    $cluster->stop('fast');
    system('cp', '-a', $cluster->{data}, "$cluster->{data}.$name") == 0
        or die "cp\n";
    return;
}

sub database_back {
    my ($name) = @_;
    $cluster->stop('fast');
    system('rm', '-rf', $cluster->{data}) == 0 or die "rm\n";
    rename "$cluster->{data}.$name", $cluster->{data} or die $!;
    return;
}

sub database_start {
    my $before = said('"message":"ready","lane"');
    wait_until { $cluster->relaunch } 20, 'PostgreSQL starts';
    wait_until { said('"message":"ready","lane"') > $before } 30,
        'meterd has found it';
    $node->wait_ready(30);
    return;
}

# The ledger has them all; only the flush is not in what comes back.
subtest 'a database that lacks a flush' => sub {
    $nodes->holding('LOCK TABLE meter.writer_flush IN EXCLUSIVE MODE', sub {
        $nodes->send('a', 50);
        $nodes->wait_held;
        database_keep('unflushed');
    });
    database_start();
    $nodes->is_right('flushed', 60);
    database_back('unflushed');
    database_start();
    $nodes->is_right('once more', 60);
    is said('went astray'), 1, 'the flush was of another state';
    like $node->log, qr/"recovered","events":50,/, 'all was folded again';
    $nodes->send('a', 20);
    $nodes->is_right('and on');
};

# Events that were accepted are gone, and their numbers are given anew.
subtest 'a database that lacks events' => sub {
    database_keep('before');
    database_start();
    $nodes->send('a', 30);
    $nodes->is_right('flushed', 60);
    $nodes->holding('LOCK TABLE meter.writer_flush IN EXCLUSIVE MODE', sub {
        $nodes->send('a', 10);    # in the buffer alone
        database_back('before');
    });
    database_start();
    is said('the database went back'), 1, 'it is noticed';
    $nodes->send('a', 25);
    $nodes->is_right('new events with old numbers', 60);
    $nodes->end('a', 'KILL');
    $nodes->start('a');
    $nodes->is_right('after a start', 60);
};

done_testing;
