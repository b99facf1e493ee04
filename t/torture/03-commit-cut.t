# The connection to PostgreSQL is cut during COMMIT: before it arrives,
# after it ran, and while it still runs. meterd must find out which.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use Test::More;
use Edgemeter::Load;
use Edgemeter::Proxy;
use Edgemeter::Stack;
use Edgemeter::Url;
use Edgemeter::Verify qw(verify_load);
use Edgemeter::Wait qw(now wait_until);

my $seconds = $ENV{TORTURE_SECONDS} || 8;
my $stack   = Edgemeter::Stack->for_test;
$stack->prepare;
my $proxy = Edgemeter::Proxy->new(
    socket => $stack->make_cluster->{sockets} . '/.s.PGSQL.5432')->start;
my $host = Edgemeter::Url::encode($proxy->directory);
$stack->{yaml} = { database => "'postgresql://meterd\@$host/edgemeter'" };
$stack->start;
my $load = Edgemeter::Load->new(stack => $stack)->start;
my $end  = now() + $seconds;
wait_until { now() > $end && cuts() >= 6 } $seconds + 60, 'six cuts';
$load->stop;

my %cuts = $proxy->cuts;
cmp_ok $cuts{$_}, '>=', 2, "cut $cuts{$_} times: $_" for sort keys %cuts;
like $stack->http->get('/metrics')->{body},
    qr/^edgemeter_commits_unknown_total [1-9]/m,
    'unknown COMMITs were looked up';
verify_load($stack, $load->told);
done_testing;

sub cuts {
    my %now = $proxy->cuts;
    my $sum = 0;
    $sum += $_ for values %now;
    return $sum;
}
