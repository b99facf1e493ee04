#!/usr/bin/perl

# 74-adjustments.t - manual corrections of billing periods: once per id,
# added to the total, listed with those of late events.

use strict;
use warnings;
use utf8;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use POSIX ();
use Test::More;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

binmode Test::More->builder->$_, ":utf8"
    for qw(output failure_output todo_output);

my $stack = Edgemeter::Stack->for_test(rules => \<<'YAML')->start;
events:
  - { type: api.request }
meters:
  - { metric: calls, on: [api.request], value: quantity, aggregation: sum, period: month, lateness: 48h }
  - { metric: routes, on: [api.request], aggregation: count, period: month, groupBy: [route, zone] }
  - { metric: peak, on: [api.request], value: quantity, aggregation: max, period: day }
YAML
my $http = $stack->http('acme');

sub adjust {
    my (%change) = @_;
    my %body = (id => 'a1', metric => 'calls', customer => 'c1',
        period => '2025-03', amount => '-1.5', reason => 'refund', %change);
    delete @body{ grep { !defined $body{$_} } keys %body };
    return $http->post('/v1/adjustments', \%body);
}

sub told {
    my ($got) = @_;
    return "$got->{status} " . ($got->{json}{error} // '');
}

sub usage {
    my (%query) = @_;
    return $http->get('/v1/usage', metric => 'calls', period => '2025-03',
        customer => 'c1', %query)->{json};
}

sub ingest {
    my (@events) = @_;
    my $got = $http->post('/v1/events', [map { {
        event_id => $_->[0], type => 'api.request', ts => $_->[1],
        customer => $_->[2], quantity => $_->[3], attributes => {}
    } } @events]);
    is $got->{json}{accepted}, scalar @events, 'accepted';
    return;
}

my ($token_id) = $stack->token('acme') =~ /^em_([^_]+)_/;

subtest 'one adjustment' => sub {
    ingest(['e1', '2025-03-10T00:00:00Z', 'c1', 10]);
    my $got = adjust();
    is $got->{status}, 201, 'made';
    my %first = %{ $got->{json} };
    like $first{recorded_at}, qr/^20\d\d-.*Z$/, 'recorded_at';
    is $first{ts}, $first{recorded_at}, 'ts';
    my %rest = %first;
    delete @rest{qw(ts recorded_at)};
    is_deeply \%rest,
        { metric => 'calls', customer => 'c1', period => '2025-03',
            id => 'a1', kind => 'manual', amount => '-1.5',
            reason => 'refund', actor => $token_id },
        'what was stored';
    my $usage = usage();
    is "$usage->{value} $usage->{total}", '10 8.5', 'added to the total';
    is $usage->{watermark}, '2025-03-10T00:00:00.000000Z',
        'the watermark stays';
    is_deeply $usage->{adjustments},
        [{ id => 'a1', kind => 'manual', amount => '-1.5',
            reason => 'refund', actor => $token_id, ts => $first{ts},
            recorded_at => $first{ts} }], 'and listed';

    $got = adjust();
    is $got->{status}, 200, 'the same again: 200';
    is_deeply $got->{json}, \%first, 'with the first result';
    is adjust(amount => -1.50)->{status}, 200, 'a number, spelled otherwise';
    is usage()->{total}, '8.5', 'applied once';
};

subtest 'the same id, other content' => sub {
    my %other = (amount => '-1.6', reason => 'x', customer => 'c2',
        period => '2025-02', actor => 'me', metric => 'routes');
    for my $name (sort keys %other) {
        is told(adjust($name => $other{$name})),
            '409 the id is that of another adjustment', $name;
    }
    is told(adjust(customer => undef)),
        '409 the id is that of another adjustment', 'no customer';
    is usage()->{total}, '8.5', 'nothing changed';
    is $stack->query('SELECT count(*), sum(manual_sum)'
            . ' FROM meter.meter_counter WHERE manual_sum IS NOT NULL'),
        "1\t-1.500000000", 'anywhere';
    my $own = $stack->http('globex')->post('/v1/adjustments', {
        id => 'a1', metric => 'calls', period => '2025-03', amount => 7,
        reason => 'theirs' });
    is $own->{status}, 201, "another tenant's ids are its own";
    is $own->{json}{customer}, undef, 'without a customer';
    is usage()->{total}, '8.5', 'its amounts too';
    is adjust(id => 'a2', actor => 'ann', amount => 1)->{json}{actor}, 'ann',
        'an actor';
    is adjust(id => 'a2', actor => 'ann', amount => 1)->{status}, 200,
        'again';
    is told(adjust(id => 'a2', actor => 'bob', amount => 1)),
        '409 the id is that of another adjustment', 'another one';
    is adjust(id => 'a2', amount => 1)->{status}, 200,
        'not said is not compared';
};

subtest 'racing retries' => sub {
    my @pids;
    for my $child (1 .. 20) {
        my $pid = fork // die "fork: $!";
        if ($pid == 0) {
            $http = $stack->http('acme');
            my $status = adjust(id => 'race', customer => 'racer',
                amount => '2.5')->{status};
            POSIX::_exit($status == 201 ? 1 : $status == 200 ? 0 : 9);
        }
        push @pids, $pid;
    }
    my %ended;
    for my $pid (@pids) {
        waitpid $pid, 0;
        $ended{ $? >> 8 }++;
    }
    is_deeply \%ended, { 0 => 19, 1 => 1 }, 'one made, nineteen the same';
    is usage(customer => 'racer')->{total}, '2.5', 'applied once';
    is scalar @{ usage(customer => 'racer')->{adjustments} }, 1, 'one row';
};

subtest 'groups' => sub {
    my %at = (metric => 'routes', customer => 'g');
    my $got = adjust(%at, id => 'g1', amount => 3,
        group => { route => '/a', zone => 5 });
    is_deeply $got->{json}{group}, { route => '/a', zone => 5 }, 'stored';
    is adjust(%at, id => 'g2', amount => 4, group => { route => '/a' })
        ->{status}, 201, 'a missing one is null';
    is adjust(%at, id => 'g3', amount => 5)->{status}, 201, 'all of them';
    is adjust(%at, id => 'g2', amount => 4,
        group => { zone => undef, route => '/a' })->{status}, 200,
        'null and missing are one';
    is usage(metric => 'routes', customer => 'g')->{total}, '12', 'together';
    is usage(metric => 'routes', customer => 'g', route => '/a', zone => 5)
        ->{total}, '3', 'one group';
    my $one = usage(metric => 'routes', customer => 'g', route => '/a',
        zone => '');
    is "$one->{value} $one->{total}", '0 4', 'another';
    is $one->{watermark}, undef, 'no event, no watermark';
    $http->post('/v1/events', { event_id => 'ge', type => 'api.request',
        ts => '2025-03-04T00:00:00Z', customer => 'g',
        attributes => { route => '/a', zone => 5 } });
    $one = usage(metric => 'routes', customer => 'g', route => '/a',
        zone => 5);
    is "$one->{value} $one->{total}", '1 4', 'events come on top';
    like told(adjust(%at, id => 'g4', group => { x => 1 })),
        qr/^400 the metric has no dimension "x"/, 'an unknown one';
    like told(adjust(%at, id => 'g4', group => { route => [1] })),
        qr/^400 .*array/, 'an array';
    like told(adjust(%at, id => 'g4', group => 'x')), qr/^400 group/,
        'no object';
};

subtest 'of other meanings' => sub {
    my %at = (metric => 'peak', period => '2025-03-10');
    ingest(['p1', '2025-03-10T01:00:00Z', 'p', 4],
        ['p2', '2025-03-10T02:00:00Z', 'p', 9]);
    adjust(%at, id => 'p1', customer => 'p', amount => '-2');
    my $got = usage(%at, customer => 'p');
    is "$got->{value} $got->{total}", '9 7', 'added to the maximum';
    adjust(%at, id => 'p2', customer => 'q', amount => '3');
    $got = usage(%at, customer => 'q');
    is $got->{value}, undef, 'no event: no value';
    is $got->{total}, '3', 'but a total';
};

subtest 'bodies that are refused' => sub {
    my @cases = (
        [{ id => undef }, qr/^400 id is missing/],
        [{ id => '' }, qr/^400 id is empty/],
        [{ id => 'x' x 256 }, qr/^400 id is longer than 255 bytes/],
        [{ id => 5 }, qr/^400 id must be a string/],
        [{ metric => undef }, qr/^400 metric is missing/],
        [{ metric => 'none' }, qr/^404 no such metric/],
        [{ period => undef }, qr/^400 period is missing/],
        [{ period => '2025-03-01' }, qr/^400 "period" must be a month/],
        [{ period => '9998-01' }, qr/^400 the period has not begun/],
        [{ amount => undef }, qr/^400 amount is missing/],
        [{ amount => 0 }, qr/^400 amount must not be 0/],
        [{ amount => '0.0' }, qr/^400 amount must not be 0/],
        [{ amount => 'x' }, qr/^400 amount is not a decimal number/],
        [{ amount => '1.0000000001' },
            qr/^400 amount has more than 9 digits after/],
        [{ amount => '1' . '0' x 29 },
            qr/^400 amount has more than 29 digits before/],
        [{ amount => [] }, qr/^400 amount must be a number or a string/],
        [{ reason => undef }, qr/^400 reason is missing/],
        [{ reason => 'x' x 1001 }, qr/^400 reason is longer than 1000/],
        [{ reason => "a\nb" }, qr/^400 reason has control characters/],
        [{ actor => '' }, qr/^400 actor is empty/],
        [{ customer => '' }, qr/^400 customer is empty/],
        [{ customer => 'x' x 256 }, qr/^400 customer is longer/],
        [{ tenant => 'globex' }, qr/^400 unknown member "tenant"/],
        [{ is_manual => 1 }, qr/^400 unknown member/],
    );
    for my $case (@cases) {
        my ($change, $expected) = @$case;
        like told(adjust(id => 'bad', %$change)), $expected, $expected;
    }
    for my $body ('', '[]', '{', '{"id":1}x', 'null') {
        is $http->post('/v1/adjustments', $body)->{status}, 400,
            "body '$body'";
    }
    is $http->request('POST', '/v1/adjustments', '{}',
        'content-type' => 'text/plain')->{status}, 415, 'no JSON';
    is $http->post('/v1/adjustments?x=1', {})->{status}, 400, 'arguments';
    is $http->post('/v1/adjustments', '{"id":"' . 'x' x 70000 . '"}')
        ->{status}, 413, 'too large';
    is $stack->query(
        "SELECT count(*) FROM meter.meter_adjustment WHERE id = 'bad'"), 0,
        'nothing was stored';
    my ($status, $out) = $stack->meterd_command('token', 'create',
        $stack->config_arguments, '--tenant', 'acme', '--scopes',
        'ingest,read');
    chomp $out;
    my $reader = $http->as($out);
    is told($reader->post('/v1/adjustments', {})),
        '403 the token lacks the scope "write"', 'a token that only reads';
    is $reader->get('/v1/adjustments', metric => 'calls')->{status}, 200,
        'may read them';
    is $http->request('PUT', '/v1/adjustments', '{}')->{headers}{allow},
        'GET, HEAD, POST', 'allow';
};

subtest 'figures that do not fit' => sub {
    my $big = '9' x 28;
    my $no_room = 'the amounts would pass 10^28, or the total 38 digits';
    is adjust(id => 'big1', customer => 'big', amount => $big)->{status},
        201, '28 digits before the point';
    is told(adjust(id => 'big2', customer => 'big', amount => 2)),
        "422 $no_room", 'two more';
    ingest(['big', '2025-03-20T00:00:00Z', 'big', 5]);
    is usage(customer => 'big')->{total}, '1' . '0' x 27 . '4',
        'nothing of it remains, and events have their room';
    is adjust(id => 'big2', customer => 'big', amount => -9)->{status}, 201,
        'its id is free';

    my %huge = (customer => 'huge');
    ingest(['huge', '2025-03-20T00:00:00Z', 'huge', '9' x 29]);
    is told(adjust(%huge, id => 'huge1', amount => 1)), "422 $no_room",
        'a total that no one could read';
    is adjust(%huge, id => 'huge1', amount => -1)->{status}, 201, 'less';
    is usage(%huge)->{total}, '9' x 28 . '8', 'is read';
};

subtest 'the list' => sub {
    ingest(['l1', '2025-04-20T00:00:00Z', 'l', 1]);
    ingest(['l2', '2025-04-02T00:00:00Z', 'l', 5]);
    adjust(id => "l-$_", customer => 'l', period => '2025-04', amount => $_)
        for 1 .. 3;
    adjust(id => 'l-4', customer => undef, period => '2025-04', amount => 9);
    my %at = (metric => 'calls', period => '2025-04');
    my $list = $http->get('/v1/adjustments', %at)->{json};
    ok !exists $list->{cursor}, 'no more';
    is_deeply [map { join ' ', $_->{customer} // '-', $_->{kind},
            $_->{id} // $_->{event_id}, $_->{amount} }
            @{ $list->{adjustments} }],
        ['- manual l-4 9', 'l event l2 5', map {"l manual l-$_ $_"} 1 .. 3],
        'by customer and time';
    my $event = $list->{adjustments}[1];
    is_deeply [sort keys %$event],
        [sort qw(metric customer period event_id kind amount reason ts
            recorded_at)], 'of an event';
    is $event->{ts}, '2025-04-02T00:00:00.000000Z', 'with its time';

    my $pages = sub {
        my (%query) = @_;
        my @seen;
        for my $page (1 .. 50) {
            my $got = $http->get('/v1/adjustments', %query)->{json};
            push @seen, map { $_->{id} // $_->{event_id} }
                @{ $got->{adjustments} };
            $query{cursor} = $got->{cursor};
            return @seen unless defined $query{cursor};
        }
        fail 'the list has an end';
    };
    my @whole = $pages->(metric => 'calls');
    cmp_ok scalar @whole, '>', 8, 'all periods';
    is_deeply [$pages->(metric => 'calls', limit => $_)], \@whole,
        "pages of $_" for 1, 3;
    is_deeply [$pages->(%at, customer => 'l', limit => 2)],
        [qw(l2 l-1 l-2 l-3)], 'of one customer';
    is_deeply [$pages->(%at, customer => '')], ['l-4'],
        'of events without one';
    is_deeply [$stack->http('globex')->get('/v1/adjustments',
            metric => 'calls')->{json}{adjustments}[0]{reason}], ['theirs'],
        'of its own tenant';

    my $csv = $http->request('GET',
        '/v1/adjustments?metric=calls&period=2025-04&limit=2', undef,
        accept => 'text/csv');
    my @lines = split /\r\n/, $csv->{body};
    is $lines[0], 'metric,customer,period,group,kind,id,amount,reason,actor,'
        . 'ts,recorded_at', 'a table';
    like $lines[1],
        qr/^calls,,2025-04,,manual,l-4,9,refund,$token_id,20[^,]+Z,20[^,]+Z$/,
        'a line';
    like $csv->{headers}{link},
        qr/^<\?metric=calls&period=2025-04&limit=2&cursor=[\w-]+>; rel="next"$/,
        'the next page';
    my $got = sub { told($http->get('/v1/adjustments', @_)) };
    is $got->(), '400 "metric" is missing', 'no metric';
    is $got->(metric => 'none'), '404 no such metric', 'unknown metric';
    like $got->(metric => 'calls', x => 1), qr/^400 unknown argument "x"/,
        'unknown argument';
    like $got->(metric => 'calls', cursor => 'AAAA'), qr/^400 .*cursor/,
        'no cursor';
};

# The writing connections wait for the row; the client is told to try again.
subtest 'a row that is held' => sub {
    my $holder = fork // die "fork: $!";
    if ($holder == 0) {
        $stack->query(<<'SQL');
BEGIN;
SELECT FROM meter.meter_counter WHERE customer = 'c1' FOR UPDATE;
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
    my $got = adjust(id => 'held', amount => 1);
    is $got->{status}, 503, 'not in time: 503';
    ok $got->{headers}{'retry-after'}, 'Retry-After';
    waitpid $holder, 0;
    is adjust(id => 'held', amount => 1)->{status}, 201, 'the same again';
};

# An answer is worth nothing before the COMMIT: here it is the COMMIT that
# fails.
subtest 'a COMMIT that fails' => sub {
    $stack->query(<<'SQL');
CREATE FUNCTION meter.doom() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN RAISE EXCEPTION USING ERRCODE = ''53100'', MESSAGE = ''doom''; END';
CREATE CONSTRAINT TRIGGER doom AFTER INSERT ON meter.meter_adjustment
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.id = 'doomed')
    EXECUTE FUNCTION meter.doom()
SQL
    my $before = usage()->{total};
    is adjust(id => 'doomed', amount => 1)->{status}, 503, 'no success';
    is usage()->{total}, $before, 'nothing is stored';
    is adjust(id => "next-$_", amount => 1)->{status}, 201,
        'the connections go on' for 1 .. 4;
    $stack->query('DROP TRIGGER doom ON meter.meter_adjustment');
    is adjust(id => 'doomed', amount => 1)->{status}, 201, 'the same again';
};

# The server calls that a success, with a warning.
subtest 'a COMMIT that no standby has' => sub {
    $stack->query("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    $stack->query('SELECT pg_reload_conf()');
    wait_until {
        $stack->query('SHOW synchronous_standby_names') eq 'nobody'
    } 10, 'a standby is wanted';
    my $pid = fork // die "fork: $!";
    if ($pid == 0) {
        $http = $stack->http('acme');
        POSIX::_exit(adjust(id => 'alone', amount => 1)->{status} == 503
            ? 0 : 1);
    }
    wait_until {
        $stack->query("SELECT count(pg_cancel_backend(pid))"
            . " FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            . " AND application_name LIKE '%client-%'") > 0
    } 10, 'its wait is cancelled';
    waitpid $pid, 0;
    is $?, 0, '503: it may be lost yet';
    $stack->query('ALTER SYSTEM RESET synchronous_standby_names');
    $stack->query('SELECT pg_reload_conf()');
    wait_until {
        $stack->query('SHOW synchronous_standby_names') eq ''
    } 10, 'no standby is wanted';
    is adjust(id => 'alone', amount => 1)->{status}, 200, 'the same again';
};

subtest 'meterd is killed' => sub {
    my $before = usage()->{total};
    for my $n (1 .. 10) {
        my $pid = fork // die "fork: $!";
        if ($pid == 0) {
            $http = $stack->http('acme', timeout => 10);
            adjust(id => "killed-$n", amount => 1);
            POSIX::_exit(0);
        }
        select undef, undef, undef, 0.0005 * $n;
        $stack->kill_part('meterd');
        waitpid $pid, 0;
        $stack->start_part('meterd');
        $stack->wait_healthy;
        my $status = adjust(id => "killed-$n", amount => 1)->{status};
        ok $status == 200 || $status == 201, "sent again: $status";
    }
    is usage()->{total}, $before + 10, 'each counted once';
};

$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
done_testing;
