#!/usr/bin/perl

# 112-series-reload.t - rules of series that change under a buffer that is not
# flushed (SIGHUP): what was folded goes where it belonged when it came, what
# comes next goes by the new rules, and the series that stays is exact.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::Place;
use Edgemeter::SeriesNodes;
use Edgemeter::Wait qw(wait_until);

my $BEFORE = $Edgemeter::SeriesNodes::RULES . <<'YAML';
  - { name: spread, kind: counter, on: [call], dimensions: [route] }
YAML
my $AFTER = ($BEFORE
        =~ s/(name: spread.*dimensions: \[)route/$1route, host/r
        =~ s/^.*name: old,.*\n//mr) . <<'YAML';
  - { name: fresh, kind: counter, on: [call] }
YAML
my $nodes = Edgemeter::SeriesNodes->new(rules => $BEFORE);
my %quick = (env => { METERD_TEST_FLUSH_MS => 300 });
my $node  = $nodes->start('a', %quick);
my $old   = 0;

sub reload {
    my ($text) = @_;
    my $stack = $nodes->stack;
    my $done  = $node->metric('edgemeter_config_reloads_total');
    Edgemeter::Place::replace_file(($stack->config_arguments)[1], 0644,
        $stack->account, $text);
    $node->process->signal('HUP');
    wait_until { $node->metric('edgemeter_config_reloads_total') > $done } 10,
        'the rules are taken';
    return;
}

# 40 events, of which 20 are calls, and two of the type that loses its series.
sub send_all {
    $nodes->send('a', 40);
    my $got = $node->post('acme', [map {
        { event_id => 'old' . $old++, type => 'old',
            ts => Edgemeter::SeriesNodes::stamp(time) } } 1, 2]);
    is $got->{status}, 200, 'and two more';
    return;
}

# Samples of a series, of each version, the one with most of them first.
sub samples {
    my ($series) = @_;
    return join ' ', $nodes->query('SELECT sum(count) FROM meter.series_5s'
        . " WHERE series = '$series' GROUP BY version ORDER BY 1 DESC");
}

subtest 'a flush over a reload' => sub {
    send_all();
    $nodes->is_right('before');
    $nodes->holding('LOCK TABLE meter.writer_flush IN EXCLUSIVE MODE', sub {
        send_all();
        $nodes->wait_held;
        send_all();
        reload($AFTER);
        send_all();
        cmp_ok $nodes->unflushed, '>=', 126, 'three rounds are not flushed';
    });
    $nodes->is_right('the one that stays');
    is samples('spread'), '60 20', 'each version has its own';
    is samples('old'), '6', 'the one that went has what came before';
    is samples('fresh'), '20', 'the new one has what came afterwards';
    is $nodes->query(q{SELECT count(DISTINCT dimensions::jsonb ? 'host')
        FROM meter.series_key WHERE series = 'spread'}), 2,
        'with its dimensions';
};

# What is folded again goes by the rules of then.
subtest 'a kill after a reload' => sub {
    $nodes->holding('LOCK TABLE meter.writer_flush IN EXCLUSIVE MODE', sub {
        send_all();
        $nodes->wait_held;
        $nodes->end('a', 'KILL');
    });
    $node = $nodes->start('a', %quick);
    $nodes->is_right('the one that stays');
    is samples('spread'), '60 40', 'the new version goes on';
    is samples('old'), '6', 'the old one does not';
    is samples('fresh'), '40', 'the new one goes on';
};

subtest 'and back' => sub {
    reload($BEFORE);
    send_all();
    $nodes->is_right('the one that stays');
    is samples('spread'), '80 40', 'the first version goes on';
    is samples('old'), '8', 'and the one that went';
    is samples('fresh'), '40', 'the new one has ended';
};

done_testing;
