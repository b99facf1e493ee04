#!/usr/bin/perl

# 42-memory.t - an allocation fails, each one in turn, while meterd works on
# a request: never a wrong count. A request may be refused; meterd may end
# by a failed CHECK or by saying that memory ran out, but not by a crash of
# another kind.
#
# After each failure the request is sent again until it is answered; then
# every event must be there once. MEMORY_STEP=1 tries every allocation.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Fcntl qw(SEEK_SET);
use POSIX qw(WIFSIGNALED WTERMSIG);
use Test::More;
use Edgemeter::Node;
use Edgemeter::Stack;
use Edgemeter::Verify qw(verify_books);
use Edgemeter::Wait qw(wait_until poll_until);

my $step = $ENV{MEMORY_STEP} || 3;
my $stack = Edgemeter::Stack->for_test;
$stack->prepare;
my $scratch = $stack->place->path('tmp');
my $library = "$scratch/fail_malloc.so";
my $source  = Edgemeter::Stack::root() . '/t/lib/fail_malloc.c';
system('cc', '-shared', '-fPIC', '-O1', '-o', $library, $source) == 0
    or plan skip_all => 'there is no C compiler';
chmod 0755, $library;

# A sanitizer brings an allocator of its own.
my $meterd = $stack->place->readable(
    Edgemeter::Stack::root() . '/build/meterd', 0755);
$meterd = $stack->{program} if $stack->{program} !~ /asan/;
$stack->start_database;
$stack->migrate;
$stack->make_tokens;

my $control = "$scratch/control";
open my $file, '+>', $control or die $!;
syswrite $file, pack 'Q3', 0, 0, 0;
$stack->account->own($control);

sub fail_after {
    my ($n) = @_;
    sysseek $file, 0, SEEK_SET;
    syswrite $file, pack 'Q', $n;
    return;
}

sub numbers {
    sysseek $file, 0, SEEK_SET;
    sysread $file, my $bytes, 24;
    return unpack 'Q3', $bytes;
}

my $node;
my ($starts, %fate) = (0);

sub start_node {
    fail_after(0);
    $node = Edgemeter::Node->start($stack, name => 'node' . ++$starts,
        program => $meterd,
        env => { LD_PRELOAD => $library, FAIL_MALLOC => $control });
    $node->wait_ready;
    return;
}

# Alive, or ended in a way that is allowed; then there is a new one.
sub look_after {
    my ($what) = @_;
    return 1 if $node->process->alive;
    my $status = $node->process->status;
    my $check  = $node->log =~ /invariant broken|out of memory: \d+ times/i;
    my $fine   = WIFSIGNALED($status) && WTERMSIG($status) == 6 && $check;
    $fate{ $fine ? 'checks' : 'crashes' }++;
    if (!$fine) {
        my @tail = split /\n/, $node->log;
        diag "$what: " . $node->process->fate . "\n"
            . join "\n", grep {defined} @tail[-3 .. -1];
    }
    start_node();
    return $fine;
}

sub event {
    my ($id, $route) = @_;
    return {
        event_id => $id, type => 'api.request', ts => '2026-09-01T12:00:00Z',
        attributes => { route => $route }
    };
}

my %work = (
    'few events'  => sub { [map { event("f$_[0]-$_", "/$_") } 1 .. 3] },
    'many events' => sub {
        [(map { event("m$_[0]-$_", "/" . $_ % 9) } 1 .. 80),
            event("m$_[0]-1", '/1'), event("m$_[0]-2", '/conflict')]
    },
);

start_node();
$node->post('acme', [event('warm', '/warm')]) for 1 .. 3;

for my $name (sort keys %work) {
    subtest $name => sub {
        my ($n, $tried, $crashed, $wrong) = (0, 0, 0, 0);
        while (1) {
            $n += $step;
            my $events = $work{$name}->($n);
            my ($unused, $failed, $seen) = numbers();
            fail_after($n);
            my $answer = $node->post('acme', $events);
            my ($left, $failed_now, $seen_now) = numbers();
            fail_after(0);
            last if $failed_now == $failed && $answer->{status} == 200
                && $left > 0;
            $tried++;
            poll_until { !$node->process->alive } 0.3
                if $answer->{status} == 0;
            look_after("$name, allocation $n") or $crashed++;
            my %told;
            $told{ $_->{event_id} }{ $_->{verdict} }++
                for @{ ($answer->{json} || {})->{results} || [] };
            for my $again (1 .. 2) {
                wait_until {
                    look_after("$name, again after $n") or $crashed++;
                    ($answer = $node->post('acme', $events))->{status} == 200
                } 40, "$name is answered after allocation $n";
                $told{ $_->{event_id} }{ $_->{verdict} }++
                    for @{ $answer->{json}{results} };
            }
            for my $id (sort keys %told) {
                my $verdicts = $told{$id};
                next if ($verdicts->{accepted} // 0) <= 1
                    && !$verdicts->{rejected};
                diag "allocation $n: $id "
                    . join ', ', map {"$_ $verdicts->{$_}"} keys %$verdicts
                    unless $wrong++;
            }
        }
        cmp_ok $tried, '>=', 5, "$tried allocations failed";
        is $crashed, 0, 'no crash';
        is $wrong, 0, 'no wrong answer';
        verify_books($stack);
    };
}

# Reads and tokens: a failure must not reach another request.
subtest 'reads' => sub {
    my ($n, $tried, $crashed) = (0, 0, 0);
    my $quiet = 0;
    while ($quiet < 3) {
        $n += $step;
        my (undef, $failed) = numbers();
        fail_after($n);
        my $answer = $node->ask(path => '/v1/events/warm',
            token => $stack->token('acme'));
        my ($left, $failed_now) = numbers();
        fail_after(0);
        $quiet = $failed_now == $failed ? $quiet + 1 : 0;
        $tried++ unless $quiet;
        poll_until { !$node->process->alive } 0.3 if $answer->{status} == 0;
        look_after("read, allocation $n") or $crashed++;
        my $fine = poll_until {
            look_after("read again after $n") or $crashed++;
            $node->ask(path => '/v1/events/warm',
                token => $stack->token('acme'))->{status} == 200
        } 20;
        $fine or fail("no reads after allocation $n") && last;
    }
    cmp_ok $tried, '>', 2, "$tried allocations failed";
    is $crashed, 0, 'no crash';
};

diag 'ends by CHECK: ' . ($fate{checks} // 0) if $ENV{TEST_VERBOSE};
done_testing;
