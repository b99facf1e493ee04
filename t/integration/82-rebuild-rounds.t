#!/usr/bin/perl

# 82-rebuild-rounds.t - what comes between comparison and lock of a rebuild:
# events of every kind, a writer that is new, more than may be read under the
# lock. The command is held there (METERD_TEST_REBUILD_STOP), so that it is
# no matter of luck.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use POSIX qw(:sys_wait_h);
use Test::More;
use Edgemeter::Node;
use Edgemeter::Process;
use Edgemeter::Recount;
use Edgemeter::Wait qw(wait_until);

srand 82;
my $recount = Edgemeter::Recount->start;
my $stack   = $recount->stack;
my $month   = POSIX::strftime('%Y-%m', gmtime);
my $log     = $stack->place->path('tmp') . '/rebuild.log';

# All at once, while no one ingests. Entities decide about events and stay.
my %damage = (
    counters => 'UPDATE meter.counter SET value = 3;'
        . ' UPDATE meter.counter_keys SET keys = keys + 2;'
        . q{ DELETE FROM meter.counter WHERE dimensions LIKE '%/1%'},
    usage => 'UPDATE meter.tenant_usage_metrics SET entry_count = 1,'
        . q{ storage_bytes = 7, api_call_count = 5, status = 'active'},
    meters => 'UPDATE meter.meter_counter SET sum = sum * 2, count = 1,'
        . ' manual_sum = 17; DELETE FROM meter.meter_unique;'
        . q{ DELETE FROM meter.meter_counter WHERE groups LIKE '%/1%'},
);

sub damage {
    my ($projection) = @_;
    $stack->query('BEGIN; LOCK TABLE meter.writer_seq IN EXCLUSIVE MODE;'
        . " $damage{$projection}; COMMIT");
    return;
}

sub is_right {
    my ($name) = @_;
    my ($status, $out, $err) = $recount->run('reconcile');
    is "$status $out", '0 ', "$name: no difference" or diag $err;
    is $recount->totals, $recount->model, 'another program agrees';
    return;
}

sub adjust {
    my ($id) = @_;
    my $got = $recount->node('a')->ask(
        method => 'POST', path => '/v1/adjustments',
        type => 'application/json', token => $stack->token('acme'),
        body => qq({"id":"$id","metric":"calls","period":"$month",)
            . '"amount":"0.25","reason":"test","customer":"c0",'
            . '"group":{"route":"/1"}}');
    is $got->{status}, 201, 'a correction' or diag $got->{body};
    return;
}

# A test that dies leaves no process behind that stands still.
my $standing;
END { kill 'KILL', $standing if $standing }

# A rebuild; `meanwhile` runs whenever it stands in front of the lock. What
# it says comes back.
sub rebuild {
    my ($projection, $env, $meanwhile) = @_;
    unlink $log;
    my $process = Edgemeter::Process->spawn(
        name => 'rebuild', log => $log, user => $stack->account,
        env => { METERD_TEST_REBUILD_STOP => 1, %$env },
        command => $recount->command('rebuild', $projection));
    my $stops = 0;
    $standing = $process->pid;
    while (1) {
        wait_until { waitpid($process->pid, WNOHANG | WUNTRACED) > 0 } 30,
            'the rebuild stands still or ends';
        last if !WIFSTOPPED(${^CHILD_ERROR_NATIVE});
        $stops++;
        $meanwhile->();
        kill 'CONT', $process->pid;
    }
    my $status = $?;
    undef $standing;
    open my $file, '<', $log or die "$log: $!\n";
    my $said = do { local $/; <$file> };
    is $status, 0, "rebuild $projection" or diag $said;
    is $stops, 2, 'of two tenants';
    return $said;
}

$recount->load(400);
adjust('first');
is_right('before');

subtest 'a new writer' => sub {
    my $new = 'c';
    for my $projection (qw(counters usage meters)) {
        my $writers = $stack->query('SELECT count(*) FROM meter.writer_seq');
        damage($projection);
        my $said = rebuild($projection, {}, sub {
            my $node = $recount->{node}{ $new++ }
                = Edgemeter::Node->start($stack, name => "new$new");
            $node->wait_ready;
            {
                local $recount->{node} = { new => $node };
                $recount->load(40);    # by no one else
            }
            return if $new eq 'd';
            $recount->load(40);
            $recount->load(20, ts => '2025-03-15T12:00:00Z');
            adjust("new-$new") if $projection eq 'meters';
        });
        unlike $said, qr/came meanwhile/, 'read under the lock';
        is $stack->query('SELECT count(*) FROM meter.writer_seq'),
            $writers + 2, 'two writers more';
        is_right($projection);
    }
    for (grep { !/^[ab]$/ } keys %{ $recount->{node} }) {
        ok +(delete $recount->{node}{$_})->process->stop('TERM', 15),
            'a node ends';
    }
};

subtest 'more than may be read under the lock' => sub {
    for my $projection (qw(counters usage meters)) {
        damage($projection);
        my $said = rebuild($projection, { METERD_TEST_TAIL_EVENTS => 20 },
            sub { $recount->load(21) });
        is scalar(() = $said =~ / 21 events came meanwhile/g), 2,
            'read before, of each tenant';
        is_right($projection);

        damage($projection);
        $said = rebuild($projection, { METERD_TEST_TAIL_EVENTS => 20 },
            sub { $recount->load(20) });
        unlike $said, qr/came meanwhile/, 'just so many are not';
        is_right($projection);
    }
};

# None may be read under the lock: it is asked for again and again, until
# the last time takes what there is.
subtest 'under load' => sub {
    my $stop   = $recount->load_start(3);
    my $rounds = 0;
    for my $projection (qw(counters usage meters)) {
        damage($projection);
        my ($status, $out, $err) = $recount->run_with(
            { METERD_TEST_TAIL_EVENTS => 0 }, 'rebuild', $projection);
        is $status, 0, "rebuild $projection" or diag $out, $err;
        $rounds += () = $err =~ /came meanwhile/g;
        ($status, $out) = $recount->run('reconcile', $projection);
        is "$status $out", '0 ', 'right at once';
    }
    cmp_ok $rounds, '>', 0, "$rounds rounds more";
    cmp_ok $rounds, '<=', 3 * 2 * 7, 'not without end';
    is $stop->(), 0, 'all events were accepted';
    is_right('all');
};

done_testing;
