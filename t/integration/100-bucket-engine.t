#!/usr/bin/perl

# 100-bucket-engine.t - writes of the counters API on their way to the
# database: many clients, two meterd, connections that end, COMMITs that are
# cut, a database that blames one operation of many, locks of others.
#
# Every write is +1, so the answers themselves tell: with n answered 200 on a
# counter they are 1 to n, each once, and so is the row.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use File::Temp ();
use POSIX ();
use Test::More;
use Edgemeter::Counters;
use Edgemeter::Node;
use Edgemeter::Proxy;
use Edgemeter::SocketClient;
use Edgemeter::Stack;
use Edgemeter::Url;
use Edgemeter::Wait qw(now wait_until);

my $seconds = $ENV{TORTURE_SECONDS} || 3;
my $clients = 6;                            # on each node
my $hot     = 5;

my $stack = Edgemeter::Stack->for_test(
    settings => { deadlock_timeout => '20ms', log_lock_waits => 'on' },
    env      => { METERD_TEST_SWEEP_MS => 50 },
)->start;
my $counters = Edgemeter::Counters->new($stack->http('acme'), 'acme');

sub told { return $counters->told(@_) }

sub numbers {
    return sprintf '200 {"net":"%s","added":"%s","subbed":"%s"}', @_;
}

sub bytes {
    my ($verb, $name, %more) = @_;
    return Edgemeter::SocketClient::encode(
        method => Edgemeter::Counters::method_of($verb),
        path   => $counters->path($verb, $name),
        type   => 'application/json',
        token  => $stack->token('acme'),
        key    => delete $more{key},
        body   => Edgemeter::Counters::body_of(%more),
    );
}

# --- load ---------------------------------------------------------------

# One of each: hot counters, and counters that nobody has made yet.
sub client_run {
    my ($node, $prefix, $client, $stop, $path) = @_;
    open my $log, '>', $path or die $!;
    my $connection = $node->client or die "no connection\n";
    for (my $i = 0; !-e $stop; $i++) {
        my $verb = $client % 3 == 0 ? 'incrementSync' : 'increment';
        my $name = $i % 4 ? 'hot' . $i % $hot : 'new' . int $i / 8;
        my $got;
        if ($connection->send(bytes($verb, "$prefix-$name"))) {
            $got = $connection->receive;
        }
        printf {$log} "%s %s %s\n", "$prefix-$name",
            $got ? ($got->{status}, $got->{json}{added} // '-') : (0, '-');
        $connection = $node->client // die "no connection\n" if !$got;
    }
    close $log;
    return;
}

sub counters {
    my ($prefix) = @_;
    return $stack->query("SELECT count(*) FROM meter.bucket_counter"
            . " WHERE name LIKE '$prefix-%'");
}

sub load {
    my ($prefix, $nodes, $meanwhile) = @_;
    my $directory = File::Temp->newdir('em-buckets-XXXXXX', TMPDIR => 1);
    my @pids;
    for my $n (0 .. $#$nodes) {
        for my $client (1 .. $clients) {
            my $pid = fork // die "fork: $!";
            if ($pid == 0) {
                my $ok = eval {
                    client_run($nodes->[$n], $prefix, $client,
                        "$directory/stop", "$directory/told-$n-$client");
                    1;
                };
                print STDERR $@ unless $ok;
                POSIX::_exit($ok ? 0 : 1);
            }
            push @pids, $pid;
        }
    }
    my $end = now() + $seconds;
    wait_until {
        $meanwhile->() && now() > $end && counters($prefix) > 10 + $hot
    } $seconds + 60, 'time is over and there are enough counters';
    open my $flag, '>', "$directory/stop" or die $!;
    close $flag;
    for my $pid (@pids) {
        waitpid $pid, 0;
        is $?, 0, 'a client ended well';
    }
    my (%seen, %status);
    for my $path (glob "$directory/told-*") {
        open my $in, '<', $path or die $!;
        while (<$in>) {
            my ($name, $status, $added) = split;
            $status{$status}++;
            $seen{$name}{$added}++ if $status == 200;
        }
    }
    return (\%seen, \%status);
}

# Answers on each counter are 1 to n, and n is what the row has.
sub verify {
    my ($prefix, $seen) = @_;
    my %row = map { split /\t/ } split /\n/, $stack->query(
        "SELECT name, added FROM meter.bucket_counter"
            . " WHERE name LIKE '$prefix-%'");
    my @wrong;
    for my $name (sort keys %row) {
        my $answers = $seen->{$name} // {};
        my @missing = grep { ($answers->{$_} // 0) != 1 } 1 .. $row{$name};
        push @wrong, "$name: @missing[0 .. ($#missing > 9 ? 9 : $#missing)]"
            if @missing || keys %$answers != $row{$name};
    }
    is_deeply \@wrong, [], 'every answered write is counted once';
    is_deeply [grep { !exists $row{$_} } keys %$seen], [], 'nothing is missing';
    cmp_ok scalar keys %row, '>', 10 + $hot, keys(%row) . ' counters';
    return;
}

sub deadlocks {
    my $count = () = $stack->log('postgres') =~ /deadlock detected/g;
    return $count;
}

sub end_node {
    my ($node) = @_;
    ok $node->process->stop('TERM', 15), 'a node ends';
    is $node->process->status, 0, 'well';
    unlike $node->log, qr/"level":"error"/, 'without an error';
    return;
}

subtest 'two nodes, the same counters: exact, and no deadlock' => sub {
    my @nodes = map {
        Edgemeter::Node->start($stack, name => "two$_")->wait_ready
    } 1 .. 2;
    my ($seen, $status) = load('two', \@nodes, sub {1});
    is_deeply [keys %$status], [200], 'all are answered 200';
    verify('two', $seen);
    is deadlocks(), 0, 'no deadlock';
    for my $node (@nodes) {
        cmp_ok $node->metric('edgemeter_bucket_batch_operations_total'), '>',
            $node->metric('edgemeter_bucket_batches_total'),
            'operations go together';
        is $node->metric('edgemeter_bucket_operations_total'),
            $node->metric('edgemeter_bucket_batched_seconds_count')
            + $node->metric('edgemeter_bucket_sync_seconds_count'),
            'each has its time';
        end_node($node);
    }
};

subtest 'backends end in the middle: all is counted once' => sub {
    my $node = Edgemeter::Node->start($stack, name => 'ends')->wait_ready;
    my $ended = 0;
    my ($seen, $status) = load('ends', [$node], sub {
        $ended += $stack->query(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                . " WHERE application_name LIKE 'meterd bucket-%'"
                . " AND state <> 'idle' AND random() < 0.5");
        return $ended > 20;
    });
    note "$ended backends were ended";
    is_deeply [keys %$status], [200], 'all are answered 200';
    verify('ends', $seen);
    end_node($node);
};

subtest 'connections are cut at their COMMIT: the number tells' => sub {
    my $proxy = Edgemeter::Proxy->new(every => 20, name => qr/bucket/,
        socket => $stack->cluster->{sockets} . '/.s.PGSQL.5432')->start;
    my $host = Edgemeter::Url::encode($proxy->directory);
    my $node = Edgemeter::Node->start($stack, name => 'cut', yaml => {
        database => "'postgresql://meterd\@$host/edgemeter'" })->wait_ready;
    my ($seen, $status) = load('cut', [$node], sub {
        my %now = $proxy->cuts;
        return !grep { $_ < 2 } values %now;
    });
    my %cuts = $proxy->cuts;
    cmp_ok $cuts{$_}, '>', 0, "cut $cuts{$_} times: $_" for sort keys %cuts;
    cmp_ok $node->metric('edgemeter_commits_unknown_total'), '>', 0,
        'outcomes were looked up';
    is_deeply [keys %$status], [200], 'all are answered 200';
    verify('cut', $seen);
    end_node($node);
};

# --- one at a time ------------------------------------------------------

subtest 'the database blames one of many: only that one is 500' => sub {
    $stack->query(<<'SQL');
CREATE FUNCTION meter.refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = '22003'; END$$;
CREATE TRIGGER refuse BEFORE INSERT ON meter.bucket_counter
    FOR EACH ROW WHEN (new.name = 'refused') EXECUTE FUNCTION meter.refuse();
SQL
    is told('increment', 'held'), numbers(1, 1, 0), 'a counter to wait for';
    my $locker  = $counters->lock_bucket($stack, 'held');
    my @clients = map { $counters->start($stack, 'increment', $_) }
        qw(held one refused two one);
    $counters->wait_blocked($stack);
    $counters->unlock($stack, $locker);
    my @got = map { $_->receive } @clients;
    is join(' ', map { $_->{status} } @got), '200 200 500 200 200',
        'the others are applied';
    is $got[4]{json}{added}, 2, 'in their order';
    is told('get', 'refused') =~ s/ .*//r, 404, 'nothing of that one';
    like $stack->log('meterd'), qr/refused an operation.*"sqlstate":"22003"/,
        'and the log says why';
    is told('incrementSync', 'refused') =~ s/ .*//r, 500, 'alone, too';
    is told('increment', 'one'), numbers(3, 3, 0), 'it goes on';
    # The table first: whoever comes from a partition meets a sweep.
    $stack->query('DROP TRIGGER refuse ON meter.bucket_counter;'
        . 'DROP FUNCTION meter.refuse');
};

subtest 'a client that is gone before its turn: not applied' => sub {
    my $locker = $counters->lock_bucket($stack, 'held');
    my $first  = $counters->start($stack, 'increment', 'held');
    $counters->wait_blocked($stack);
    my $gone = $counters->start($stack, 'increment', 'gone');
    is $counters->metric('edgemeter_bucket_queue_operations'), 1, 'it waits';
    $gone->close;
    wait_until { $counters->metric('edgemeter_bucket_queue_operations') == 0 }
        10, 'it is dropped';
    $counters->unlock($stack, $locker);
    is $first->receive->{status}, 200, 'the one before is applied';
    is told('get', 'gone') =~ s/ .*//r, 404, 'this one never';
};

subtest 'a lock that stays: 503 after 10 s, and nothing has happened' => sub {
    my $before  = told('get', 'held');
    my $locker  = $counters->lock_bucket($stack, 'held');
    my $began   = now();
    my @clients = map { $counters->start($stack, $_, 'held') }
        qw(increment incrementSync increment);
    my @got = map { $_->receive } @clients;
    is join(' ', map { $_->{status} } @got), '503 503 503', 'not applied';
    is $got[0]{retry}, 1, 'Retry-After';
    cmp_ok now() - $began, '>', 9.5, 'not too early';
    cmp_ok now() - $began, '<', 14, 'not too late';
    $counters->unlock($stack, $locker);
    is told('get', 'held'), $before, 'indeed';
    like told('increment', 'held'), qr/^200 /, 'it goes on';
};

subtest 'a commit that is not replicated: 504' => sub {
    my $standby = sub {
        my ($name) = @_;
        $stack->query("SET synchronous_commit = local;\n"
            . "ALTER SYSTEM SET synchronous_standby_names = '$name';\n"
            . 'SELECT pg_reload_conf()');
        wait_until { $stack->query('SHOW synchronous_standby_names') eq $name }
            10, 'the server knows its standbys';
    };
    is told('increment', 'alone'), numbers(1, 1, 0), 'made';
    $standby->('nowhere');
    my $client = $counters->start($stack, 'increment', 'alone');
    my $pid;
    wait_until {
        $pid = $stack->query("SELECT pid FROM pg_stat_activity WHERE"
            . " application_name = 'meterd bucket-0'"
            . " AND wait_event = 'SyncRep'")
    } 10, 'the lane waits for a standby';
    $stack->query("SET synchronous_commit = local;"
        . "SELECT pg_cancel_backend($pid)");
    my $got = $client->receive;
    is "$got->{status} $got->{body}", '504 {"error":"It is not known whether'
        . ' the operation was applied","outcome":"unknown"}', 'not known';

    # Nobody ends this one's waiting.
    my $began = now();
    my @clients = map { $counters->start($stack, 'increment', 'alone') } 1, 2;
    is $clients[1]->receive->{status}, 503, '503: it had not begun';
    cmp_ok now() - $began, '<', 14, 'after 10 s';
    is $clients[0]->receive->{status}, 504, '504: its COMMIT was sent';
    cmp_ok now() - $began, '>', 19.5, 'not too early';
    cmp_ok now() - $began, '<', 24, 'not too late';
    $standby->('');
    is told('increment', 'alone'), numbers(4, 4, 0), 'it goes on';
};

subtest 'meterd ends with writes under way' => sub {
    my $node = Edgemeter::Node->start($stack, name => 'last')->wait_ready;
    my $locker  = $counters->lock_bucket($stack, 'held');
    my @clients = map {
        my $client = $node->client or die $!;
        $client->send(bytes($_, 'held'));
        $client;
    } qw(increment incrementSync);
    $counters->wait_blocked($stack, 2);
    push @clients, $node->client;
    $clients[2]->send(bytes('increment', 'held'));
    wait_until { $node->metric('edgemeter_bucket_queue_operations') == 1 } 10,
        'one waits';
    kill 'TERM', $node->pid;
    wait_until { $node->log =~ /SIGTERM/ } 10, 'the signal is seen';
    ok $node->process->stop('TERM', 10), 'a second one: it ends at once';
    is $node->process->status, 0, 'well';
    ok $_->closed(5), 'a client sees the connection end' for @clients;
    $counters->unlock($stack, $locker);
    like told('increment', 'held'), qr/^200 /, 'no one holds the counter';
};

subtest 'expired buckets are deleted, others stay' => sub {
    my $expired = $counters->metric('edgemeter_bucket_expired_total');
    told('increment', "old$_", expiresAt => '2020-01-01T00:00:00Z') for 1 .. 3;
    told('increment', 'young', expiresAt => '2100-01-01T00:00:00Z');
    wait_until {
        $counters->metric('edgemeter_bucket_expired_total') == $expired + 3
    } 10, 'three are deleted';
    is $stack->query("SELECT string_agg(name, ' ') FROM meter.bucket_counter"
            . " WHERE name LIKE 'old%' OR name = 'young'"), 'young',
        'only these';
};

subtest 'meterd dies on the way: with a key all is applied once' => sub {
    my %committed = (bucket_locked => 0, bucket_commit_sent => 'maybe',
        bucket_committed => 1);
    for my $point (sort keys %committed) {
        for my $verb (qw(increment incrementSync)) {
            my $name = "$point-$verb";
            my $key  = { header => { 'Idempotency-Key' => $name } };
            $stack->stop_part('meterd') if $stack->alive('meterd');
            $stack->{env} = { METERD_CRASH_POINT => $point };
            $stack->start_part('meterd');
            $stack->wait_healthy;
            wait_until { $stack->http->get('/readyz')->{status} == 200 } 30,
                'ready';
            is $counters->send($verb, $name, %$key)->{status}, 504,
                "$name: not known";
            wait_until { !$stack->alive('meterd') } 10, 'meterd is gone';
            my $count = $stack->query("SELECT coalesce(sum(added), 0)"
                . " FROM meter.bucket_counter WHERE name = '$name'");
            if ($committed{$point} eq 'maybe') {
                ok $count == 0 || $count == 1, 'all or nothing';
            }
            else {
                is $count, $committed{$point}, 'as the point says';
            }
            $stack->{env} = {};
            $stack->start_part('meterd');
            $stack->wait_healthy;
            wait_until { $stack->http->get('/readyz')->{status} == 200 } 30,
                'ready';
            is told($verb, $name, %$key), numbers(1, 1, 0), 'sent again';
            is told('get', $name), numbers(1, 1, 0), 'once';
        }
    }
};

is deadlocks(), 0, 'no deadlock in all of this';
$stack->stop;
unlike $stack->log('meterd'), qr/AddressSanitizer|runtime error/, 'clean';
done_testing;
