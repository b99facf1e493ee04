# A read that PostgreSQL cannot finish is given up with 503, by whichever
# comes first: limits.statementTimeout or the lock timeout of reads, 2 s.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use Test::More;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(now wait_until poll_until);

use constant LOCK_TIMEOUT => 2;

my %EVENT = (
    event_id   => 'e1',
    type       => 'api.request',
    ts         => '2026-01-01T00:00:00Z',
    attributes => { route => '/a' },
);

sub lock_counters {
    my ($stack) = @_;
    my $locker = Edgemeter::Process->spawn(
        name => 'locker', log => $stack->place->path('tmp') . '/locker.log',
        user => $stack->account,
        command => [$stack->cluster->{bin} . '/psql', '-q', '--dbname',
            $stack->database_url, '-c',
            'BEGIN; LOCK TABLE meter.counter IN ACCESS EXCLUSIVE MODE;'
                . ' SELECT pg_sleep(60); COMMIT'],
    );
    wait_until {
        $stack->query("SELECT count(*) FROM pg_locks WHERE granted AND"
            . " mode = 'AccessExclusiveLock' AND relation ="
            . " 'meter.counter'::regclass")
    } 10, 'the lock is held';
    return $locker;
}

sub unlock {
    my ($stack, $locker) = @_;
    $stack->query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        . " WHERE query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()");
    wait_until { !$locker->alive } 10, 'the lock is gone';
    return;
}

for my $case (['200ms', '<'], ['1m', '>=']) {
    my ($timeout, $than) = @$case;
    subtest "statementTimeout: $timeout" => sub {
        my $stack = Edgemeter::Stack->for_test(
            yaml => { limits => "{ statementTimeout: $timeout }" });
        $stack->start;
        my $http    = $stack->http('acme');
        my $counter = sub {
            $http->get('/v1/counters/api_requests', route => '/a');
        };
        $http->post('/v1/events', \%EVENT);
        is $counter->()->{json}{value}, '1', 'a counter';

        my $locker = lock_counters($stack);
        my $start  = now();
        my $answer = $counter->();
        my $took   = now() - $start;
        is $answer->{status}, 503, 'a read that waits for a lock is given up';
        is $answer->{json}{error}, 'the read took too long', 'and says why';
        ok defined $answer->{headers}{'retry-after'}, 'Retry-After is sent';
        cmp_ok $took, $than, LOCK_TIMEOUT, "after $than 2 s";

        unlock($stack, $locker);
        ok +(poll_until { $counter->()->{status} == 200 } 5),
            'reads work again';
    };
}

done_testing;
