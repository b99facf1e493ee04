#!/usr/bin/perl

# 78-rebuild-kill.t - `meterd rebuild` is killed at every step, and at any
# moment under load: each tenant is then as it was or right, meterd goes on,
# and a second run completes it.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use POSIX ();
use Test::More;
use Edgemeter::Process;
use Edgemeter::Recount;
use Edgemeter::Wait qw(pause now);

srand 78;
my $kills   = $ENV{TORTURE_SECONDS} ? 60 : 12;
my $recount = Edgemeter::Recount->start;
my $stack   = $recount->stack;

my %damage = (
    counters => 'UPDATE meter.counter SET value = value + 5;'
        . ' UPDATE meter.counter_keys SET keys = 99;'
        . ' DELETE FROM meter.entity_state',
    usage => 'UPDATE meter.tenant_usage_metrics SET entry_count = 77,'
        . q{ status = 'active'},
    meters => 'UPDATE meter.meter_counter SET sum = sum + 1, uniques = 55;'
        . ' DELETE FROM meter.meter_unique',
);

# The tables, by tenant.
sub tables {
    my %of;
    my $table = '';
    for (split /\n/, $recount->tables) {
        $table = $_, next if /^-- /;
        my ($tenant) = /^([^\t]*)/;
        push @{ $of{$tenant} }, "$table $_";
    }
    return map { $_ => join "\n", @{ $of{$_} } } keys %of;
}

$recount->load(400);
my %right = tables();
is join(' ', sort keys %right), 'acme globex', 'two tenants';

# In order; how many tenants are right when the process is gone.
my @points = (
    [rebuild_after_compare     => 0],
    [rebuild_after_lock        => 0],
    [rebuild_in_write          => 0],
    ['rebuild_in_write:2'      => 0],
    [rebuild_before_commit     => 0],
    [rebuild_after_commit      => 1],
    ['rebuild_after_compare:2' => 1],
    ['rebuild_after_lock:2'    => 1],
    ['rebuild_before_commit:2' => 1],
    ['rebuild_after_commit:2'  => 2],
);

for my $projection (qw(counters usage meters)) {
    subtest $projection => sub {
        for (@points) {
            my ($point, $written) = @$_;
            $stack->query($damage{$projection});
            my %damaged = tables();
            is scalar(grep { $damaged{$_} eq $right{$_} } keys %right), 0,
                'both are damaged';
            my ($status) = $recount->run_with(
                { METERD_CRASH_POINT => $point }, 'rebuild', $projection);
            is $status, 256 + 9, "killed at $point";
            my %now = tables();
            is scalar(grep { $now{$_} eq $right{$_} } keys %right), $written,
                "so many are right: $written";
            is scalar(grep { $now{$_} eq $damaged{$_} } keys %right),
                2 - $written, 'the others are as they were';
        }
        $stack->query($damage{$projection});
        my ($status, undef, $err) = $recount->run_with(
            { METERD_CRASH_POINT => 'rebuild_after_commit' }, 'rebuild',
            $projection);
        is $status, 256 + 9, 'killed once more';
        ($status, undef, $err) = $recount->run('rebuild', $projection);
        is $status, 0, 'a second run goes to the end' or diag $err;
        my %now = tables();
        is $now{$_}, $right{$_}, "$_ is right" for sort keys %right;
    };
}

subtest 'at any moment under load' => sub {
    my $stop = $recount->load_start(3);
    my @under_load = qw(rebuild_after_compare rebuild_after_lock
        rebuild_in_write rebuild_before_commit);
    my %ends;
    for my $kill (1 .. $kills) {
        my $projection = (qw(counters usage meters))[$kill % 3];
        for (split /; /, $damage{$projection}) {
            next if /entity_state/;    # decides about events

            # All rows at once: not in a circle with those that ingest.
            $stack->query('BEGIN; LOCK TABLE meter.writer_seq IN EXCLUSIVE'
                . " MODE; $_; COMMIT");
        }
        # the first ones end where they must, the others anywhere
        my $point = shift @under_load;
        my $process = Edgemeter::Process->spawn(
            name => 'rebuild', log => $stack->place->path('tmp') . '/rebuild.log',
            user => $stack->account,
            env => $point ? { METERD_CRASH_POINT => $point } : {},
            command => $recount->command('rebuild', $projection));
        my $end = now() + ($point ? 30 : rand 0.3);
        pause(0.01) while now() < $end && $process->alive;
        if ($point) {
            ok !$process->alive, "ended at $point";
            is $process->fate, 'was killed by signal 9', 'by its own hand';
        }
        $ends{ $process->alive ? 'killed' : 'ended' }++;
        $process->stop('KILL', 10);
    }
    note join ', ', map {"$ends{$_} $_"} sort keys %ends;
    for (qw(counters usage meters)) {
        my ($status, undef, $err) = $recount->run('rebuild', $_);
        is $status, 0, "$_ to the end" or diag $err;
    }
    my ($status, $out) = $recount->run('reconcile');
    is "$status $out", '0 ', 'all is right';
    is $stop->(), 0, 'all events were accepted';
    is $recount->totals, $recount->model, 'another program agrees';
};

done_testing;
