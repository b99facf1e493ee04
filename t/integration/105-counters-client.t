#!/usr/bin/perl

# 105-counters-client.t - examples/counters-client does what a user of the
# counters API does: page views, a rate check, a weekly sum, a quota, again
# with back-off. It runs under Node against a stack with a short queue.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use IPC::Open2 qw(open2);
use Test::More;
use Edgemeter::SqlSession;
use Edgemeter::Stack;

my $stack = Edgemeter::Stack->for_test(
    yaml => { limits => '{ operationQueue: 8 }' })->start;
my $holder = Edgemeter::SqlSession->new($stack, 'holder');

my %ACTION = (
    hold => sub {
        $holder->ask('BEGIN; SELECT FROM meter.bucket_counter'
            . " WHERE name = 'held' FOR UPDATE;");
    },
    release => sub { $holder->ask('COMMIT;') },
);

$ENV{TOKEN} = $stack->token('acme');
my $pid = open2(my $out, my $in, 'node',
    "$FindBin::Bin/../js/counters-client.mjs",
    'http://127.0.0.1:' . $stack->port, 'acme');
$in->autoflush(1);
local $SIG{ALRM} = sub { kill 'KILL', $pid; die "node does not end\n" };
alarm 120;
while (defined(my $line = readline $out)) {
    chomp $line;
    if ($line =~ /^do (\w+)$/) {
        $ACTION{$1}->();
        print {$in} "done\n";
    }
    elsif ($line =~ /^(not )?ok - (.*)$/) {
        ok !$1, $2;
    }
    else {
        diag $line;
    }
}
waitpid $pid, 0;
alarm 0;
is $?, 0, 'node ended well';
done_testing;
