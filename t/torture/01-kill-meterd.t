# kill -9 of meterd, again and again, while 16 clients send every event
# twice: what was answered is there, once.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use Test::More;
use Edgemeter::Load;
use Edgemeter::Stack;
use Edgemeter::Verify qw(verify_load);
use Edgemeter::Wait qw(now wait_until);

my $seconds = $ENV{TORTURE_SECONDS} || 8;
my $stack   = Edgemeter::Stack->for_test->start;
my $load    = Edgemeter::Load->new(stack => $stack)->start;
my $kills   = 0;

for (my $end = now() + $seconds; now() < $end;) {
    my $before = $load->progress;
    wait_until { $load->progress > $before + 2000 } 30, 'answers come';
    $stack->kill_part('meterd');
    $kills++;
    $stack->start_part('meterd');
    $stack->wait_healthy;
}
$load->stop;

cmp_ok $kills, '>=', 2, "meterd was killed $kills times";
verify_load($stack, $load->told);
done_testing;
