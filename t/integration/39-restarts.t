#!/usr/bin/perl

# 39-restarts.t - PostgreSQL comes and goes while events come: restarted,
# its backends ended one by one, its statements out of date. What meterd
# prepared on a connection is gone with it; nothing else may be.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use Test::More;
use Edgemeter::Load;
use Edgemeter::Stack;
use Edgemeter::Verify qw(verify_load);
use Edgemeter::Wait qw(now wait_until);

my $seconds = $ENV{TORTURE_SECONDS} || 4;
my $stack   = Edgemeter::Stack->for_test->start;
my $meterd  = $stack->part_pid('meterd');
my $load    = Edgemeter::Load->new(stack => $stack, clients => 8)->start;

sub answers_come {
    my $before = $load->progress;
    wait_until { $load->progress > $before + 2000 } 30, 'answers come';
    return;
}

sub stale {
    my $count = () = $stack->log('meterd')
        =~ /cached plan must not change/g;
    return $count;
}

my %way = (
    restart => sub {
        $stack->cluster->stop('fast');
        $stack->start_part('postgres');
    },
    terminate => sub {
        $stack->query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            . " WHERE usename = 'meterd'");
    },
    cancel => sub {
        $stack->query("SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
            . " WHERE usename = 'meterd'");
    },

    # Plans made before no longer fit what the table gives back.
    alter => sub {
        for my $type ('timestamptz(6)', 'timestamptz') {
            my $before = stale();
            answers_come();    # so all statements are prepared
            $stack->query("SET lock_timeout = '5s'; ALTER TABLE"
                . " meter.event_registry ALTER COLUMN first_seen_at TYPE $type");
            wait_until { stale() > $before } 20, 'statements are stale';
        }
    },
);

my (%done, $turn);
my @names = sort keys %way;
for (my $end = now() + $seconds; now() < $end || ($turn // 0) < @names;) {
    my $name   = $names[ $turn++ % @names ];
    answers_come();
    $way{$name}->();
    $done{$name}++;
    wait_until { $stack->http->get('/readyz')->{status} == 200 } 30,
        "ready after $name";
}
answers_come();
$load->stop;

cmp_ok $done{$_}, '>=', 1, "$_: $done{$_} times" for @names;
is $stack->part_pid('meterd'), $meterd, 'meterd stayed up';
unlike $stack->log('meterd'), qr/the database refuses an event/,
    'no event was blamed';
verify_load($stack, $load->told);
$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
done_testing;
