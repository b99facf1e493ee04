#!/usr/bin/perl

# 34-zombie.t - two instances of one writer: a meterd that stood still wakes
# up after another one took its place. It must end without a commit.
#
# The lock on the state directory cannot help: the second one runs on a copy
# of it, as after a restored backup or on another host. The writer's epoch,
# read in every transaction, does.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::Node;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Verify qw(verify_books);
use Edgemeter::Wait qw(wait_until poll_until);

my $stack = Edgemeter::Stack->for_test;
$stack->prepare;
$stack->start_database;
$stack->migrate;
$stack->make_tokens;

sub events {
    my ($name, $count) = @_;
    return [map {
        {   event_id => "$name-$_", type => 'api.request',
            ts => '2026-09-01T12:00:00Z', attributes => { route => '/z' }
        }
    } 1 .. $count];
}

sub stored {
    my ($name) = @_;
    return $stack->query("SELECT count(*) FROM meter.event"
        . " WHERE event_id LIKE '$name-%'");
}

sub epoch {
    my ($node) = @_;
    open my $file, '<', $node->state_dir . '/writer-0' or die $!;
    chomp(my $writer = <$file>);
    return $stack->query("SELECT epoch FROM meter.writer"
        . " WHERE writer = '$writer'");
}

sub ends_fenced {
    my ($node) = @_;
    ok poll_until(sub { !$node->process->alive }, 30), 'the old one ends';
    isnt $node->process->status, 0, 'not as if nothing had happened';
    like $node->log, qr/another instance took this writer/, 'and says why';
    return;
}

for my $size (1, 100) {
    subtest "it wakes up with $size to write" => sub {
        my $old = Edgemeter::Node->start($stack, name => "old$size")
            ->wait_ready;
        is $old->post('acme', events("before$size", 3))->{json}{accepted}, 3,
            'the old one commits';
        kill 'STOP', $old->pid;

        # It will find this request when it wakes up.
        my $client = $old->client;
        $client->send($old->encode_events('acme', events("late$size", $size)));
        my $new = Edgemeter::Node->start($stack, name => "new$size",
            copy_of => $old->state_dir)->wait_ready;
        is epoch($new), 2, 'the new one has the next epoch';
        is $new->post('acme', events("after$size", 3))->{json}{accepted}, 3,
            'and commits';
        kill 'CONT', $old->pid;
        ends_fenced($old);
        ok !$client->receive(5), 'its client gets no answer';
        is stored("late$size"), 0, 'and nothing was committed';
        is $new->post('acme', events("late$size", $size))->{json}{accepted},
            $size, 'the new one takes it';
        is $new->post('acme', events("before$size", 3))->{json}{duplicates},
            3, 'and knows what the old one had';
        ok $new->process->alive, 'the new one lives';
        verify_books($stack);
        $new->process->stop('TERM', 15);
    };
}

# Stopped with a transaction open: the new one must not begin before that
# transaction is over, and its outcome is not the zombie's to tell.
subtest 'it wakes up in the middle of a transaction' => sub {
    my $old = Edgemeter::Node->start($stack, name => 'middle')->wait_ready;
    my $locker = Edgemeter::Process->spawn(
        name => 'locker', log => $stack->place->path('tmp') . '/locker.log',
        user => $stack->account,
        command => [$stack->cluster->{bin} . '/psql', '-q', '--dbname',
            $stack->database_url, '-c',
            'BEGIN; LOCK TABLE meter.event_registry IN ACCESS EXCLUSIVE MODE;'
                . ' SELECT pg_sleep(60)'],
    );
    wait_until {
        $stack->query("SELECT count(*) FROM pg_locks WHERE granted AND"
            . " mode = 'AccessExclusiveLock' AND relation ="
            . " 'meter.event_registry'::regclass")
    } 10, 'the lock is held';
    my $client = $old->client;
    $client->send($old->encode_events('acme', events('middle', 50)));
    wait_until {
        $stack->query("SELECT count(*) FROM pg_stat_activity WHERE"
            . " wait_event_type = 'Lock' AND usename = 'meterd'")
    } 10, 'its transaction waits';
    kill 'STOP', $old->pid;
    $stack->query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        . " WHERE query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()");
    poll_until { !$locker->alive } 10;

    my $new = Edgemeter::Node->start($stack, name => 'other',
        copy_of => $old->state_dir);
    ok poll_until(sub {
        $stack->query("SELECT count(*) FROM pg_stat_activity WHERE"
            . " wait_event_type = 'Lock' AND usename = 'meterd'")
            || $new->ask(path => '/readyz')->{status} == 200
    }, 10), 'the new one asks for the writer';
    isnt $new->ask(path => '/readyz')->{status}, 200,
        'and waits for the transaction of the old one';

    # The server ends a transaction whose client says nothing.
    $new->wait_ready(40);
    is $new->post('acme', events('middle', 50))->{json}{accepted}, 50,
        'the new one takes the events';
    kill 'CONT', $old->pid;
    ends_fenced($old);
    ok !$client->receive(5), 'its client gets no answer';
    is stored('middle'), 50, 'each event is there once';
    verify_books($stack);
};

done_testing;
