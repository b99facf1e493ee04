#!/usr/bin/perl

# 79-checkpoint-job.t - meterd makes checkpoints by itself: when they are due,
# one at a time, and without waiting for them.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use File::Copy ();
use POSIX ();
use Test::More;
use Edgemeter::Node;
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until poll_until);

my $stack = Edgemeter::Stack->for_test;
$stack->prepare;
$stack->start_database;
$stack->migrate;
$stack->make_tokens;
my $scratch = $stack->place->path('tmp');
my %node    = (a => Edgemeter::Node->start($stack, name => 'a')->wait_ready);
my $NAME    = qr/checkpoint-\d{8}T\d{6}Z\.ndjson/;

sub directory {
    my ($name) = @_;
    my $path = "$scratch/$name";
    mkdir $path, 0750 or die "$path: $!";
    $stack->account->own($path);
    return $path;
}

sub names {
    my ($directory) = @_;
    opendir my $opened, $directory or die "$directory: $!";
    my @names = sort grep { !/^\./ } readdir $opened;
    return @names;
}

sub slurp {
    my ($path) = @_;
    open my $file, '<:raw', $path or die "$path: $!";
    local $/;
    return <$file>;
}

sub spew {
    my ($path, $text) = @_;
    Edgemeter::Place::replace_file($path, 0644, $stack->account, $text);
    return $path;
}

sub checkpoint {
    my (@words) = @_;
    my ($status, $out, $err) = Edgemeter::Process::capture(
        command => [$stack->{program}, 'checkpoint', @words, '-c',
            ($stack->config_arguments)[1], '-c', "$scratch/a.yaml"],
        user => $stack->account);
    return ($status & 127 || $status >> 8, $out, $err);
}

# A whole one, to be planted under other names.
my $file = "$scratch/whole";
is $node{a}->post('acme', [map {
        { event_id => "e$_", type => 'api.request',
            ts => '2026-09-01T12:00:00Z', attributes => { route => '/x' } }
    } 1 .. 10])->{status}, 200, 'something is counted';
is +(checkpoint('export', $file))[0], 0, 'a checkpoint';

# The name of a file that was made so long ago.
sub name_ago {
    my ($seconds) = @_;
    return POSIX::strftime('checkpoint-%Y%m%dT%H%M%SZ.ndjson',
        gmtime(time - $seconds));
}

sub plant {
    my ($directory, @ages) = @_;
    for my $age (@ages) {
        my $path = "$directory/" . name_ago($age);
        File::Copy::copy($file, $path) or die "$path: $!";
        $stack->account->own($path);
    }
    return;
}

# Processes of exports that write there.
sub exports {
    my ($directory) = @_;
    return grep {
        Edgemeter::Process::command_line($_) =~ /checkpoint.export.*\Q$directory\E/s
    } map { m{/(\d+)$} } glob '/proc/[0-9]*';
}

sub daemon {
    my ($name, $directory, %arg) = @_;
    my $every = $arg{every} // '1h';
    return $node{$name} = Edgemeter::Node->start($stack, name => $name,
        yaml => { checkpoint =>
                "{ every: $every, path: '$directory', keep: 2 }" })
        ->wait_ready;
}

subtest 'periodic' => sub {
    my $kept = directory('kept');
    plant($kept, 7200, 10_800, 86_400, 200_000);
    my $stranger = spew("$kept/checkpoint-notes.ndjson", "mine\n");
    my $node = daemon(c => $kept);
    wait_until { $node->metric('edgemeter_checkpoints_total') } 20,
        'the first one comes at once';
    my @names = names($kept);
    is_deeply [grep { !/^$NAME$/ } @names], ['checkpoint-notes.ndjson'],
        'what is not ours stays';
    @names = grep {/^$NAME$/} @names;
    is @names, 2, 'two are kept';
    cmp_ok $names[1], 'gt', name_ago(600), 'the new one among them';
    is +(checkpoint('show', "$kept/$names[1]"))[0], 0, 'the new one is whole';
    cmp_ok abs(time - $node->metric('edgemeter_checkpoint_last_seconds')), '<',
        60, 'its time is told';
    is $node->metric('edgemeter_checkpoint_failures_total'), 0, 'no failure';
    like $node->log, qr/"subsystem":"checkpoint","message":"exported"/,
        'a line in the log';
    unlike $node->log, qr/^[^{]/m, 'of JSON, as all are';
};

subtest 'not before its time' => sub {
    my $fresh = directory('fresh');
    plant($fresh, 1000);
    my $node = daemon(d => $fresh);
    wait_until { $node->metric('edgemeter_checkpoint_last_seconds') } 20,
        'it has looked';
    cmp_ok abs(time - 1000 - $node->metric(
            'edgemeter_checkpoint_last_seconds')), '<', 60, 'at the file';
    is $node->metric('edgemeter_checkpoints_total'), 0, 'which is young enough';
    is names($fresh), 1, 'no other is made';

    my $yaml = slurp("$scratch/d.yaml");
    my $moved = directory('moved');
    spew("$scratch/d.yaml", $yaml =~ s/\Q$fresh\E/$moved/r);
    kill 'HUP', $node->pid;
    wait_until { $node->metric('edgemeter_checkpoints_total') } 20,
        'a new directory at a reload';
    is names($moved), 1, 'gets its file';
    spew("$scratch/d.yaml", $yaml =~ s/^checkpoint:.*\n//mr);
    kill 'HUP', $node->pid;
    wait_until { $node->metric('edgemeter_config_reloads_total') == 2 } 20,
        'and no section at all';
    is $node->process->alive, 1, 'is fine';
};

subtest 'failures' => sub {
    my $gone = "$scratch/nowhere";
    my $node = daemon(e => $gone);
    wait_until { $node->metric('edgemeter_checkpoint_failures_total') } 20,
        'a directory that is not there';
    is $node->metric('edgemeter_checkpoints_total'), 0, 'no checkpoint';
    like $node->log, qr/"subsystem":"checkpoint".*\Q$gone\E.*No such file/,
        'the log says why';
    like $node->log, qr/"message":"the export failed"/, 'and that it failed';
};

# Someone holds the table: the export waits.
sub locked {
    my ($code) = @_;
    my $locker = Edgemeter::Process->spawn(
        name => 'locker', log => "$scratch/locker.log",
        user => $stack->account,
        command => [$stack->cluster->{bin} . '/psql', '-q', '--dbname',
            $stack->database_url, '-c', 'BEGIN; LOCK TABLE meter.entity_state;'
                . ' SELECT pg_sleep(60)'],
    );
    wait_until {
        $stack->query("SELECT count(*) FROM pg_stat_activity"
            . " WHERE query LIKE '%pg_sleep%' AND wait_event = 'PgSleep'")
    } 10, 'the table is locked';
    $code->();
    $locker->stop('TERM', 10);
    $stack->query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        . " WHERE wait_event = 'PgSleep'");
    return;
}

subtest 'one at a time, and ended with the daemon' => sub {
    my $stuck = directory('stuck');
    locked(sub {
        my $node = daemon(f => $stuck);
        wait_until { exports($stuck) == 1 } 20, 'an export waits';
        kill 'HUP', $node->pid for 1 .. 3;
        wait_until { $node->metric('edgemeter_config_reloads_total') } 20,
            'reloads';
        is $node->ask(path => '/healthz')->{status}, 200, 'the loop does not';
        is scalar(exports($stuck)), 1, 'no second one';
        $node->process->stop('TERM', 8);
        ok !$node->process->alive, 'SIGTERM ends the daemon at once';
        ok +(poll_until { exports($stuck) == 0 } 5), 'and the export';
        is_deeply [grep {/^$NAME$/} names($stuck)], [], 'which leaves no file';
    });
};

subtest 'several nodes, one directory' => sub {
    my $shared = directory('shared');
    my @nodes = map { daemon($_ => $shared) } qw(g h);
    wait_until {
        !grep {
            !$_->metric('edgemeter_checkpoint_last_seconds')
        } @nodes
    } 20, 'both know of a checkpoint';
    wait_until { exports($shared) == 0 } 20, 'none is under way';
    my @names = names($shared);
    cmp_ok scalar @names, '<=', 2, 'one or two files';
    is +(checkpoint('show', "$shared/$_"))[0], 0, "$_ is whole" for @names;
};

$stack->stop;
done_testing;
