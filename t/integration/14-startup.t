#!/usr/bin/perl

# 14-startup.t - starting: what meterd refuses, what it waits for, what it
# finds left behind, how little it takes; and how it ends.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use IO::Socket::UNIX;
use JSON::PP ();
use POSIX ();
use Test::More;
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::SocketClient;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until poll_until);

my $stack = Edgemeter::Stack->for_test;
$stack->prepare;
$stack->start_database;
$stack->migrate;
$stack->make_tokens;
my $cluster = $stack->cluster;
my $scratch = $stack->place->path('tmp');
my $rules   = ($stack->config_arguments)[1];
my $runs    = 0;

# A directory that meterd may write.
sub state_dir {
    my ($name) = @_;
    my $path = "$scratch/$name";
    mkdir $path, 0750;
    $stack->account->own($path);
    return $path;
}

# Starts a meterd of its own with some options changed; returns the process,
# which knows where its log and socket are.
sub start_meterd {
    my (%change) = @_;
    my $name = 'try' . ++$runs;
    my $prefix = delete $change{prefix} // [];
    my %option = (
        database      => $cluster->url('meterd', 'edgemeter'),
        adminDatabase => $cluster->url('meter_owner', 'edgemeter'),
        listen        => "unix:$scratch/$name.sock",
        node          => 'test',
        stateDir      => $stack->place->path('meterd'),
        %change
    );
    my $yaml = "$scratch/$name.yaml";
    Edgemeter::Place::replace_file($yaml, 0644, $stack->account,
        join '', map {"$_: '$option{$_}'\n"} sort keys %option);
    my $process = Edgemeter::Process->spawn(
        name    => $name,
        log     => "$scratch/$name.log",
        user    => $stack->account,
        command => [@$prefix, $stack->{program}, '-c', $rules, '-c', $yaml],
    );
    ($process->{socket_path} = $option{listen}) =~ s/^unix://;
    $process->{log_path} = "$scratch/$name.log";
    return $process;
}

sub log_of {
    my ($process) = @_;
    open my $file, '<', $process->{log_path} or return '';
    local $/;
    return <$file> // '';
}

sub ask {
    my ($process, %request) = @_;
    my $client = Edgemeter::SocketClient->new($process->{socket_path})
        or return { status => 0 };
    return $client->request(%request) // { status => 0 };
}

sub healthy {
    my ($process, $seconds) = @_;
    poll_until {
        !$process->alive || ask($process, path => '/healthz')->{status} == 200
    } $seconds // 20;
    return $process->alive && ask($process, path => '/healthz')->{status} == 200;
}

sub refused_ok {
    my ($process, $reason, $name) = @_;
    ok poll_until(sub { !$process->alive }, 15), "$name: it ends";
    is $process->status, 1 << 8, 'with status 1';
    my ($line) = grep {/refused to run/} split /\n/, log_of($process);
    my $json = JSON::PP::decode_json($line // '{}');
    is $json->{level}, 'error', 'an error is logged';
    like $json->{reason}, $reason, 'with the reason';
    $process->stop('KILL', 5);
    return;
}

sub stop_ok {
    my ($process, $name) = @_;
    ok $process->stop('TERM', 15), "$name: ends by itself";
    is $process->status, 0, 'with status 0';
    return;
}

subtest 'refusals' => sub {
    refused_ok(start_meterd(database => $cluster->url('postgres', 'edgemeter')),
        qr/superuser/i, 'a superuser');

    $stack->query('ALTER ROLE meter_reader BYPASSRLS');
    refused_ok(start_meterd(), qr/row-level security|BYPASSRLS/i,
        'a reader that bypasses row-level security');
    $stack->query('ALTER ROLE meter_reader NOBYPASSRLS');

    $stack->query("ALTER ROLE meterd SET synchronous_commit = off");
    refused_ok(start_meterd(), qr/synchronous_commit/,
        'synchronous_commit off');
    $stack->query("ALTER ROLE meterd RESET synchronous_commit");

    $stack->query("ALTER SYSTEM SET fsync = off");
    $stack->query("SELECT pg_reload_conf()");
    # run.conf comes before postgresql.auto.conf, which wins.
    wait_until { $stack->query('SHOW fsync') eq 'off' } 10, 'fsync is off';
    refused_ok(start_meterd(), qr/fsync/, 'fsync off');
    $stack->query("ALTER SYSTEM RESET fsync");
    $stack->query("SELECT pg_reload_conf()");
    wait_until { $stack->query('SHOW fsync') eq 'on' } 10, 'fsync is on';
};

subtest 'a configuration that is not enough' => sub {
    my ($status, undef, $err) = $stack->meterd_command('run', '-c',
        $rules);
    is $status >> 8, 1, 'status 1';
    like $err, qr/"$_"/, "$_ is named"
        for qw(database adminDatabase listen stateDir);
    my $long = start_meterd(listen => 'unix:/' . 'x' x 120);
    ok poll_until(sub { !$long->alive }, 10), 'a path of 121 bytes: ends';
    is $long->status, 1 << 8, 'with status 1';
    like log_of($long), qr/107/, 'naming the limit';
};

subtest 'stale socket, second instance' => sub {
    my $path = "$scratch/shared.sock";
    my $left = IO::Socket::UNIX->new(Local => $path, Listen => 1)
        or die "$path: $!";
    close $left;
    $stack->account->own($path);
    ok -S $path, 'a socket nobody listens on';
    my $first = start_meterd(listen => "unix:$path");
    ok healthy($first), 'is replaced' or diag log_of($first);
    is sprintf('%04o', (stat $path)[2] & 07777), '0660', 'mode 0660';

    my $second = start_meterd(listen => "unix:$path",
        stateDir => state_dir('other-state'));
    ok poll_until(sub { !$second->alive }, 10), 'a second one on the socket';
    is $second->status, 1 << 8, 'ends with status 1';
    like log_of($second), qr/another meterd serves this socket/, 'says why';
    is ask($first, path => '/healthz')->{status}, 200,
        'the first one still serves';

    my $third = start_meterd();
    ok poll_until(sub { !$third->alive }, 10), 'one on the state directory';
    is $third->status, 1 << 8, 'ends with status 1';
    like log_of($third), qr/lock|another|use/, 'says why';
    is ask($first, path => '/readyz')->{status}, 200,
        'the first one still commits';

    $first->stop('KILL', 5);
    poll_until { !$first->alive } 5;
    ok -S $path, 'kill -9 leaves the socket';
    my $again = start_meterd(listen => "unix:$path");
    ok healthy($again), 'the next one takes over';
    stop_ok($again, 'SIGTERM');
    ok !-e $path, 'a clean end removes the socket';

    open my $file, '>', "$scratch/plain" or die $!;
    print {$file} "precious\n";
    close $file;
    $stack->account->own("$scratch/plain");
    my $plain = start_meterd(listen => "unix:$scratch/plain");
    ok poll_until(sub { !$plain->alive }, 10), "somebody's file: ends";
    is -s "$scratch/plain", 9, 'and leaves it alone';
};

subtest 'a race of two' => sub {
    for my $round (1 .. 5) {
        my $path = "$scratch/race.sock";
        my @racers = map {
            start_meterd(listen => "unix:$path",
                stateDir => state_dir("race-state$_"))
        } 1 .. 2;
        ok poll_until(sub { 1 == grep { $_->alive } @racers }, 10),
            'one gives up';
        my ($winner) = grep { $_->alive } @racers;
        ok healthy($winner), 'the other serves';
        $winner->stop('TERM', 15);
    }
};

subtest 'without PostgreSQL' => sub {
    $cluster->stop('fast');
    my $process = start_meterd();
    ok poll_until(
        sub { ask($process, path => '/healthz')->{status} == 503 }, 10),
        'healthz answers 503';
    is ask($process, path => '/readyz')->{status}, 503, 'readyz too';
    is ask($process, path => '/metrics')->{status}, 200, 'metrics are there';
    my $token = $stack->token('acme');
    my $answer = ask($process, path => '/v1/events/x', token => $token);
    is $answer->{status}, 503, 'data: 503';
    is $answer->{retry}, 1, 'with Retry-After';
    is ask($process, method => 'POST', path => '/v1/events', body => '[]',
        type => 'application/json', token => $token)->{status}, 503,
        'events: 503';
    is ask($process, path => '/v1/none')->{status}, 404, 'paths: 404';
    is ask($process, path => '/v1/events/x')->{status}, 401,
        'no token: 401';

    $cluster->start;
    ok healthy($process), 'when it comes, healthz answers 200'
        or diag log_of($process);
    ok poll_until(
        sub { ask($process, path => '/readyz')->{status} == 200 }, 10),
        'and readyz';
    is ask($process, path => '/v1/events/x', token => $token)->{status}, 404,
        'and data is served';

    $cluster->stop('immediate');
    ok poll_until(
        sub { ask($process, path => '/readyz')->{status} == 503 }, 10),
        'gone again: not ready';
    is ask($process, path => '/healthz')->{status}, 200, 'but alive';
    $cluster->start;
    ok poll_until(
        sub { ask($process, path => '/readyz')->{status} == 200 }, 20),
        'ready again';
    stop_ok($process, 'SIGTERM');
    unlike log_of($process), qr/postgresql:/, 'no connection string is logged';
};

subtest 'SIGTERM without PostgreSQL' => sub {
    $cluster->stop('fast');
    my $process = start_meterd();
    wait_until { ask($process, path => '/healthz')->{status} == 503 } 10,
        'meterd listens';
    stop_ok($process, 'nothing to drain');
    $cluster->start;
};

subtest 'a schema that is older' => sub {
    $stack->query('ALTER TABLE meter.schema_migration RENAME TO hidden');
    my $process = start_meterd();
    ok poll_until(sub { !$process->alive }, 15), 'ends';
    is $process->status, 1 << 8, 'with status 1';
    like log_of($process), qr/migrate/, 'and says what to do';
    $process->stop('KILL', 5);
    $stack->query('ALTER TABLE meter.hidden RENAME TO schema_migration');
};

subtest 'idle memory, descriptors, core dumps' => sub {
    my $process = start_meterd();
    ok healthy($process), 'up';
    my %fact;
    for my $file ("/proc/" . $process->pid . "/status",
        "/proc/" . $process->pid . "/limits") {
        open my $in, '<', $file or die "$file: $!";
        while (<$in>) {
            $fact{rss}  = $1 if /^VmRSS:\s+(\d+) kB/;
            $fact{core} = "$1 $2" if /^Max core file size\s+(\S+)\s+(\S+)/;
        }
    }
    SKIP: {
        skip 'a sanitizer takes memory of its own', 1
            if "$stack->{meterd} $stack->{program}" =~ /asan/;
        cmp_ok $fact{rss}, '<', 30 * 1024,
            "resident: $fact{rss} kB, under 30 MB";
    }
    is $fact{core}, '0 0', 'no core dump could hold a token';
    stop_ok($process, 'SIGTERM');
};

subtest 'few descriptors' => sub {
    my $process
        = start_meterd(prefix => ['sh', '-c', 'ulimit -n 64 && exec "$@"', '-']);
    ok healthy($process), 'up with 64 descriptors' or diag log_of($process);
    my @clients = map {
        Edgemeter::SocketClient->new($process->{socket_path}) // ()
    } 1 .. 100;
    cmp_ok scalar @clients, '>', 60, 'more connect than fit';
    my @answers = map {
        my $got = $_->request(path => '/metrics');
        $got ? $got : ()
    } @clients;
    cmp_ok scalar @answers, '>', 20, scalar(@answers) . ' are served';
    cmp_ok scalar @answers, '<', 64, 'the others are closed';
    my $spent = (split ' ', do {
        open my $in, '<', '/proc/' . $process->pid . '/stat' or die $!;
        (<$in> =~ /\) (.*)/)[0];
    })[11];
    cmp_ok $spent / POSIX::sysconf(POSIX::_SC_CLK_TCK()), '<', 5,
        'without a spinning loop';
    $_->close for @clients;
    ok poll_until(
        sub { ask($process, path => '/healthz')->{status} == 200 }, 10),
        'when they leave all is well';
    like ask($process, path => '/metrics')->{body},
        qr/^edgemeter_accept_errors_total [1-9]/m, 'counted';
    stop_ok($process, 'SIGTERM');
};

# A lock holds transactions while a signal comes.
sub lock_registry {
    my ($seconds) = @_;
    my $locker = Edgemeter::Process->spawn(
        name => 'locker', log => "$scratch/locker.log",
        user => $stack->account,
        command => ["$cluster->{bin}/psql", '-q', '--dbname',
            $cluster->url('postgres', 'edgemeter'), '-c',
            'BEGIN; LOCK TABLE meter.event_registry IN ACCESS EXCLUSIVE MODE;'
                . " SELECT pg_sleep($seconds); COMMIT"],
    );
    wait_until {
        $stack->query("SELECT count(*) FROM pg_locks WHERE granted AND"
            . " mode = 'AccessExclusiveLock' AND relation ="
            . " 'meter.event_registry'::regclass")
    } 10, 'the lock is held';
    return $locker;
}

sub unlock_registry {
    my ($locker) = @_;
    $stack->query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        . " WHERE query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()");
    wait_until { !$locker->alive } 10, 'the lock is gone';
    return;
}

# A client whose event waits for that lock.
sub busy_client {
    my ($process, $id) = @_;
    my $busy = Edgemeter::SocketClient->new($process->{socket_path});
    $busy->send(Edgemeter::SocketClient::encode(
        method => 'POST', path => '/v1/events', type => 'application/json',
        token => $stack->token('acme'),
        body => qq({"event_id":"$id","type":"account.connected",)
            . '"ts":"2026-09-01T12:00:00Z",'
            . '"attributes":{"masterAccountId":"d"}}'
    ));
    wait_until {
        $stack->query("SELECT count(*) FROM pg_stat_activity WHERE"
            . " wait_event_type = 'Lock' AND usename = 'meterd'")
    } 10, 'the event waits in the database';
    return $busy;
}

subtest 'drain' => sub {
    my $process = start_meterd();
    ok healthy($process), 'up';
    my $idle = Edgemeter::SocketClient->new($process->{socket_path});
    is $idle->request(path => '/healthz')->{status}, 200, 'an idle connection';

    my $locker = lock_registry(2);
    my $busy = busy_client($process, 'drain-1');
    kill 'TERM', $process->pid;
    ok $idle->closed(5), 'the idle connection is closed at once';
    ok !Edgemeter::SocketClient->new($process->{socket_path}),
        'nobody can connect any more';
    my $answer = $busy->receive;
    is $answer->{status}, 200, 'the request at hand is answered';
    is $answer->{json}{accepted}, 1, 'after its commit';
    ok poll_until(sub { !$process->alive }, 10), 'then it ends';
    is $process->status, 0, 'with status 0';
    like log_of($process), qr/"message":"drained"/, 'drained';
    is $stack->query("SELECT count(*) FROM meter.event"
        . " WHERE event_id = 'drain-1'"), 1, 'the event is there';
    poll_until { !$locker->alive } 10;
};

subtest 'what cannot be drained' => sub {
    my $locker  = lock_registry(120);
    my $process = start_meterd();
    ok healthy($process), 'up';
    my $busy = busy_client($process, 'stuck-1');
    kill 'TERM', $process->pid;
    wait_until { log_of($process) =~ /SIGTERM/ } 5, 'the signal is seen';
    kill 'TERM', $process->pid;
    ok poll_until(sub { !$process->alive }, 5), 'a second signal does not wait';
    is $process->status, 0, 'status 0';
    ok $busy->closed(5), 'the client sees the connection end';

    $process = start_meterd();
    ok healthy($process), 'up again';
    busy_client($process, 'stuck-2');
    kill 'TERM', $process->pid;
    ok poll_until(sub { !$process->alive }, 14), 'one signal waits 10 s';
    is $process->status, 0, 'status 0';
    like log_of($process), qr/not drained in time/, 'and says so';
    unlock_registry($locker);
};

subtest 'files before the command, or after it' => sub {
    my @files = $stack->config_arguments;
    my $run   = sub {
        my ($status, $out, $err) = $stack->meterd_command(@_);
        return [$status >> 8, $out, $err];
    };
    my (undef, $all) = @{ $run->('--help') };
    my @commands = $all =~ /^  ([a-z][a-z-]*) /mg;
    cmp_ok scalar @commands, '>=', 10, 'there are commands';
    for my $command (@commands) {
        my $help = $run->(@files, $command, '--help');
        is_deeply $help, $run->($command, '--help'), "$command: its help";
        is $help->[0], 0, 'with status 0';
    }
    for my $words (['check'], ['token', 'list'], ['reconcile'],
        ['retention', '--dry-run']) {
        my $answer = $run->(@files, @$words);
        is $answer->[0], 0, "@$words";
        is_deeply [map {s/\d+(?:\.\d+)? m?s\b//gr} @$answer],
            [map {s/\d+(?:\.\d+)? m?s\b//gr} @{ $run->(@$words, @files) }],
            'the same either way';
    }
    is_deeply $run->("-c$files[1]", "--config=$files[3]", 'check'),
        $run->('check', @files), 'however they are written';
    is_deeply $run->('-c', $files[1], 'check', '-c', $files[3]),
        $run->('check', @files), 'some here, some there';
    my $wrong = $run->(@files, 'frobnicate');
    is $wrong->[0], 2, 'no such command: 2';
    like $wrong->[2], qr/^meterd: there is no command "frobnicate"$/m,
        'and which';
    is $run->('-c')->[0], 2, 'no file after -c: 2';
};

done_testing;
