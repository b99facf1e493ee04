#!/usr/bin/perl

# 122-replay-kill.t - `meterd replay` is killed at every step, interrupted by
# signals, run twice at once and beside clients, with and without a meterd:
# every event counts once, and the next run goes on where the last one was.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use JSON::PP ();
use Test::More;
use Edgemeter::Replay;
use Edgemeter::Wait qw(wait_until poll_until);

srand 1220;

my $replay  = Edgemeter::Replay->start;
my $stack   = $replay->stack;
my $node    = $replay->node;
my $mine    = $replay->state;
my $scratch = $stack->place->path('tmp');
my $JSON    = JSON::PP->new->utf8->canonical;
my $now     = $replay->now;

sub ndjson  { return Edgemeter::Replay::ndjson(@_) }
sub text_of { return Edgemeter::Replay::text_of(@_) }

# Killed there, how many batches of 50 are then known to be committed; and
# whether the resume file says so.
my @points = (
    ['after_read:3',               2, 2],
    ['after_ledger:3',             2, 2],
    ['before_commit:3',            2, 2],
    ['after_commit:3',             3, 2],
    ['after_commit_before_fold:3', 3, 2],
    ['before_answer:3',            3, 2],
    ['replay_after_batch:1',       1, 0],
    ['replay_after_batch:3',       3, 2],
    ['replay_in_resume:1',         1, 0],
    ['replay_in_resume:3',         3, 2],
    ['replay_after_resume:3',      3, 3],
    ['replay_after_resume:7',      7, 7],
    ['replay_before_end',          7, 7],
);

subtest 'killed at any step' => sub {
    for my $csv (0, 1) {
        my $number = 0;
        for (@points) {
            my ($point, $committed, $told) = @$_;
            next if $csv && ++$number % 3;
            my $tenant = "kill-$csv-$point" =~ s/\W/-/gr;
            my @all = $replay->events(300, tenant => $tenant);
            my $path;
            if ($csv) {
                $path = $replay->file("$tenant.csv", join '',
                    "event_id,type,ts,tenant,quantity,customer,route,device,"
                        . "size\n", (map {
                    my $event = $_;
                    join(',', (map { $event->{$_} // '' } qw(event_id type ts
                        tenant quantity customer)), (map {
                            $event->{attributes}{$_} } qw(route device size)))
                        . ($event->{event_id} =~ /7$/ ? "\nbad,line\n" : "\n")
                } @all));
            }
            else {
                $path = $replay->file("$tenant.ndjson", join '', map {
                    ndjson($_) . ($_->{event_id} =~ /7$/ ? "bad\n" : '')
                } @all);
            }
            my $bad = grep { $_->{event_id} =~ /7$/ } @all;
            my @words = ($path, '--rejects', "$mine/$tenant");
            my ($status, $out, $err) = $replay->run_with(
                { env => { METERD_CRASH_POINT => $point } }, @words);
            is $status, 256 + 9, "killed at $point, csv $csv"
                or diag $out, $err;
            my ($rows) = $replay->events_of($tenant);
            ok $rows =~ /^(\d+) \1$/ && $1 <= 50 * $committed
                && $1 >= 40 * $committed, "$committed batches are committed"
                or diag $rows;
            is scalar($replay->resumes), $told ? 1 : 0, 'a resume file or none';
            ($status, $out, $err) = $replay->run(@words);
            is $status, 1, 'again, to the end' or diag $err;
            my ($line) = $err =~ /going on at line (\d+), byte/;
            $told ? cmp_ok($line // 0, '>', 40 * $told, 'from there on')
                : is($err, '', 'from the first line');
            like $out, qr/ 0 conflicts, $bad rejected$/, 'counts';
            my ($accepted, $known) = $out
                =~ /(\d+) accepted, (\d+) duplicates/;
            is $accepted + $known, 300, 'every line has its verdict';
            cmp_ok $known, '<=', 50 * ($committed - $told),
                'nothing that was known to be done was done again';
            is $replay->events_of($tenant), '300 300', 'each event once';
            is scalar(() = text_of("$mine/$tenant") =~ /^\d+\trejected\t/mg),
                $bad, 'each rejected line once';
            is scalar($replay->resumes), 0, 'no resume file is left';
        }
    }
    $replay->balance('killed');
};

subtest 'another file, another command line, another database' => sub {
    my @all = $replay->events(300, tenant => 'changed');
    my $path = $replay->file('changed.ndjson', ndjson(@all));
    my $cut = sub {
        my ($status) = $replay->run_with({ env => { METERD_CRASH_POINT =>
            'replay_after_resume:2' } }, $path, '--restart', @_);
        is $status, 256 + 9, 'killed';
        is scalar($replay->resumes), 1, 'a resume file';
    };
    $cut->();
    $replay->file('changed.ndjson', ndjson(@all, $replay->events(1, tenant => 'changed')));
    my ($status, $out, $err) = $replay->run($path);
    is $status, 2, 'a longer file: 2';
    is $out, '', 'nothing is told';
    like $err, qr/changed\.ndjson: the file has changed .*--restart/, 'but why';
    is $replay->events_of('changed'), '100 100', 'nothing is done';
    ($status, $out) = $replay->run($path, '--restart');
    is "$status $out", "0 replayed: 201 accepted, 100 duplicates, 0 conflicts,"
        . " 0 rejected\n", '--restart begins again';
    $cut->();
    utime $now - 5, $now - 5, $path;
    ($status, $out, $err) = $replay->run($path);
    is $status, 2, 'another time: 2';
    $cut->();
    ($status, $out, $err) = $replay->run($path, '--tenant', 'changed');
    is $status, 2, 'another command line: 2';
    like $err, qr/another --format, --tenant or --text/, 'and why';

    $cut->('--rejects', "$mine/changed");
    my ($resume) = $replay->resumes;
    my $text = text_of($resume);
    $replay->file('damaged', $text =~ s/^(done \d)/${1}9/mr);
    rename "$scratch/damaged", $resume or die "$resume: $!\n";
    ($status, $out, $err) = $replay->run($path);
    is $status, 0, 'a damaged resume file: from the first line';
    like $err, qr/is damaged; starting over/, 'and says so';
    like $out, qr/0 accepted, 301 duplicates/, 'counts';

    $cut->();
    $stack->query('UPDATE meter.writer_seq SET batch = batch - 1 WHERE writer'
        . " = (SELECT writer FROM meter.writer WHERE node = 'a backfill')");
    ($status, $out, $err) = $replay->run($path);
    is $status, 0, 'a database that went back';
    like $err, qr/starting over/, 'from the first line';
    like $out, qr/0 accepted, 301 duplicates/, 'counts';

    $replay->file('rejected.ndjson', "bad\n" x 200);
    $path = "$scratch/rejected.ndjson";
    $cut->('--rejects', "$mine/rejected");
    ($status, $out, $err) = $replay->run($path, '--rejects', "$mine/other");
    is $status, 2, 'another rejects file: 2';
    like $err, qr/not the rejects of the interrupted replay/, 'and why';
    ($status, $out, $err) = $replay->run($path, '--rejects', "$mine/rejected");
    is $status, 1, 'the same one';
    is scalar(() = text_of("$mine/rejected") =~ /\n/g), 200, 'is complete';
};

subtest 'signals' => sub {
    my $path = $replay->file('signal.ndjson', ndjson($replay->events(20_000,
        tenant => 'signal')));
    for my $signal (qw(INT TERM)) {
        my $before = $stack->query("SELECT count(*) FROM meter.event WHERE"
            . " tenant = 'signal'");
        my $process = $replay->spawn("signal$signal",
            $replay->command('replay', $path));
        ok poll_until(sub { $stack->query('SELECT count(*) FROM meter.event'
            . " WHERE tenant = 'signal'") > $before }, 30), 'it works';
        $process->signal($signal);
        ok poll_until(sub { !$process->alive }, 30), "SIG$signal ends it";
        is $process->fate, 'ended with status 2', 'status 2';
        my $log = $replay->log("signal$signal");
        like $log, qr/interrupted before line \d+, byte \d+ of \d+; the same/,
            'it says how to go on';
        my ($line) = $log =~ /before line (\d+)/;
        is $replay->events_of('signal'), join(' ', ($line - 1) x 2),
            'the batch in flight was finished';
        like $log, qr/^replayed: @{[$line - 1]} accepted, 0 dup/m, 'counts';
    }
    my ($status, $out, $err) = $replay->run($path);
    is "$status $out", "0 replayed: 20000 accepted, 0 duplicates, 0 conflicts,"
        . " 0 rejected\n", 'the rest' or diag $err;
    is $replay->events_of('signal'), '20000 20000', 'each once';
};

subtest 'beside live traffic' => sub {
    my @all = $replay->events(6000, tenant => 'acme');
    my $path = $replay->file('live.ndjson', ndjson(@all));
    my @replays = map {
        $replay->spawn("live$_", $replay->command('replay', $path))
    } 1, 2;
    # Half of them come by HTTP, too, and others that the file has not.
    my ($sent, $wrong) = (0, 0);
    my @rest = (@all[grep { $_ % 2 } 0 .. $#all], $replay->events(3000));
    @rest = map { $_->[1] } sort { $a->[0] <=> $b->[0] }
        map { [rand, $_] } @rest;
    while (my @some = splice @rest, 0, 40) {
        my $answer = $node->post('acme', \@some);
        $answer->{status} == 200 or $wrong++;
        $wrong++ for grep { $_->{verdict} !~ /accepted|duplicate/ }
            @{ $JSON->decode($answer->{body})->{results} };
    }
    is $wrong, 0, 'all clients were answered well';
    for my $index (0, 1) {
        ok poll_until(sub { !$replays[$index]->alive }, 60), 'a replay ends';
        is $replays[$index]->fate, 'ended with status 0', 'well'
            or diag $replay->log('live' . ($index + 1));
    }
    like $replay->log('live1') . $replay->log('live2'),
        qr/waiting for another replay/, 'one after the other';
    like $stack->query("SELECT count(*) FROM meter.event e WHERE tenant ="
            . " 'acme' GROUP BY event_id HAVING count(*) > 1"), qr/^$/,
        'no event twice';
    is $stack->query("SELECT count(*) FROM meter.event WHERE tenant = 'acme'"),
        9000, 'and all of them';
    $replay->balance('live');
};

# Nobody can count for so many seconds.
sub hold {
    my ($seconds) = @_;
    my $hold = $replay->spawn('hold', ['psql', '-qc',
        'BEGIN; LOCK TABLE meter.counter IN SHARE ROW EXCLUSIVE MODE;'
            . " SELECT pg_sleep($seconds)", $stack->database_url]);
    wait_until {
        $stack->query("SELECT count(*) FROM pg_stat_activity WHERE query"
            . " LIKE '%pg_sleep%' AND wait_event = 'PgSleep'")
    } 10, 'someone holds the counters';
    return $hold;
}

subtest 'a signal with a batch in flight' => sub {
    my $path = $replay->file('flight.ndjson', ndjson($replay->events(200,
        tenant => 'flight')));
    my $hold    = hold(3);
    my $process = $replay->spawn('flight', $replay->command('replay', $path));
    wait_until {
        $stack->query("SELECT count(*) FROM pg_stat_activity WHERE"
            . " wait_event_type = 'Lock' AND wait_event = 'relation'")
    } 10, 'a batch waits for them';
    $process->signal('TERM');
    wait_until { !$process->alive } 30, 'it ends';
    is $process->fate, 'ended with status 2', 'status 2';
    like $replay->log('flight'), qr/interrupted before line 51,/,
        'behind that batch';
    is $replay->events_of('flight'), '50 50', 'which is committed';
    my ($status, $out) = $replay->run($path);
    is "$status $out", "0 replayed: 200 accepted, 0 duplicates, 0 conflicts, 0"
        . " rejected\n", 'the rest';
    wait_until { !$hold->alive } 10, 'the counters are free';
};

subtest 'progress' => sub {
    my $path = $replay->file('slow.ndjson', ndjson($replay->events(200,
        tenant => 'slow')));
    my $hold = hold(6);
    my ($status, $out, $err) = $replay->run($path);
    is $status, 0, 'it waits';
    like $err, qr{^\d+ events, \d+/s: \d+%, [\d.]+ kB of [\d.]+ kB, .*/s},
        'and says how far it is';
    wait_until { !$hold->alive } 10, 'the counters are free';
    is $replay->events_of('slow'), '200 200', 'and goes on';
};

subtest 'no meterd' => sub {
    $node->process->stop('TERM', 20);
    my @all = $replay->events(500);
    my $path = $replay->file('alone.ndjson', ndjson(map { { %$_, tenant => 'alone' } }
        @all));
    my ($status) = $replay->run_with({ env => { METERD_CRASH_POINT =>
        'after_commit_before_fold:4' } }, $path);
    is $status, 256 + 9, 'killed with series in its memory';
    ($status, my $out, my $err) = $replay->run($path);
    is $status, 0, 'to the end' or diag $err;
    is $replay->events_of('alone'), '500 500', 'each once';
    is $stack->query('SELECT count(*) FROM meter.series_dirty'), 0,
        'the series are rolled up';
    $replay->balance('alone');
};

subtest 'no database' => sub {
    my $path = $replay->file('late.ndjson', ndjson($replay->events(10, tenant => 'late')));
    $stack->cluster->stop('fast');
    my ($status, $out, $err) = $replay->run($path, '--dry-run');
    is $status, 2, 'a dry run: 2';
    is $out, '', 'nothing is told';
    like $err, qr/connection/, 'but why';
    $stack->start_part('postgres');
    $stack->query('SELECT 1');
    ($status, $out, $err) = $replay->run($path);
    is $status, 0, 'when it is back: fine' or diag $err;
};

$stack->stop;
done_testing;
