#!/usr/bin/perl

# 96-retention.t - days go when they are kept no longer: never what others
# still need, never more than was meant, and without anyone noticing it but
# by what is gone.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use JSON::PP ();
use POSIX ();
use Test::More;
use Edgemeter::Node;
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until poll_until);

# All days here are counted from one today: not over midnight.
my $midnight = 86_400 * (1 + POSIX::floor(time / 86_400));
wait_until { time >= $midnight } 130, 'the next day'
    if $midnight - time < 120;
my $TODAY = POSIX::floor(time / 86_400);
my $NO_FLOOR = '0001-01-01';

my $stack = Edgemeter::Stack->for_test;
$stack->prepare;
$stack->start_database;
$stack->migrate;
$stack->make_tokens;
my $scratch = $stack->place->path('tmp');
# An event that waited for a lock is not taken anew for that alone; and its
# own retention comes when this test is over.
my $node    = node('a', env => { METERD_TEST_CLOCK_MARGIN_MS => 60_000,
        METERD_TEST_RETENTION_MS => 3_600_000, METERD_TEST_FLUSH_MS => 300 });

# A meterd that keeps much; retention is run with other figures.
sub node {
    my ($name, %arg) = @_;
    return Edgemeter::Node->start($stack, name => $name,
        yaml => { retention => keep(event => 60), %{ $arg{yaml} // {} } },
        env  => $arg{env})->wait_ready;
}

# The section: all is kept for 60 days but for what is named.
sub keep {
    my (%days) = @_;
    my %all = (map({ $_ => 60 } qw(event duplicateAudit series5s series1m)),
        map({ $_ => 4000 } qw(series1h series1d series7d)),
        eventIndex => $days{event} // 60, %days);
    return '{ ' . join(', ', map {"$_: $all{$_}d"} sort keys %all) . ' }';
}

sub date {
    my ($ago) = @_;
    return POSIX::strftime('%Y-%m-%d', gmtime(($TODAY - $ago) * 86_400));
}

# meterd retention with these figures, as if there had been none before;
# (status, what it said).
sub retention {
    $stack->query('TRUNCATE meter.retention_kept');
    return retention_on(@_);
}

# Likewise, after those of the last run.
sub retention_on {
    my ($section, @words) = @_;
    my $env  = ref $words[0] ? shift @words : {};
    my $yaml = "$scratch/retention.yaml";
    Edgemeter::Place::replace_file($yaml, 0644, $stack->account,
        "retention: $section\n");
    my ($status, $out, $err) = Edgemeter::Process::capture(
        command => [$stack->{program}, 'retention', @words, '-c',
            ($stack->config_arguments)[1], '-c', "$scratch/a.yaml", '-c',
            $yaml],
        env  => $env,
        user => $stack->account);
    return ($status & 127 ? -($status & 127) : $status >> 8, $out . $err);
}

# First days of the partitions of a table.
sub days {
    my ($table) = @_;
    return sort $stack->query("SELECT * FROM meter.partition_days('$table')");
}

sub floor_of {
    my ($table) = @_;
    return $stack->query(
        "SELECT floor FROM meter.partition_floor WHERE parent = '$table'");
}

sub make_days {
    my ($table, @ago) = @_;
    $stack->cluster->query(
        "SELECT meter.partition_make('$table', '" . date($_) . "')",
        role => 'meter_owner') for @ago;
    return;
}

# At the start of the day: today's noon may be in the future.
sub event {
    my ($id, $ago) = @_;
    return { event_id => $id, type => 'api.request',
        ts => date($ago) . 'T00:00:00Z', attributes => { route => '/x' } };
}

sub counted {
    return $stack->query(q{SELECT COALESCE(sum(value), 0) FROM meter.counter
        WHERE tenant = 'acme' AND counter_name = 'api_requests'});
}

sub stored_at {
    my ($id) = @_;
    return $stack->query(
        "SELECT part_day FROM meter.event WHERE event_id = '$id'");
}

sub verdicts {
    my ($answer) = @_;
    return $answer->{status} unless $answer->{status} == 200;
    my $said = JSON::PP->new->utf8->decode($answer->{body});
    return join ' ', map { $_->{verdict} } @{ $said->{results} };
}

sub unflushed {
    return $stack->query(q{SELECT count(*) FROM meter.writer_seq
        JOIN meter.writer_flush USING (writer) WHERE upto < last});
}

# Runs code while a session of someone else holds something.
sub holding {
    my ($sql, $code) = @_;
    my $holder = Edgemeter::Process->spawn(
        name => 'holder', log => "$scratch/holder.log",
        user => $stack->account,
        command => [$stack->cluster->{bin} . '/psql', '-q', '--dbname',
            $stack->database_url, '-c', "BEGIN; $sql; SELECT pg_sleep(60)"]);
    wait_until {
        $stack->query(q{SELECT count(*) FROM pg_stat_activity
            WHERE wait_event = 'PgSleep'})
    } 10, 'someone holds it';
    $code->();
    $stack->query(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE wait_event = 'PgSleep'});
    $holder->stop('TERM', 10);
    return;
}

subtest 'days before' => sub {
    for my $ago (0 .. 12) {
        my @ids = map {"d$ago-$_"} 1 .. 5;
        is verdicts($node->post('acme', [map { event($_, $ago) } @ids])),
            join(' ', ('accepted') x 5), "$ago days ago";
    }
    is counted(), 65, 'all are counted';
    is stored_at('d12-1'), date(12), 'under their days';
    wait_until { unflushed() == 0 } 30, 'the series have them';
};

subtest 'a dry run' => sub {
    my @before = (days('event'), floor_of('event'), floor_of('series_5s'));
    my ($status, $said) = retention(keep(event => 9, series5s => 9),
        '--dry-run');
    is $status, 0, 'is fine' or diag $said;
    like $said, qr/^event \s+ to[ ]be[ ]kept[ ]from[ ]${\ date(9) }
        [ ]\(was[ ]all\),[ ]would[ ]drop[ ]3[ ]partitions/mx, 'tells what would go';
    like $said, qr/^series_1h .* was \s all/mx, 'of each table';
    is_deeply [days('event'), floor_of('event'), floor_of('series_5s')],
        \@before, 'and changes nothing';
};

subtest 'days go' => sub {
    my ($status, $said) = retention(keep(event => 9, series5s => 9,
        duplicateAudit => 9));
    is $status, 0, 'done' or diag $said;
    like $said, qr/^event .* dropped[ ]3[ ]partitions/mx, 'three days are gone';
    is +(days('event'))[0], date(9), 'the oldest is the floor';
    is floor_of('event'), date(9), 'which is stored';
    is floor_of('series_5s'), date(9), 'of the series too';
    is floor_of('series_1m'), date(60), 'each its own';
    is counted(), 65, 'counters are what they were';
    is $stack->query('SELECT count(*) FROM meter.event_registry'), 65,
        'identities too';
    is $stack->query('SELECT count(*) FROM meter.event'), 50, 'events are gone';

    my $gone = $node->ask(path => '/v1/events/d12-1',
        token => $stack->token('acme'));
    is $gone->{status}, 410, 'one that is gone';
    like $gone->{body}, qr/"first_seen_at":"/, 'and when it was seen';
    is $node->ask(path => '/v1/events/d9-1',
        token => $stack->token('acme'))->{status}, 200, 'one that is kept';
    is verdicts($node->post('acme', [event('d12-1', 12), event('d9-1', 9)])),
        'duplicate duplicate', 'both are known';
    is verdicts($node->post('acme', [event('late', 12)])), 'accepted',
        'a late one is taken';
    is stored_at('late'), date(9), 'and stored under the floor';
    is counted(), 66, 'and counted';
    is +(days('event'))[0], date(9), 'without a day of its own';

    ($status, $said) = retention(keep(event => 9, series5s => 9));
    is $status, 0, 'a second run';
    unlike $said, qr/dropped/, 'finds nothing';
    ($status, $said) = retention(keep(event => 20));
    is $status, 0, 'more is kept from now on';
    is floor_of('event'), date(9), 'which brings nothing back';
};

my $edge_rounds = 0;    # events that no counter of api.request has

subtest 'a floor behind the lock of a writer' => sub {
    $stack->query(q{UPDATE meter.partition_floor SET floor = floor + 1
        WHERE parent = 'event'});
    is verdicts($node->post('acme', [event('edge', 9)])), 'accepted',
        'a day that is there, below a floor that was raised';
    is stored_at('edge'), date(8), 'is written to no more';

    # The lock is waited for with the snapshot of before; an event of no
    # meter, since one that is late there is decided in a second try. It may
    # be that a heartbeat of the lane waits in front: then once more.
    my $waited = 0;
    until ($waited || $edge_rounds == 5) {
        my $id   = 'edge-' . ++$edge_rounds;
        my $late = $node->client;
        holding('SELECT FROM meter.writer_seq FOR UPDATE', sub {
            $late->send($node->encode_events('acme',
                [{ %{ event($id, 8) }, type => 'http.request' }]));
            $waited = poll_until {
                $stack->query(q{SELECT count(*) FROM pg_stat_activity
                    WHERE wait_event_type = 'Lock'
                        AND query ~ 'partition_floor_now'})
            } 3;
            $stack->query(sprintf q{UPDATE meter.partition_floor
                SET floor = '%s' WHERE parent = 'event'}, date(7)) if $waited;
        });
        is verdicts($late->receive), 'accepted', 'an event that waited';
        is stored_at($id), date($waited ? 7 : 8), 'is under the floor of now';
    }
    ok $waited, 'it waited for the lock';
    my ($status, $said) = retention(keep(event => 7));
    is $status, 0, 'what was left behind the floor' or diag $said;
    is +(days('event'))[0], date(7), 'is dropped by the next run';
    is counted(), 67, 'all are counted';
};

# Posts events of these days until told to stop; what was said is in a file.
sub loader {
    my ($name, @ago) = @_;
    my $pid = fork // die "fork: $!";
    return $pid if $pid;
    open my $file, '>', "$scratch/$name.sent" or die $!;
    for (my $round = 0; !-e "$scratch/stop"; $round++) {
        my @events = map { event("$name-$round-$_", $ago[$_ % @ago]) } 0 .. 9;
        my $said = verdicts($node->post('acme', \@events));
        print {$file} "$said\n";
    }
    close $file;
    POSIX::_exit(0);
}

subtest 'while events arrive' => sub {
    my $before = counted();
    my @names  = map {"load$_"} 1 .. 2;
    my @pids   = map { loader($_, 0 .. 8) } @names;
    for my $days (6, 5, 4, 3, 2, 1) {
        my $now = counted();
        wait_until { counted() > $now + 50 } 30, 'events are counted';
        my ($status, $said) = retention(
            keep(event => $days, series5s => $days));
        is $status, 0, "$days days" or diag $said;
        is +(days('event'))[0], date($days), 'the oldest day';
    }
    my $now = counted();
    wait_until { counted() > $now + 50 } 30, 'and on';
    Edgemeter::Place::replace_file("$scratch/stop", 0644, undef, '');
    waitpid $_, 0 for @pids;
    my %said;
    for my $name (@names) {
        open my $file, '<', "$scratch/$name.sent" or die $!;
        chomp, $said{$_}++ while <$file>;
    }
    my $all = 'accepted' . ' accepted' x 9;
    is_deeply [keys %said], [$all], 'all were accepted, none refused';
    is counted() - $before, 10 * ($said{$all} // 0), 'and counted once each';
    is $stack->query(q{SELECT count(*) FROM meter.event_registry}),
        counted() + $edge_rounds, 'each has its identity';
    is $stack->query(sprintf q{SELECT count(*) FROM meter.event
        WHERE part_day < '%s'}, date(1)), 0, 'no row below the floor';
    wait_until { unflushed() == 0 } 30, 'the series have them';
    wait_until {
        $stack->query('SELECT count(*) FROM meter.series_dirty') == 0
    } 60, 'and are rolled up';
    is $stack->query(q{SELECT COALESCE(sum(sum), 0)::bigint
        FROM meter.series_7d WHERE tenant = 'acme' AND series = 'requests'}),
        counted(), 'no event is missing in the series';
};

subtest 'someone reads' => sub {
    make_days('event', 3);
    holding('SELECT count(*) FROM meter.event', sub {
        my ($status, $said) = retention(keep(event => 1), '--wait', 1);
        is $status, 1, 'a long transaction';
        like $said, qr/^event .* skipped:[ ]a[ ]long[ ]transaction/mx,
            'is not waited for';
        is verdicts($node->post('acme', [event('busy', 0)])), 'accepted',
            'and events go on';
        is +(days('event'))[0], date(3), 'the day is there';
    });
    holding('SELECT FROM meter.writer_seq FOR UPDATE', sub {
        my ($status, $said) = retention(keep(event => 1), '--wait', 1);
        is $status, 1, 'a writer that is not done';
        like $said, qr/^event .* skipped/mx, 'is told';
        is +(days('event'))[0], date(3), 'the day is there';
    });
    is +(retention(keep(event => 1)))[0], 0, 'the next run';
    is +(days('event'))[0], date(1), 'finishes it';
};

subtest 'one at a time' => sub {
    make_days('event', 3);
    holding(q{SELECT pg_advisory_lock(hashtextextended('meter.retention', 0))},
        sub {
            my ($status, $said) = retention(keep(event => 1));
            is $status, 0, 'another one is at work';
            like $said, qr/another retention is at work/, 'it is told';
            is +(days('event'))[0], date(3), 'nothing is done';
        });
};

# From here on no daemon is at work.
$node->process->stop('TERM', 15);
$stack->query(q{DELETE FROM meter.series_dirty});
$stack->query(q{UPDATE meter.writer_flush SET upto = last
    FROM meter.writer_seq AS seq WHERE seq.writer = writer_flush.writer});

subtest 'series that lack events' => sub {
    $stack->query('UPDATE meter.writer_flush SET upto = upto - 1');
    my ($status, $said) = retention(keep(event => 1), '--wait', 1);
    is $status, 1, 'a tail that is not flushed';
    like $said, qr/^event .* skipped:[ ]not[ ]flushed/mx, 'is told';
    is +(days('event'))[0], date(3), 'and nothing dropped';
    $stack->query('UPDATE meter.writer_flush SET upto = upto + 1');
    is +(retention(keep(event => 1)))[0], 0, 'flushed';
    is +(days('event'))[0], date(1), 'it goes';
};

sub mark {
    my ($level, $ago) = @_;
    return $stack->query(sprintf q{INSERT INTO meter.series_dirty (level,
        tenant, series, version, dimension_key, bucket, marked_at)
        VALUES (%d, 'acme', 'requests', 1, '\x00', '%sT12:00:00Z', now())},
        $level, date($ago));
}

subtest 'buckets that are to be rolled up' => sub {
    $stack->query(sprintf q{UPDATE meter.partition_floor SET floor = '%s'
        WHERE parent IN ('series_5s', 'series_1m')}, date(10));
    make_days('series_5s', 1 .. 12);
    make_days('series_1m', 1 .. 12);
    mark(1, 6);
    my %keep = (event => 1, series5s => 5, series1m => 5);
    my ($status, $said) = retention(keep(%keep), '--wait', 1);
    is $status, 1, 'a bucket of 1m below the floor';
    like $said, qr/^series_5s .* skipped:[ ]1[ ]buckets[ ]before/mx, 'is told';
    like $said, qr/^event /m, 'the other tables are looked at';
    is floor_of('series_5s'), date(10), '5s stays';
    is floor_of('series_1m'), date(10), 'and 1m with it';
    is +(days('series_5s'))[0], date(10), 'but for what was below its floor';

    $stack->query('DELETE FROM meter.series_dirty');
    mark(2, 6);
    ($status, $said) = retention(keep(%keep), '--wait', 1);
    is $status, 1, 'a bucket of 1h below the floor';
    is +(days('series_5s'))[0], date(5), 'does not need 5s';
    is floor_of('series_1m'), date(10), '1m stays';
    is +(days('series_1m'))[0], date(10), 'all of it';

    $stack->query('DELETE FROM meter.series_dirty');
    mark(1, 5);
    ($status, $said) = retention(keep(%keep), '--wait', 1);
    is $status, 0, 'one above the floor needs nothing below' or diag $said;
    is +(days($_))[0], date(5), "$_ goes" for qw(series_5s series_1m);
    $stack->query('DELETE FROM meter.series_dirty');
};

# A flush under way has looked at the floor, and marks a bucket below the
# new one; it commits when retention waits for it.
subtest 'a flush under way' => sub {
    my $flush = Edgemeter::Process->spawn(
        name => 'flush', log => "$scratch/flush.log",
        user => $stack->account,
        command => [$stack->cluster->{bin} . '/psql', '-q', '-v',
            'ON_ERROR_STOP=1', '--dbname', $stack->database_url, '-c',
            sprintf q{BEGIN; SELECT FROM meter.partition_floor
                WHERE parent = 'series_5s' FOR SHARE;
            INSERT INTO meter.series_dirty (level, tenant, series, version,
                dimension_key, bucket, marked_at)
            VALUES (1, 'acme', 'requests', 1, '\x00', '%sT12:00:00Z', now());
            DO $$ BEGIN
                FOR round IN 1 .. 1000 LOOP
                    PERFORM pg_sleep(0.02);
                    PERFORM pg_stat_clear_snapshot();
                    EXIT WHEN EXISTS (SELECT FROM pg_stat_activity
                        WHERE wait_event_type = 'Lock'
                            AND query ~ 'partition_floor'
                            AND pid <> pg_backend_pid());
                END LOOP;
            END $$; COMMIT}, date(5)]);
    wait_until {
        $stack->query(q{SELECT count(*) FROM pg_stat_activity
            WHERE wait_event = 'PgSleep'})
    } 10, 'it has the floor';
    my ($status, $said) = retention(
        keep(event => 1, series5s => 4, series1m => 5), '--wait', 4);
    is $status, 1, 'retention waits';
    like $said, qr/^series_5s .* skipped:[ ]1[ ]buckets/mx,
        'and sees its mark then';
    is floor_of('series_5s'), date(5), 'the floor stays';
    $flush->stop('TERM', 10);
    $stack->query('DELETE FROM meter.series_dirty');
};

subtest 'crashes' => sub {
    make_days('series_5s', 4, 5);
    my $section = keep(event => 1, series5s => 3, series1m => 5);
    my ($status) = retention($section,
        { METERD_CRASH_POINT => 'retention_raised' });
    is $status, -9, 'between the floor and the days';
    is floor_of('series_5s'), date(3), 'the floor is raised';
    is +(days('series_5s'))[0], date(5), 'the days are there';
    ($status) = retention($section, { METERD_CRASH_POINT => 'retention_drop:2' });
    is $status, -9, 'between two days';
    is +(days('series_5s'))[0], date(4), 'one is gone';
    is +(retention($section))[0], 0, 'the next run';
    is +(days('series_5s'))[0], date(3), 'finishes it';
};

subtest 'what seems not to be meant' => sub {
    $stack->query(sprintf q{UPDATE meter.partition_floor SET floor = '%s'
        WHERE parent = 'duplicate_audit'}, date(50));
    make_days('duplicate_audit', 49);
    my $section = keep(event => 1, duplicateAudit => 5, series5s => 3,
        series1m => 5);
    my ($status, $said) = retention($section);
    is $status, 1, 'a floor that jumps';
    like $said, qr/^duplicate_audit .* 45[ ]days[ ]would[ ]go.*--force/mx,
        'is told';
    is floor_of('duplicate_audit'), date(50), 'and not raised';
    is +(days('duplicate_audit'))[0], date(49), 'nothing goes';

    $stack->query(sprintf q{UPDATE meter.partition_floor SET floor = '%s'
        WHERE parent = 'series_5s'}, date(50));
    $stack->query(sprintf q{UPDATE meter.partition_floor SET floor = '%s'
        WHERE parent = 'series_1m'}, date(30));
    is +(retention($section))[0], 1, 'a fine level that is left';
    is floor_of('series_1m'), date(30), 'holds up the coarser';

    $stack->query(q{UPDATE meter.writer_seq
        SET heartbeat_at = heartbeat_at - interval '49 h'});
    ($status, $said) = retention($section);
    is $status, 1, 'a clock that is far ahead of all writers';
    like $said, qr/nothing was dropped/, 'is told';
    unlike $said, qr/^duplicate_audit/m, 'and no table looked at';
    ($status, $said) = retention($section, '--force');
    is $status, 0, 'whoever insists' or diag $said;
    is +(days('duplicate_audit'))[0] ge date(5), 1, 'gets it';
};

subtest 'the daemon does it' => sub {
    make_days('event', 3, 4);
    $stack->query('TRUNCATE meter.retention_kept');
    my %daemon = (env => { METERD_TEST_RETENTION_MS => 300 },
        yaml => { retention => keep(event => 1, series5s => 3, series1m => 5,
                duplicateAudit => 5) });
    my @nodes = map { node($_, %daemon) } qw(b c);
    wait_until {
        $nodes[0]->metric('edgemeter_retention_dropped_total')
            + $nodes[1]->metric('edgemeter_retention_dropped_total') >= 2
    } 60, 'by itself';
    is +(days('event'))[0], date(1), 'the days are gone';
    wait_until { $_->metric('edgemeter_retention_last_seconds') } 60,
        'and when it was' for @nodes;
    like $nodes[0]->log . $nodes[1]->log,
        qr/"subsystem":"retention","message":"dropped","table":"event"/,
        'the log has it';
    unlike $_->log, qr/^[^{]/m, 'of JSON, as all' for @nodes;
    is verdicts($nodes[0]->post('acme', [event('after', 4)])), 'accepted',
        'a late event';
    is stored_at('after'), date(1), 'under the floor';
    $_->process->stop('TERM', 15) for @nodes;
    ok !$_->process->alive, 'and an end' for @nodes;
};

# 15 days were kept; with 5 of them ten more would go, which nobody said.
subtest 'a shorter figure' => sub {
    my $kept = sub {
        return $stack->query(q{SELECT days FROM meter.retention_kept
            WHERE parent = 'duplicate_audit'});
    };
    my $days = sub { return scalar grep { $_ lt date(5) } days('duplicate_audit') };
    my @rest = (event => 1, series5s => 3, series1m => 5);
    my ($long, $short) = map { keep(@rest, duplicateAudit => $_) } 15, 5;
    $stack->query(sprintf q{UPDATE meter.partition_floor SET floor = '%s'
        WHERE parent = 'duplicate_audit'}, date(20));
    my ($status, $said) = retention($long);
    is $status, 0, 'the first run needs no word' or diag $said;
    is $kept->(), 15, 'its figure is in force';
    $stack->query(sprintf q{UPDATE meter.partition_floor SET floor = '%s'
        WHERE parent = 'duplicate_audit'}, date(20));
    make_days('duplicate_audit', 6 .. 20);

    for my $dry ('--dry-run', undef) {
        ($status, $said) = retention_on($short, grep {defined} $dry);
        is $status, 1, 'less is to be kept' or diag $said;
        like $said, qr/^duplicate_audit .* waits:[ ]it[ ]was[ ]kept[ ]for[ ]15
            [ ]days[ ]and[ ]is[ ]to[ ]be[ ]for[ ]5,[ ]which[ ]would[ ]drop
            [ ]10[ ]partitions[ ].*--force$/mx, 'what would go is told';
        is $days->(), $dry ? 15 : 10, $dry ? 'a dry run'
            : 'what 15 days do not keep is gone';
        is $kept->(), 15, 'they are in force';
    }

    make_days('duplicate_audit', 16);
    $stack->query(q{UPDATE meter.retention_kept SET days = 10
        WHERE parent = 'event'});
    $stack->query(sprintf q{UPDATE meter.partition_floor SET floor = '%s'
        WHERE parent = 'event'}, date(10));
    my $daemon = node('d', env => { METERD_TEST_RETENTION_MS => 300,
            METERD_TEST_FLUSH_MS => 300 }, yaml => { retention => $short });
    wait_until { $daemon->metric('edgemeter_retention_waiting') == 2 } 60,
        'a daemon waits';
    is verdicts($daemon->post('acme', [event('waits', 4)])), 'accepted',
        'a late event';
    is stored_at('waits'), date(4), 'goes by the days that are in force';
    wait_until { $daemon->metric('edgemeter_retention_last_seconds') } 60,
        'and does what is in force';
    is $days->(), 10, 'the days are there';
    is $daemon->metric('edgemeter_retention_failures_total'), 0,
        'which is no failure';
    like $daemon->log, qr/"level":"warn","subsystem":"retention",
        "message":"kept[ ]for[ ]as[ ]long[ ]as[ ]before;[ ]if[ ]it[ ]is[ ]to
        [ ]be[ ]shorter:[ ]meterd[ ]retention[ ]--force",
        "table":"duplicate_audit","days":15,"configured":5,"would_drop":10,/x,
        'it says how to confirm it';

    wait_until {
        ($status, $said) = retention_on($short, '--force');
        $said !~ /another retention is at work/
    } 60, 'it is its turn';
    is $status, 0, 'confirmed' or diag $said;
    is $days->(), 0, 'the days go';
    is $kept->(), 5, 'the figure is in force';
    wait_until { $daemon->metric('edgemeter_retention_waiting') == 0 } 60,
        'the daemon waits no longer';
    $daemon->process->stop('TERM', 15);
    is +(retention_on($short))[0], 0, 'from then on without a word';
    ($status) = retention_on($long);
    is "$status " . $kept->(), '0 15', 'more is kept at once';
    ($status) = retention_on($long =~ s/duplicateAudit: 15d/duplicateAudit: forever/r);
    is "$status " . $kept->(), '0 -1', 'for ever, too';
    is +(retention_on($long))[0], 1, 'which is then not ended by itself';
};

subtest 'usage' => sub {
    my ($status, $said) = retention(keep(), '--wait', 'x');
    is $status, 2, '--wait takes a number';
    ($status, $said) = retention(keep(), 'now');
    is $status, 2, 'no arguments';
    my ($help, $out) = $stack->meterd_command('retention', '--help');
    is $help, 0, '--help';
    like $out, qr/--dry-run/, 'tells of options';
};

done_testing;
