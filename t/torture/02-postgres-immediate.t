# PostgreSQL is stopped as if its power went, again and again, under the
# same load; meterd and nginx stay up and every answer keeps its word.

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
my $meterd  = $stack->part_pid('meterd');
my $load    = Edgemeter::Load->new(stack => $stack)->start;
my $stops   = 0;

for (my $end = now() + $seconds; now() < $end;) {
    my $before = $load->progress;
    wait_until { $load->progress > $before + 2000 } 30, 'answers come';
    $stack->cluster->stop('immediate');
    $stops++;
    $stack->start_part('postgres');
    wait_until { $stack->http->get('/readyz')->{status} == 200 } 30,
        'ready again';
}
$load->stop;

cmp_ok $stops, '>=', 2, "PostgreSQL was stopped $stops times";
is $stack->part_pid('meterd'), $meterd, 'meterd stayed up';
ok $stack->alive('meterd'), 'and is alive';
verify_load($stack, $load->told);
done_testing;
