# Reloads beside streams that outlast them, and kills in between: fifty streams,
# some on a route that is on record when they begin, some on one that needs a
# slot to their end, each replaced after a while; a hundred reloads in two
# minutes. Every answered request is counted.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use IO::Select;
use IO::Socket::INET;
use List::Util qw(max);
use Test::More;
use Edgemeter::EdgeLoad;
use Edgemeter::EdgeVerify qw(verify_edge wait_drained edge_metric);
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(now pause wait_until);

use constant { STREAMS => 50, ANSWER_SECONDS => 20 };

my $seconds = $ENV{TORTURE_SECONDS} || 5;
my $reloads = max(20, int $seconds / 1.2);
my $text    = 'x' x 3500;

# Bytes leave so slowly that no stream ends by itself.
my $conf = Edgemeter::EdgeLoad::conf(outbox => '4m');
$conf =~ s{(?=\n        location = /late )}{
        location ~ ^/stream/(event|slot)\$ {
            limit_rate_after 1000;
            limit_rate 3;
            error_page 418 = \@\$1;
            return 418;
        }
        location \@event {
            limit_rate_after 1000;
            limit_rate 3;
            meter on;
            meter_attribute n \$arg_n;
            return 200 "$text";
        }
        location \@slot {
            limit_rate_after 1000;
            limit_rate 3;
            meter on;
            meter_attribute n \$arg_n;
            meter_attribute sent \$bytes_sent;
            return 200 "$text";
        }} or die;

my $stack = Edgemeter::Stack->for_test(
    rules      => \Edgemeter::EdgeLoad::rules(),
    nginx_conf => \$conf,
)->start;

# ---- streams ---------------------------------------------------------------

my (@streams, %told, %fates);
my $opened = 0;

# Replaces one; it has begun when its first byte is there.
sub stream {
    my ($i) = @_;
    my $mode = $i % 2 ? 'slot' : 'event';
    my $n    = "s$i-" . ++$opened;
    my $socket = IO::Socket::INET->new(
        PeerAddr => '127.0.0.1',
        PeerPort => $stack->port,
        Timeout  => 5,
    ) or return;
    $streams[$i] = undef;
    my $sent = $socket->syswrite(
        "GET /stream/$mode?n=$n&tenant=acme HTTP/1.1\r\nHost: a\r\n\r\n");
    my $got;
    $got = $socket->sysread(my $bytes, 4096)
        if $sent && IO::Select->new($socket)->can_read(ANSWER_SECONDS);
    $told{$mode}{acme}{$n}{ $got ? 'answered' : 'unknown' }++ if $sent;
    $fates{ $got ? 'answered' : 'unknown' }++ if $sent;
    $streams[$i] = $socket if $got;
    return;
}

# Those whose worker was killed.
sub broken {
    return grep {
        my $socket = $streams[$_];
        my $is_open = 0;
        if ($socket) {
            $is_open = 1;
            while ($is_open && IO::Select->new($socket)->can_read(0)) {
                $is_open = $socket->sysread(my $bytes, 65536) ? 1 : 0;
            }
        }
        !$is_open;
    } 0 .. STREAMS - 1;
}

# ---- kills -----------------------------------------------------------------

sub workers {
    my $master = $stack->part_pid('nginx') or return;
    return grep { $_ != $master }
        Edgemeter::Process::session_members($master);
}

my %FAULT = (
    worker => sub {
        my @workers = workers();
        kill 'KILL', $workers[rand @workers];
    },
    workers => sub { kill 'KILL', workers() },
    master  => sub {
        my @workers = workers();
        $stack->kill_part('nginx');
        pause(rand); # its workers go on; streams would keep them for ever
        kill 'KILL', @workers;
        $stack->start_part('nginx');
        $stack->wait_healthy;
    },
    meterd => sub {
        $stack->kill_part('meterd');
        pause(rand);
        $stack->start_part('meterd');
    },
    everything => sub {
        my @all = (workers(), map { $stack->part_pid($_) } qw(nginx meterd));
        kill 'KILL', @all;
        wait_until { !grep { Edgemeter::Process::pid_alive($_) } @all } 10,
            'all are dead';
        for my $part (qw(nginx meterd)) {
            $stack->kill_part($part);
            $stack->start_part($part);
        }
        $stack->wait_healthy;
    },
);
my @names = sort keys %FAULT;

# Each of them once; then rather those that leave old workers alive.
my @faults = (@names, qw(worker worker worker meterd));

# ---- the run ---------------------------------------------------------------

stream($_) for 0 .. STREAMS - 1;
my $load = Edgemeter::EdgeLoad->new(stack => $stack, clients => 2)->start;
my (%done, $next, $most, $leaving) = ();
($next, $most, $leaving) = (0, 0, 0);
my $began = now();
for my $turn (1 .. $reloads) {
    kill 'HUP', $stack->part_pid('nginx');
    my $before = $load->progress;
    wait_until { $load->progress > $before + 500 } 30, 'answers come';
    if ($turn % 4 == 0) {
        my $name = $turn / 4 <= @names ? $names[ $turn / 4 - 1 ]
            : $faults[rand @faults];
        pause(rand 0.5);
        $FAULT{$name}->();
        $done{$name}++;
    }
    # Generations of workers live as long as their streams: replace some.
    stream($_) for broken();
    stream($next++ % STREAMS) for 1 .. 3;
    my $page = $stack->http->get('/metrics')->{body};
    my %rings = $page =~ /^edgemeter_edge_outbox_rings\{state="(\w+)"\} (\d+)$/mg;
    my $sum = 0;
    $sum += $_ for values %rings;
    $most    = max($most, $sum);
    $leaving = max($leaving, $rings{leaving} // 0);
    my $rest = $began + $seconds * $turn / $reloads - now();
    pause($rest) if $rest > 0;
}
my $spent = now() - $began;
my $workers = () = workers();
$_ && $_->close for @streams;
$load->stop;
wait_drained($stack);
ok $done{$_}, "$_: $done{$_} times" for @names;
diag sprintf '%d reloads in %.0f s; %d streams; %d workers at the end; at most '
    . '%d rings, %d of them leaving', $reloads, $spent, $fates{answered},
    $workers, $most, $leaving;

# What was answered is what is counted: nothing had to be told as lost.
my $all = $load->told;
for my $mode (keys %told) {
    $all->{$mode}{acme}{$_} = $told{$mode}{acme}{$_}
        for keys %{ $told{$mode}{acme} };
}
verify_edge($stack, $all);
is edge_metric($stack, 'edgemeter_edge_requests_unrecorded_total'), 0,
    'nothing was lost';
is edge_metric($stack, 'edgemeter_edge_workers_without_ring'), 0,
    'nobody is without a ring';
$stack->stop;
done_testing;
