#!/usr/bin/perl

# 75-close.t - closed periods: a figure that was told never changes, and
# every event is in it or is an adjustment.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use File::Temp ();
use POSIX ();
use Test::More;
use Edgemeter::Node;
use Edgemeter::Stack;
use Edgemeter::Wait qw(now wait_until);

my $stack = Edgemeter::Stack->for_test(rules => \<<'YAML')->start;
events:
  - { type: api.request }
meters:
  - { metric: calls, on: [api.request], value: quantity, aggregation: sum, period: month, lateness: 48h, groupBy: [route] }
  - { metric: peak, on: [api.request], value: quantity, aggregation: max, period: month }
  - { metric: hourly, on: [api.request], aggregation: count, period: hour }
  - { metric: all.sum, on: [api.request], aggregation: sum, period: month, lateness: 24h, groupBy: [route] }
  - { metric: all.count, on: [api.request], aggregation: count, period: month, lateness: 24h, groupBy: [route] }
  - { metric: all.min, on: [api.request], aggregation: min, period: month, lateness: 24h, groupBy: [route] }
  - { metric: all.max, on: [api.request], aggregation: max, period: month, lateness: 24h, groupBy: [route] }
  - { metric: all.avg, on: [api.request], aggregation: avg, period: month, lateness: 24h, groupBy: [route] }
  - { metric: all.last, on: [api.request], aggregation: last, period: month, lateness: 24h, groupBy: [route] }
  - { metric: all.unique, on: [api.request], value: who, aggregation: unique, period: month, lateness: 24h, groupBy: [route] }
YAML
my $http = $stack->http('acme');

sub close_period {
    my ($metric, $period, $client) = @_;
    return ($client // $http)->post('/v1/usage/close',
        { metric => $metric, period => $period });
}

sub told {
    my ($got) = @_;
    return "$got->{status} " . ($got->{json}{error} // '');
}

sub usage {
    my (%query) = @_;
    return $http->get('/v1/usage', metric => 'calls', customer => 'c',
        %query)->{json};
}

sub event {
    my ($id, $ts, $quantity) = @_;
    return { event_id => $id, type => 'api.request', ts => $ts,
        customer => 'c', quantity => $quantity,
        attributes => { route => '/a' } };
}

sub ingest {
    my (@event) = @_;
    is $http->post('/v1/events', event(@event))->{json}{accepted}, 1,
        "$event[0] accepted";
    return;
}

# With an environment for meterd.
sub restart {
    my ($env) = @_;
    $stack->stop_part('meterd') if $stack->alive('meterd');
    $stack->{env} = $env;
    $stack->start_part('meterd');
    $stack->wait_healthy;
    wait_until { $stack->http->get('/readyz')->{status} == 200 } 30, 'ready';
    return;
}

subtest 'a period is closed' => sub {
    my %march = (period => '2025-03');
    ingest('m1', '2025-03-05T00:00:00Z', 10);
    ok !usage(%march)->{closed}, 'open';
    my $got = close_period('calls', '2025-03');
    is $got->{status}, 200, 'closed';
    my $closed_at = $got->{json}{closed_at};
    like $closed_at, qr/^20\d\d-.*Z$/, 'closed_at';
    is_deeply $got->{json}, { metric => 'calls', period => '2025-03',
        closed => JSON::PP::true, closed_at => $closed_at }, 'the answer';
    is_deeply close_period('calls', '2025-03')->{json}, $got->{json},
        'again: the same answer';
    ok usage(%march)->{closed}, 'usage says so';
    ok usage(%march, customer => 'nobody')->{closed},
        'of customers without usage too';

    ingest('m2', '2025-03-06T00:00:00Z', 3);
    my $usage = usage(%march);
    is "$usage->{value} $usage->{total}", '10 13',
        'an event after the close is an adjustment';
    is $usage->{watermark}, '2025-03-05T00:00:00.000000Z',
        'the watermark stays';
    my @adjustments = @{ $usage->{adjustments} };
    is scalar @adjustments, 1, 'one';
    is $adjustments[0]{event_id}, 'm2', 'that names the event';
    is $adjustments[0]{amount}, '3', 'with its amount';
    like $adjustments[0]{reason}, qr/closed/, 'and the reason';
    is $stack->query("SELECT string_agg(event_id || ' ' || disposition, ', '"
            . " ORDER BY event_id) FROM meter.event"), 'm1 0, m2 1',
        'so does the ledger';
    is $http->post('/v1/adjustments', { id => 'a', metric => 'calls',
        customer => 'c', group => { route => '/a' }, period => '2025-03',
        amount => -4, reason => 'goodwill' })->{status}, 201,
        'a manual correction is possible';
    $usage = usage(%march);
    is "$usage->{value} $usage->{total}", '10 9', 'in the total';

    is $http->post('/v1/events', event('m2', '2025-03-06T00:00:00Z', 3))
        ->{json}{duplicates}, 1, 'the event again';
    is usage(%march)->{total}, '9', 'counts once';
    ok !usage(period => '2025-04')->{closed}, 'the next month is open';
    is usage(%march, metric => 'peak')->{value}, '10',
        'another metric is open';
    ok !$stack->http('globex')->get('/v1/usage', metric => 'calls',
        period => '2025-03', customer => 'c')->{json}{closed},
        'and another tenant';

    $got = $http->request('GET', '/v1/usage?metric=calls&period=2025-03',
        undef, accept => 'text/csv');
    like $got->{body}, qr/^calls,c,2025-03,10,9,-1,[^,]+,true\r$/m,
        'in a table';
};

# Every aggregation, with late events and corrections by hand; what was kept
# is what GET /v1/usage said at that moment.
subtest 'what was billed' => sub {
    my $month = '2025-02';
    my $n     = 0;
    my $post  = sub {
        my ($day, $customer, $route, $quantity) = @_;
        is $http->post('/v1/events', { event_id => 'b' . ++$n,
            type => 'api.request', ts => "$month-${day}T00:00:00Z",
            defined $customer ? (customer => $customer) : (),
            quantity => $quantity,
            attributes => { route => $route, who => 'w' . $n % 3 } })
            ->{json}{accepted}, 1, "b$n";
        return;
    };
    my @metrics = map {"all.$_"} qw(sum count min max avg last unique);
    my $figures = sub {
        my ($metric) = @_;
        return [map { { customer => $_->{customer}, group => $_->{group},
            value => $_->{value}, total => $_->{total} } }
            @{ $http->get('/v1/usage', metric => $metric, period => $month,
                groups => 'true')->{json}{usage} }];
    };
    my $closes = sub { return $http->get('/v1/usage/closes', @_) };

    # halves, thirds, negative ones; a customer of manual amounts alone
    $post->(20, @$_) for ['c', '/a', 1], ['c', '/a', '0.000000002'],
        ['c', '/b', -7], ['c', '/b', 3], ['c', '/b', 2], [undef, '/a', 5],
        ['d', '/a', '-0.000000001'], ['d', '/a', '0.000000002'];
    $post->(18, 'c', '/a', '4.5');
    $post->(20, 'c', '/b', '-10.000000003');
    $post->(10, 'e', '/a', 1);
    for my $metric (@metrics) {
        for (['c', '/a', '-4.5'], ['f', '/a', 2]) {
            is $http->post('/v1/adjustments', { id => "$metric $_->[0]",
                metric => $metric, period => $month, customer => $_->[0],
                group => { route => $_->[1] }, amount => $_->[2],
                reason => 'x' })->{status}, 201, 'a correction';
        }
    }
    cmp_ok $stack->query("SELECT count(*) FROM meter.meter_adjustment WHERE"
        . " metric LIKE 'all.%' AND NOT is_manual"), '>', 0, 'some are late';
    my %before = map { $_ => $figures->($_) } @metrics;
    for my $metric (@metrics) {
        is $closes->(metric => $metric, period => $month)->{status}, 404,
            "$metric is not closed";
        is close_period($metric, $month)->{status}, 200, 'it is now';
        my $got = $closes->(metric => $metric, period => $month)->{json};
        is_deeply $got->{figures}, $before{$metric}, 'the figures are kept'
            or diag explain $got;
        is $got->{figure_count}, 6, 'all of them';
    }
    $post->(20, 'c', '/a', 1000);
    $post->(20, 'g', '/c', 1);
    is close_period('all.sum', $month)->{status}, 200, 'closed again';
    my $got = $closes->(metric => 'all.sum', period => $month)->{json};
    is_deeply $got->{figures}, $before{'all.sum'}, 'later events change nothing';
    my ($token_id, $closed_at) = split /\t/, $stack->query("SELECT actor,"
        . " to_char(closed_at AT TIME ZONE 'UTC',"
        . " 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') FROM meter.meter_close WHERE"
        . " metric = 'all.sum'");
    delete $got->{figures};
    is_deeply $got, { metric => 'all.sum', period => $month,
        closed_at => $closed_at, closed_by => $token_id,
        snapshot => JSON::PP::true, figure_count => 6, reopenings => [] },
        'who and when';

    my (@pages, %question);
    do {
        $got = $closes->(metric => 'all.sum', period => $month, limit => 4,
            %question)->{json};
        push @pages, $got->{figures};
        $question{cursor} = $got->{cursor};
    } while ($got->{cursor} && @pages < 9);
    is_deeply [map { scalar @$_ } @pages], [4, 2], 'figures in pages';
    is_deeply [map {@$_} @pages], $before{'all.sum'}, 'each once';

    my (@list, %from);
    do {
        $got = $closes->(limit => 3, %from)->{json};
        push @list, $got->{closes};
        $from{cursor} = $got->{cursor};
    } while ($got->{cursor} && @list < 9);
    is join(' ', map {"$_->{metric}:$_->{period}"} map {@$_} @list),
        join(' ', (map {"$_:$month"} sort @metrics), 'calls:2025-03'),
        'all closes, in pages';
    is scalar @{ $closes->(metric => 'calls')->{json}{closes} }, 1,
        'of one metric';

    # One of an older meterd: nothing was kept, and nothing is made up.
    $stack->query("INSERT INTO meter.meter_close (tenant, metric, period_start,"
        . " actor, closed_at, frozen_at) SELECT 'acme', metric, '2024-11-01Z',"
        . " 'old', now(), now() FROM unnest(ARRAY['all.sum', 'gone']) AS metric");
    is close_period('all.sum', '2024-11')->{status}, 200, 'an older close';
    for (['all.sum', '2024-11'], ['gone', '2024-11-01T00:00:00.000000Z']) {
        my $one = $closes->(metric => $_->[0], period => '2024-11')->{json};
        is_deeply [@$one{qw(period snapshot figure_count figures)}],
            [$_->[1], JSON::PP::false, undef, undef], "$_->[0]: says so";
    }

    my %wrong = ('a period alone' => [period => $month],
        'no period' => [metric => 'calls', period => 'x'],
        'an argument' => [customer => 'c'], 'a limit' => [limit => 0],
        'another cursor' => [metric => 'calls', cursor => $pages[0] && $question{cursor} // 'AAAAAAAAAAAAAAAA']);
    is $closes->(@{ $wrong{$_} })->{status}, 400, $_ for sort keys %wrong;
    is $stack->http('globex')->get('/v1/usage/closes')->{body},
        '{"closes":[]}', 'another tenant has none';
    is $stack->http('globex')->get('/v1/usage/closes', metric => 'all.sum',
        period => $month)->{status}, 404, 'nor this one';
    is $http->post('/v1/usage/closes', {})->{status}, 405, 'POST';
    for my $sql ("UPDATE meter.meter_close SET frozen_at = now() WHERE metric = 'calls'",
        "UPDATE meter.meter_billed SET value = 0", 'DELETE FROM meter.meter_billed') {
        ok !eval { $stack->query("SET ROLE meter_writer; $sql"); 1 }, $sql;
    }
};

subtest 'a period that never had events' => sub {
    is close_period('calls', '2024-01')->{status}, 200, 'can be closed';
    ingest('empty', '2024-01-06T00:00:00Z', 3);
    my $usage = usage(period => '2024-01');
    is "$usage->{value} $usage->{total}", '0 3', 'an event is late';
};

subtest 'closes that are refused' => sub {
    my $month = $stack->query(
        "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM')");
    my $end = $stack->query("SELECT to_char(date_trunc('month',"
            . " now() AT TIME ZONE 'UTC') + interval '1 month',"
            . " 'YYYY-MM-DD')");
    is told(close_period('calls', $month)), '409 the period is not over; it'
        . " ends at ${end}T00:00:00.000000Z", 'this month';
    like told(close_period('calls', '9998-12')), qr/^409 /, 'far ahead';
    is $stack->query("SELECT count(*) FROM meter.meter_close"
            . " WHERE period_start > now() - interval '40 days'"), 0,
        'nothing was kept';
    my $hour = $stack->query("SELECT to_char(now() AT TIME ZONE 'UTC'"
            . " - interval '1 hour', 'YYYY-MM-DD\"T\"HH24')");
    is close_period('hourly', $hour)->{status}, 200, 'the last hour is over';
    is told(close_period('none', '2025-03')), '404 no such metric', 'unknown';
    like told(close_period('calls', '2025-03-01')),
        qr/^400 "period" must be a month/, 'a day';
    like told(close_period('calls', undef)), qr/^400 period is missing/,
        'no period';
    like told(close_period(undef, '2025-03')), qr/^400 metric is missing/,
        'no metric';
    like told($http->post('/v1/usage/close', { metric => 'calls',
        period => '2025-05', reopen => 1 })),
        qr/^400 unknown member "reopen"/, 'a stranger';
    is $http->get('/v1/usage/close')->{status}, 405, 'GET';
    my ($status, $out) = $stack->meterd_command('token', 'create',
        $stack->config_arguments, '--tenant', 'acme', '--scopes',
        'ingest,read');
    chomp $out;
    is told(close_period('calls', '2025-05', $http->as($out))),
        '403 the token lacks the scope "write"', 'a token that only reads';
    ok !usage(period => '2025-05')->{closed}, 'still open';
};

for (['after_close_begin', '2025-06'], ['after_close_pass', '2025-07']) {
    my ($point, $month) = @$_;
    subtest "a crash between two transactions: $point" => sub {
        my $close = "FROM meter.meter_close WHERE period_start = '$month-01Z'";
        ingest("$point-1", "$month-05T00:00:00Z", 1);
        restart({ METERD_CRASH_POINT => $point });
        cmp_ok close_period('calls', $month)->{status}, '>=', 500,
            'no answer';
        wait_until { !$stack->alive('meterd') } 10, 'meterd is gone';
        restart({});
        is $stack->query("SELECT frozen_at IS NULL $close"), 't',
            'half closed';
        ok !usage(period => $month)->{closed}, 'that is not called closed';
        is $http->get('/v1/usage/closes', metric => 'calls', period => $month)
            ->{status}, 404, 'nor listed';
        ingest("$point-2", "$month-06T00:00:00Z", 2);
        is usage(period => $month)->{value}, '1',
            'though events are late already';
        my $first = $stack->query("SELECT to_char(closed_at AT TIME ZONE"
                . " 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') $close");
        my $got = close_period('calls', $month);
        is $got->{status}, 200, 'the same request completes it';
        is $got->{json}{closed_at}, $first, 'closed when it was closed first';
        ok usage(period => $month)->{closed}, 'closed';
        is_deeply [map {"$_->{value} $_->{total}"}
                @{ $http->get('/v1/usage/closes', metric => 'calls',
                    period => $month)->{json}{figures} }], ['1 3'],
            'with its figures';
    };
}

# Ingest that is stuck holds its writer_seq row; so does this session.
subtest 'an ingest transaction that is stuck' => sub {
    my $holder = fork // die "fork: $!";
    if ($holder == 0) {
        $stack->query(<<'SQL');
BEGIN;
SELECT FROM meter.writer_seq FOR UPDATE;
SELECT pg_sleep(7);
COMMIT
SQL
        POSIX::_exit(0);
    }
    wait_until {
        $stack->query("SELECT count(*) FROM pg_stat_activity"
            . " WHERE state = 'active' AND query LIKE '%pg_sleep(7)%'"
            . " AND pid <> pg_backend_pid()") > 0
    } 10, 'the row is held';
    my $got = close_period('calls', '2025-08');
    is $got->{status}, 503, 'is not waited for without end';
    ok $got->{headers}{'retry-after'}, 'Retry-After';
    ok !usage(period => '2025-08')->{closed}, 'not closed';
    waitpid $holder, 0;
    is close_period('calls', '2025-08')->{status}, 200, 'again';
};

# Transactions of ingest last a while longer than they would, so that some
# are on their way whenever a close comes.
subtest 'events that race with the close' => sub {
    $stack->query(<<'SQL');
CREATE FUNCTION meter.dawdle() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_catalog.pg_sleep(0.02); RETURN NEW; END';
CREATE TRIGGER dawdle BEFORE INSERT OR UPDATE ON meter.meter_counter
    FOR EACH ROW WHEN (NEW.metric = 'calls') EXECUTE FUNCTION meter.dawdle();
SQL
    my @nodes = map {
        Edgemeter::Node->start($stack, name => "node$_")
    } 1 .. 2;
    $_->wait_ready for @nodes;
    my $directory = File::Temp->newdir('em-close-XXXXXX', TMPDIR => 1);
    my $stop = "$directory/stop";
    my @months = map { sprintf '2023-%02d', $_ } 1 .. 6;
    my @pids;
    for my $client (0 .. 3) {
        my $pid = fork // die "fork: $!";
        if ($pid == 0) {
            my $node = $nodes[$client % 2];
            my ($n, $bad) = (0, 0);
            while (!-e $stop && getppid() != 1) {
                my @events = map {
                    my $id = $n++;
                    event("race-$client-$id", $months[$id % @months]
                        . '-15T00:00:00Z', 1)
                } 1 .. 12;
                my $got = $node->post('acme', \@events);
                $bad++ unless $got->{status} == 200
                    && $got->{json}{accepted} == @events;
            }
            POSIX::_exit($bad ? 1 : 0);
        }
        push @pids, $pid;
    }
    my $ledger = sub {
        return $stack->query("SELECT count(*) FROM meter.event"
            . " WHERE event_id LIKE 'race-%'");
    };
    wait_until { $ledger->() > 100 } 30, 'events arrive';
    my %told;
    for my $month (@months) {
        is close_period('calls', $month)->{status}, 200, "$month closed";
        $told{$month} = usage(period => $month)->{value};
    }
    my $seen = $ledger->();
    wait_until { $ledger->() > $seen + 200 } 30, 'events go on';
    open my $flag, '>', $stop or die $!;
    close $flag;
    for my $pid (@pids) {
        waitpid $pid, 0;
        is $?, 0, 'every event was accepted';
    }
    for my $month (@months) {
        my $usage = usage(period => $month);
        is $usage->{value}, $told{$month}, "$month: the figure stands";
        my ($all, $folded, $late) = split /\t/, $stack->query(
            "SELECT count(*), count(*) FILTER (WHERE disposition = 0),"
                . " count(*) FILTER (WHERE disposition = 1)"
                . " FROM meter.event WHERE event_id LIKE 'race-%'"
                . " AND ts = '$month-15Z'");
        is $usage->{value}, $folded, 'it is the events that were folded';
        is $usage->{total}, $all, 'with adjustments it is everything';
        cmp_ok $folded, '>', 0, 'some in time';
        cmp_ok $late, '>', 0, 'some late';
        is $stack->query("SELECT count(*) FROM meter.meter_adjustment AS a"
                . " JOIN meter.event AS e ON e.tenant = a.tenant"
                . " AND e.event_id = a.id AND e.disposition = 1"
                . " WHERE a.metric = 'calls' AND a.period_start = '$month-01Z'"
                . " AND e.ts = '$month-15Z' AND NOT a.is_manual"), $late,
            'each adjustment names its event';
    }

    # One more, with a writer that is gone for good.
    $nodes[0]->process->stop('KILL', 10);
    is close_period('peak', '2023-01')->{status}, 200,
        'a dead writer is not waited for';
};

subtest 'closes side by side' => sub {
    my @pids;
    for my $child (1 .. 10) {
        my $pid = fork // die "fork: $!";
        if ($pid == 0) {
            my $got = close_period('peak', '2022-0' . ($child % 2 + 1),
                $stack->http('acme'));
            POSIX::_exit($got->{status} == 200 ? 0 : 1);
        }
        push @pids, $pid;
    }
    for my $pid (@pids) {
        waitpid $pid, 0;
        is $?, 0, 'closed';
    }
    is $stack->query("SELECT count(*) FROM meter.meter_close"
            . " WHERE metric = 'peak' AND period_start < '2023-01-01Z'"
            . " AND frozen_at >= closed_at"), 2, 'each once';
};

$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
done_testing;
