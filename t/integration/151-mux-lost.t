#!/usr/bin/perl

# 151-mux-lost.t - meterd and a client are gone in the same turn of a worker:
# of three requests on the mux, all parts of one page, the end of the first
# ends the others too. The worker lives on.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use File::Temp ();
use IO::Socket::INET;
use Socket qw(SOL_SOCKET SO_LINGER);
use Test::More;
use Edgemeter::Process;
use Edgemeter::SqlSession;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

my $QUERY = 'durationSeconds=3600&timestamp=2024-03-15T10:30:00Z';
my $PAGES = File::Temp->newdir('em-pages-XXXXXX', TMPDIR => 1);

# A page of three counters, sent piece by piece.
chmod 0755, $PAGES;
open my $page, '>', "$PAGES/page.shtml" or die $!;
print {$page} map {
    qq(<!--# include virtual="/api/counters/acme/n$_/get?$QUERY" -->\n)
} 1 .. 3;
close $page or die $!;

open my $example, '<', Edgemeter::Stack::root() . '/examples/nginx.conf'
    or die $!;
my $conf = do { local $/; <$example> };
$conf =~ s/worker_processes \w+/worker_processes 1/ or die;
$conf =~ s{(\n\s*location /v1/)}
    {\n postpone_output 0;\n location /page { ssi on; ssi_types *; root $PAGES; }$1} or die;

my $stack = Edgemeter::Stack->for_test(nginx_conf => \$conf)->start;
my $http  = $stack->http('acme');
my $token = $stack->token('acme');

sub metric {
    my ($name) = @_;
    return $http->get('/metrics')->{body} =~ /^\Q$name\E (\d+)$/m ? $1 : -1;
}

sub workers {
    my $master = $stack->part_pid('nginx');
    return grep { $_ != $master }
        Edgemeter::Process::session_members($master);
}

sub mux_is_open {
    $http->get("/api/counters/acme/n1/get?$QUERY");
    return metric('edgemeter_muxes') == 1;
}

wait_until { mux_is_open() } 20, 'a mux';
my ($worker) = workers();

my $holder = Edgemeter::SqlSession->new($stack, 'holder');
$holder->ask('RESET ROLE; BEGIN;'
    . ' LOCK TABLE meter.bucket_counter IN ACCESS EXCLUSIVE MODE;');
my $client = IO::Socket::INET->new(
    PeerAddr => '127.0.0.1', PeerPort => $stack->port) or die $!;
print {$client} "GET /page.shtml HTTP/1.1\r\nHost: x\r\n"
    . "Authorization: Bearer $token\r\n\r\n";
$client->flush;
wait_until { metric('edgemeter_mux_requests_in_flight') == 3 } 20,
    'all three are on the mux';

# The worker finds both gone when it wakes up.
kill 'STOP', $worker;
wait_until {
    open my $file, '<', "/proc/$worker/stat" or die $!;
    readline($file) =~ /\) T /;
} 10, 'the worker stands still';
$stack->kill_part('meterd');
setsockopt $client, SOL_SOCKET, SO_LINGER, pack 'ii', 1, 0;
close $client;
kill 'CONT', $worker;

wait_until { $stack->log('nginx-error') =~ /3 requests have no answer/ } 20,
    'the mux is lost';
$holder->ask('ROLLBACK;');
$stack->start_part('meterd');
$stack->wait_meterd;
wait_until { mux_is_open() } 20, 'a new mux';
is join(' ', workers()), $worker, 'the same worker';
unlike $stack->log('nginx-error'), qr/exited on signal|\[alert\]/,
    'none has died';
$stack->stop;

done_testing;
