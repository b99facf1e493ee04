#!/usr/bin/perl

# 21-crash-points.t - meterd dies at every step of the ingest transaction;
# the client sends again, and everything is there once.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

# In order; what is known of the transaction when the process is gone.
my @points = (
    [after_read        => 'no'],
    [before_begin      => 'no'],
    [after_known       => 'no'],
    [after_registry    => 'no'],
    [after_ledger      => 'no'],
    [after_audit       => 'no'],
    [after_counters    => 'no'],
    [before_commit     => 'no'],
    [after_commit_sent => 'maybe'],
    [after_commit      => 'yes'],
    [before_answer     => 'yes'],
);

# Without an outbox: the hello of a ring would come to the points first.
my $conf = do {
    open my $file, '<', Edgemeter::Stack::root() . '/examples/nginx.conf'
        or die "nginx.conf: $!\n";
    local $/;
    <$file>;
};
$conf =~ s/^\s*meter_(?:outbox|zone)\s.*\n//mg;
$conf =~ s/^( *)location \/hello \{\n.*?^\1\}\n//ms;
unlike $conf, qr/meter on;/, 'no metered route';

my $stack = Edgemeter::Stack->for_test(nginx_conf => \$conf)->start;
my $http  = $stack->http('acme', timeout => 30);

sub restart {
    my ($env) = @_;
    $stack->stop_part('meterd') if $stack->alive('meterd');
    $stack->{env} = $env;
    $stack->start_part('meterd');
    $stack->wait_healthy;
    wait_until { $stack->http->get('/readyz')->{status} == 200 } 30, 'ready';
    return;
}

# Each event twice, so that there is something to audit.
sub body {
    my ($name, $count) = @_;
    my @events = map {
        {   event_id   => "$name-$_",
            type       => 'account.connected',
            ts         => '2026-09-01T12:00:00Z',
            attributes => { masterAccountId => $name }
        }
    } 1 .. $count;
    return [@events, @events];
}

# 1: few events go by INSERT; 50: more go by COPY.
for my $count (1, 50) {
    for my $point (@points) {
        my ($where, $committed) = @$point;
        my $name = "$where-$count";
        restart({ METERD_CRASH_POINT => $where });
        my $got = $http->post('/v1/events', body($name, $count));
        cmp_ok $got->{status}, '>=', 500, "$name: no answer";
        wait_until { !$stack->alive('meterd') } 10, 'meterd is gone';

        restart({});
        my $before = $stack->query(
            "SELECT count(*) FROM meter.event WHERE event_id LIKE '$name-%'");
        if ($committed eq 'maybe') {
            ok $before == 0 || $before == $count, "$name: all or nothing";
        }
        else {
            is $before, $committed eq 'yes' ? $count : 0,
                "$name: committed: $committed";
        }
        $got = $http->post('/v1/events', body($name, $count))->{json};
        is "$got->{accepted} $got->{duplicates}",
            join(' ', $count - $before, $count + $before),
            "$name: sent again";
        my $audited = $count + 2 * $before;
        is $stack->query(<<"SQL"), "$count\tt\t$count\t$audited",
SELECT (SELECT count(*) FROM meter.event WHERE event_id LIKE '$name-%'),
    (SELECT count(*) FROM meter.event_registry)
        = (SELECT count(*) FROM meter.event),
    (SELECT value FROM meter.counter WHERE counter_name = 'connects_total'
        AND dimensions = '{"masterAccountId":"$name"}'),
    (SELECT count(*) FROM meter.duplicate_audit
        WHERE event_id LIKE '$name-%')
SQL
            "$name: once in every table";
    }
}

is $stack->query('SELECT sum(last) = (SELECT count(*) FROM meter.event)'
        . ' FROM meter.writer_seq'), 't', 'numbers are dense';
$stack->stop;
done_testing;
