#!/usr/bin/perl

# 66-two-nginx.t - two nginx share an outbox and a meterd, and are reloaded in
# turn with other sizes of rings and other numbers of workers, while streams
# keep old workers. Both go on metering, and every answer is counted once.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use IO::Select;
use IO::Socket::INET;
use Test::More;
use Edgemeter::EdgeLoad;
use Edgemeter::EdgeVerify qw(verify_edge wait_drained edge_metric);
use Edgemeter::Http;
use Edgemeter::Nginx;
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

use constant { TURNS => 16, STREAMS => 4, ANSWER_SECONDS => 20 };

# Its stack as the load and the checks ask for it.
package Second {
    sub port { return $_[0]{port} }
    sub http { return $_[0]{http} }
}

my $text = 'x' x 3500;
my $conf = Edgemeter::EdgeLoad::conf(outbox => '1m');
$conf =~ s{(?=\n        location = /late )}{
        location = /stream {
            limit_rate_after 1000;
            limit_rate 3;
            error_page 418 = \@stream;
            return 418;
        }
        location \@stream {
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

# ---- the second one, from the configuration of the first -------------------

sub read_file {
    my ($path) = @_;
    open my $file, '<', $path or die "$path: $!\n";
    local $/;
    return <$file>;
}

my $port = Edgemeter::Stack::free_port();
my %nginx = (
    first => {
        conf   => $stack->place->path('nginx.conf'),
        master => sub { $stack->part_pid('nginx') },
        stack  => $stack,
    },
    second => {
        conf  => $stack->place->path('second.conf'),
        stack => bless({
            port => $port,
            http => Edgemeter::Http->new(port => $port),
        }, 'Second'),
    },
);
my $own = read_file($nginx{first}{conf});
$own =~ s/nginx\.pid/second.pid/;
$own =~ s/nginx-error/second-error/;
$own =~ s/127\.0\.0\.1:\d+/127.0.0.1:$port/;

sub write_conf {
    my ($path, $conf) = @_;
    return Edgemeter::Place::replace_file($path, 0644, $stack->account, $conf);
}

write_conf($nginx{second}{conf}, $own);
my $second = Edgemeter::Nginx->new(
    conf    => $nginx{second}{conf},
    prefix  => $stack->run_dir,
    log     => $stack->log_path('second-error'),
    port    => $port,
    account => $stack->account,
);
$second->start;
$nginx{second}{master} = sub { $second->pid };

# ---- streams and load ------------------------------------------------------

my (%streams, %told);
my $opened = 0;

# It has begun, and is to be counted, when its first byte is there.
sub stream {
    my ($name, $i) = @_;
    my $n = "s$name-" . ++$opened;
    my $socket = IO::Socket::INET->new(
        PeerAddr => '127.0.0.1',
        PeerPort => $nginx{$name}{stack}->port,
        Timeout  => 5,
    ) or die "$name does not listen\n";
    $socket->syswrite(
        "GET /stream?n=$n&tenant=acme HTTP/1.1\r\nHost: a\r\n\r\n");
    my $is_there = IO::Select->new($socket)->can_read(ANSWER_SECONDS)
        && $socket->sysread(my $bytes, 4096);
    die "$name does not answer\n" unless $is_there;
    $told{$n}{answered}++;
    $streams{$name}[$i] = $socket;
    return;
}

my %load;
for my $name (sort keys %nginx) {
    wait_until {
        ($nginx{$name}{stack}->http->get('/metrics')->{body} // '')
            =~ /edgemeter_edge_outbox_rings/
    } 20, "$name serves";
    stream($name, $_) for 0 .. STREAMS - 1;
    $load{$name} = Edgemeter::EdgeLoad->new(stack => $nginx{$name}{stack},
        clients => 2, name => $name)->start;
}

# ---- reloads ---------------------------------------------------------------

my @SIZES = qw(256k 1m 512k 2m 768k);
for my $turn (1 .. TURNS) {
    my $name = $turn % 2 ? 'first' : 'second';
    my ($size, $workers) = ($SIZES[$turn % @SIZES], 1 + $turn % 3);
    my $next = read_file($nginx{$name}{conf});
    $next =~ s/(meter_outbox \S+) \w+/$1 $size/;
    $next =~ s/(worker_processes) \d+/$1 $workers/;
    write_conf($nginx{$name}{conf}, $next);
    kill 'HUP', $nginx{$name}{master}->();
    my %before = map { $_ => $load{$_}->progress } keys %load;
    wait_until {
        !grep { $load{$_}->progress < $before{$_} + 500 } keys %load
    } 60, "answers of both after reload $turn";
    stream($name, $turn % STREAMS);
}
$_->stop for values %load;
$_->close for map {@$_} values %streams;

# ---- what is there ---------------------------------------------------------

wait_drained($_->{stack}) for values %nginx;
my $all = $load{first}->told;
my $more = $load{second}->told;
for my $mode (keys %$more) {
    for my $tenant (keys %{ $more->{$mode} }) {
        $all->{$mode}{$tenant}{$_} = $more->{$mode}{$tenant}{$_}
            for keys %{ $more->{$mode}{$tenant} };
    }
}
$all->{slot}{acme}{$_} = $told{$_} for keys %told;
verify_edge($stack, $all);
for my $name (sort keys %nginx) {
    my $its = $nginx{$name}{stack};
    is edge_metric($its, 'edgemeter_edge_requests_unrecorded_total'), 0,
        "$name: nothing was lost";
    is edge_metric($its, 'edgemeter_edge_workers_without_ring'), 0,
        "$name: nobody is without a ring";
    is edge_metric($its, 'edgemeter_edge_conservation_gap'), 0,
        "$name: no gap";
}
ok $second->stop, 'the second ends';
$stack->stop;
done_testing;
