# The mux, when it ends: meterd closes, breaks the protocol or drains; the
# worker leaves; clients go away by the thousand.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/MuxCapture.pm' }

use Test::Nginx::Socket;
use Time::HiRes qw(sleep time);

repeat_each(1);
no_shuffle();
worker_connections(1024);
plan tests => 169;

our $edge = Edgemeter::MuxCapture->start;

our $api = '    location /api/counters/ { meter_api; }';
our $unknown = '{"error":"It is not known whether the operation was applied",'
    . "\"outcome\":\"unknown\"}\n";
our $full = "{\"error\":\"Service overloaded (Queue Full). Please retry later.\"}\n";

# One meterd by many names: each has a mux of its own.
our %bad = (
    garbage => 'do=garbage', checksum => 'do=crc', type => 'do=type',
    malformed => 'do=malformed', huge => 'do=huge&size=67108865',
    mux => 'do=frame&type=14', cancel => 'do=frame&type=15',
    zero => 'do=frame&type=0&flags=0', request => 'do=frame&type=12',
    critical => 'do=frame&type=99',
);
our $names = join "\n", map {
    my $name = "$::edge->{dir}/$_.sock";
    symlink $ENV{TEST_NGINX_METER_SOCKET}, $name or die "symlink: $!\n";
    "    location /api/counters/$_/ { meter_api; meter_aggregator unix:$name; }";
} sort keys %bad;

# So many clients that wait for a gate.
sub hold {
    my ($gate, $method, $number) = @_;

    my @clients = map {
        begin($method, "?do=hold&gate=$gate&n=$_&tag=$gate-$method");
    } 1 .. $number // 1;
    wait_log("^arrived $gate-$method", $number // 1);
    return @clients;
}

# A client that does not close keeps nginx waiting for it.
sub answer_of {
    my ($client, $method) = @_;
    my $answer = $client->receive($method);
    $client->close;
    return $answer;
}

sub codes { return join ' ', map { answer_of($_)->{code} // '-' } @_ }

sub is_unknown {
    my ($name, @clients) = @_;
    my @answers = map { answer_of($_) } @clients;
    return is(join('', map { "$_->{code} $_->{body}" } @answers),
        "504 $::unknown" x @clients, $name);
}

sub muxes { return scalar(() = fake_log() =~ /^mux \d+ opened/mg) }

# A new worker; the old one has something left to do.
sub begin_reload {
    my $old = worker();
    kill 'HUP', Edgemeter::Capture::master();
    wait_until('new worker', sub { worker() =~ /\d \d/ });
    wait_until('old worker that leaves',
        sub { Edgemeter::Capture::title($old) =~ /shutting down/ });
    return $old;
}

sub wait_end {
    my ($pid) = @_;
    wait_until('end of the old worker', sub { worker() !~ /\b$pid\b/ });
    return pass('the old worker ends');
}

no_long_string();
run_tests();

__DATA__

=== TEST 1: meterd closes: writes are unknown, reads are tried again, and a mux is back after a second
--- config eval: $::api
--- client
open_mux();
my @writes = (hold('t1', 'POST', 3), hold('t1', 'PUT'));
my @reads = (hold('t1', 'GET', 2), hold('t1', 'HEAD'));
my $connections = metric('edgemeter_edge_connections_opened_total');
my $lost = time;
is_unknown('the one that met the end', begin('POST', '?do=close'));
is_unknown('writes', @writes);
cmp_ok(metric('edgemeter_edge_connections_opened_total') - $connections, '>=', 2, 'reads have connections of their own');
open_gate('t1');
is($_->receive->{body}, "alone " . ($_ == $reads[0] ? 1 : 2) . "\n", 'a read') for @reads[0, 1];
is($reads[2]->receive('HEAD')->{code}, 200, 'HEAD');
wait_error('closed the connection, 8 requests have no answer');
is(way(), "connection\n", 'the next has its own');
is(muxes(), 1, 'no other mux yet');
open_mux();
cmp_ok(time - $lost, '>', 0.9, 'not at once');
cmp_ok(time - $lost, '<', 5, 'but soon');
is(muxes(), 2, 'one more');
is(metric('edgemeter_edge_muxes_opened_total'), 2, 'counted');



=== TEST 2: a read is tried once more and not again
--- config eval: $::api
--- client
open_mux();
my $answer = ask('GET', '?do=close&tag=t2');
is($answer->{code}, 503, 'away');
is(ask('GET', '?do=way')->{body}, "connection\n", 'the next');



=== TEST 3: meterd ends in the middle of an answer
--- config eval: $::names
--- client
for my $word (qw(half halfbody)) {
    my $path = $word eq 'half' ? '/api/counters/type/x/y' : '/api/counters/huge/x/y';
    open_mux("$path?do=way");
    my $held = begin('POST', "$path?do=never&tag=$word");
    wait_log("^arrived $word");
    is_unknown("$word: itself", begin('PUT', "$path?do=$word"));
    is_unknown("$word: another", $held);
}



=== TEST 4: what is no answer ends the mux, and the log says why
--- config eval: $::names
--- client
my %why = (garbage => 'bytes that are no frame', checksum => 'checksum mismatch', type => 'no place here', malformed => 'a malformed RESPONSE', huge => 'too large',
    mux => 'a second MUX', map { $_ => 'no place here' } qw(cancel zero request critical));
my $count = 0;
for my $name (sort keys %::bad) {
    my $path = "/api/counters/$name/b/c";
    open_mux("$path?do=way");
    my $held = begin('POST', "$path?do=never&tag=t4$name");
    my $read = begin('GET', "$path?do=hold&gate=t4$name&n=1&tag=t4$name");
    wait_log("^arrived t4$name", 2);
    my $mark = length errors();
    my $own = begin('PUT', "$path?$::bad{$name}");
    is_unknown("$name: itself, another", $own, $held);
    like(substr(errors(), $mark), qr/meterd sent .*$why{$name}.*broke the protocol, 3 requests have no answer/s, "$name: the log");
    open_gate("t4$name");
    is($read->receive->{body}, "alone 1\n", "$name: a read");
    is(way("$path?do=way"), "connection\n", "$name: the next");
}



=== TEST 5: DRAIN: those on the way are answered, then the worker closes
--- config eval: $::api
--- client
open_mux();
my @held = hold('t5', 'POST', 3);
my $drain = begin('PUT', '?do=drain&gate=t5&n=9&tag=drain');
wait_log('^arrived drain');
wait_until('connection', sub { way() eq "connection\n" });
is(way(), "connection\n", 'new ones have their own') for 1 .. 3;
unlike(fake_log(), qr/^mux \d+ closed/m, 'not closed yet');
open_gate('t5');
is(codes(@held, $drain), '200 200 200 200', 'answered');
wait_log('^mux \d+ closed');
open_mux();
is(muxes(), 2, 'a new mux');
unlike(fake_log(), qr/cancelled/, 'nothing was taken back');
is(errors(), '', 'nothing in the error log');



=== TEST 6: DRAIN with nobody on the way, and with one that goes away
--- config eval: $::api
--- client
open_mux();
is(way('?do=drain'), "mux\n", 'answered');
wait_log('^mux \d+ closed');
open_mux();
my $gone = begin('POST', '?do=drain&gate=t6&n=1&tag=t6');
wait_log('^arrived t6');
wait_until('connection', sub { way() eq "connection\n" });
$gone->close;
wait_log('^mux \d+ closed', 2);
is(errors(), '', 'nothing in the error log');



=== TEST 7: meterd reads no more and closes: what was not sent is sent elsewhere
--- http_config eval: $::edge->http . 'large_client_header_buffers 4 64k;'
--- config eval: $::api
--- client
open_mux();
ask('POST', '?x=' . 'x' x 50000) for 1 .. 20;
is_unknown('a first mux', begin('POST', '?do=half'));
open_mux();
my $stall = begin('POST', '?do=stall&gate=t7&tag=t7');
wait_log('^stalled t7');
my $before = metric('edgemeter_edge_mux_requests_total');
my @all = map { begin('POST', "?do=way&n=$_&x=" . 'x' x 20000) } 1 .. 40;
wait_until('all', sub { metric('edgemeter_edge_mux_requests_total') - $before == 40 });
open_gate('t7', 'close');
is_unknown('the one that stalled', $stall);
my @answers = map { $_->receive } @all;
my @sent = grep { $_->{code} == 504 } @answers;
my @rest = grep { $_->{code} == 200 } @answers;
is(@sent + @rest, 40, 'all have an answer');
cmp_ok(scalar @sent, '>', 0, 'some were sent');
cmp_ok(scalar @rest, '>', 0, 'some were not');
is((grep { $_->{code} != 504 } @answers[0 .. $#sent]), 0, 'the first ones were');
is((grep { $_->{body} ne $::unknown } @sent), 0, 'which are unknown');
is((grep { $_->{body} ne "connection\n" } @rest), 0, 'the others had connections of their own');
open_mux();
is(muxes(), 3, 'a mux is back');



=== TEST 8: meterd closes between a request and its first byte
--- config eval: $::api
--- client
open_mux();
my $pid = worker();
my ($held) = hold('moment', 'POST');
my $client = client();
my $request = Edgemeter::HttpClient::text('POST', '/api/counters/a/b/c?do=way', 'Content-Length: 2') . '{}';
$client->send($request);
is($client->receive->{body}, "mux\n", 'one before');
kill 'STOP', $pid;
$client->send($request);
open_gate('moment', 'close');
eval { wait_log('^mux \d+ closed') };
kill 'CONT', $pid;
is($client->receive->{body}, "connection\n", 'on its own');
is_unknown('the one that was sent', $held);
$client->close;



=== TEST 9: what was not sent and cannot be sent was not applied
--- http_config eval: $::edge->http . 'large_client_header_buffers 4 64k;'
--- config eval
"    location /api/counters/ { meter_api; meter_aggregator unix:$::edge->{dir}/away.sock; }"
--- alerts: away.sock failed
--- client
symlink $ENV{TEST_NGINX_METER_SOCKET}, "$::edge->{dir}/away.sock";
open_mux();
my $stall = begin('POST', '?do=stall&gate=t8&tag=t8');
wait_log('^stalled t8');
my $before = metric('edgemeter_edge_mux_requests_total');
my @all = map { begin('POST', "?do=way&n=$_&x=" . 'x' x 60000) } 1 .. 10;
wait_until('all', sub { metric('edgemeter_edge_mux_requests_total') - $before == 10 });
unlink "$::edge->{dir}/away.sock";
open_gate('t8', 'close');
is_unknown('the one that stalled', $stall);
my @answers = map { answer_of($_) } @all;
is_deeply([map { $_->{code} } @answers], [sort { $b <=> $a } map { $_->{code} } @answers], 'sent, then not sent');
is("$answers[0]{code} $answers[0]{body}", "504 $::unknown", 'sent');
is($answers[-1]{code}, 503, 'not sent');
like($answers[-1]{head}, qr/^Retry-After: 1\r$/m, 'try again');



=== TEST 10: more than 4 MiB that meterd does not read
--- http_config eval: $::edge->http . 'large_client_header_buffers 4 64k;'
--- config eval: $::api
--- log_level: info
--- client
open_mux();
my $stall = begin('POST', '?do=stall&gate=t9s&tag=t9s');
wait_log('^stalled t9s');
my @all = map { begin('POST', "?do=way&x=" . 'x' x 60000) } 1 .. 80;
for my $late (@all[77 .. 79], begin('PUT', '?do=way'), begin('GET', '?do=way')) {
    my $answer = answer_of($late);
    is("$answer->{code} $answer->{body}", "429 $::full", 'one too many');
    like($answer->{head}, qr/^Retry-After: 1\r$/m, 'try again');
}
is(answer_of(begin('POST', '?do=way', 'x' x 5000))->{body}, "connection\n", 'what never goes there');
open_gate('t9s');
is(answer_of($stall)->{body}, "mux\n", 'it goes on');
my @ways = map { answer_of($_)->{body} } @all[0 .. 76];
my $refused = grep { $_ eq $::full } @ways;
my $waited = grep { $_ eq "mux\n" } @ways;
is($waited + $refused, 77, 'all are answered');
is(metric('edgemeter_edge_upstream_failures_total{kind="full"}'), $refused + 5, 'counted');
cmp_ok($waited * 60000, '>', 4 << 20, 'those that waited');
cmp_ok($waited * 60000, '<', 5 << 20, 'no more than these');
is(way(), "mux\n", 'on the mux again');
is(muxes(), 1, 'the same');



=== TEST 11: a reload with requests on the way
--- config eval: $::api
--- client
open_mux();
my @held = (hold('t9', 'POST', 5), hold('t9', 'GET', 5));
my $old = begin_reload();
open_mux();
is(muxes(), 2, 'the new worker has its own');
like(worker(), qr/\b$old\b/, 'the old one waits');
open_gate('t9', 'glue');
is(codes(@held), join(' ', (200) x 10), 'answered');
wait_end($old);
wait_log('^mux \d+ closed');
is(errors(), '', 'nothing in the error log');



=== TEST 12: a reload with nothing on the way
--- config eval: $::api
--- client
open_mux();
reload();
wait_log('^mux \d+ closed');
is(errors(), '', 'nothing in the error log');



=== TEST 13: a reload before the mux was of use
--- config eval: $::api
--- client
is(way(), "connection\n", 'the first request');
wait_until('mux', sub { metric('edgemeter_edge_muxes_opened_total') == 1 });
reload();
wait_log('^mux \d+ closed');
is(errors(), '', 'nothing in the error log');



=== TEST 14: a worker that leaves opens no mux
--- config eval: $::api
--- client
my $client = client();
$client->send("POST /api/counters/a/b/c?do=way HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n");
wait_until('half a request', sub { $::edge->connections == 1 });
my $old = begin_reload();
$client->send('{}');
is(answer_of($client)->{body}, "connection\n", 'on its own');
wait_end($old);
is(muxes(), 0, 'no mux');
is(errors(), '', 'nothing in the error log');



=== TEST 15: a reload, and clients that go away, or wait too long
--- config
    location /api/counters/ { meter_api; meter_read_timeout 300ms; }
--- client
open_mux();
my $late = begin('POST', '?do=never&tag=late');
my $gone = begin('POST', '?do=never&tag=gone');
wait_log("^arrived $_") for qw(late gone);
my $old = begin_reload();
$gone->close;
is_unknown('too late', $late);
wait_end($old);
wait_log("^cancelled $_") for qw(late gone);
wait_log('^mux \d+ closed');



=== TEST 16: a worker whose time is up
--- main_config
    worker_shutdown_timeout 100ms;
--- config eval: $::api
--- client
open_mux();
my @never = map { begin('POST', '?do=never&tag=t12') } 1 .. 3;
my $read = begin('GET', '?do=hold&gate=t12&n=1&tag=t12');
wait_log('^arrived t12', 4);
my $old = begin_reload();
wait_end($old);
my @codes = map { my $answer = answer_of($_); $answer ? $answer->{code} : 0 } @never, $read;
is((grep { $_ && $_ != 504 } @codes), 0, 'no answer, or unknown');
unlike(errors(), qr/signal/, 'it was its own end');



=== TEST 17: a worker that leaves while meterd does not read
--- http_config eval: $::edge->http . 'large_client_header_buffers 4 64k;'
--- config
    location /api/counters/ { meter_api; meter_read_timeout 300ms; }
--- log_level: info
--- client
open_mux();
my $stall = begin('POST', '?do=stall&gate=t13&tag=t13');
wait_log('^stalled t13');
my $before = metric('edgemeter_edge_mux_requests_total');
my @all = map { begin('POST', "?do=way&n=$_&x=" . 'x' x 60000) } 1 .. 10;
wait_until('all', sub { metric('edgemeter_edge_mux_requests_total') - $before == 10 });
my $old = begin_reload();
is_unknown('not answered', $stall, @all);
wait_end($old);
open_gate('t13');



=== TEST 18: meterd is gone, and so is a client that waits for two answers
--- config eval
"    location /api/counters/ { meter_api; meter_aggregator unix:$::edge->{dir}/gone.sock; }
    location /both { ssi on; ssi_types text/plain; default_type text/html; postpone_output 0; }"
--- user_files
>>> both
<!--#include virtual="/api/counters/a/b/get?do=hold&gate=t14&n=1&tag=t14" --><!--#include virtual="/api/counters/a/b/get?do=hold&gate=t14&n=2&tag=t14" -->
--- alerts: gone.sock failed
--- client
symlink $ENV{TEST_NGINX_METER_SOCKET}, "$::edge->{dir}/gone.sock";
open_mux();
my $pid = worker();
my $both = begin('GET', '/both');
wait_log('^arrived t14', 2);
kill 'STOP', $pid;
unlink "$::edge->{dir}/gone.sock";
open_gate('t14', 'close');
eval { wait_log('^mux \d+ closed') };
$both->reset;
kill 'CONT', $pid;
wait_error('gone.sock failed');
symlink $ENV{TEST_NGINX_METER_SOCKET}, "$::edge->{dir}/gone.sock";
open_mux();
is(worker(), $pid, 'the worker stays');



=== TEST 19: clients go away by the thousand
--- config
    location /api/counters/ { meter_api; meter_read_timeout 100ms; }
    location /api/counters/mine/ { meter_api; }
--- log_level: error
--- client
open_mux();
my $pid = worker();
my ($wrong, $answered, $aborted) = (0, 0, 0);
srand 15;
for my $round (1 .. 60) {
    my @clients;
    for my $i (1 .. 50) {
        my $client = begin('POST', '?do=' . (rand() < 0.5 ? "answer&body=$round-$i" : 'late'));
        rand() < 0.2 ? $client->reset : push @clients, $client;
        $aborted++;
    }
    sleep rand 0.01 if rand() < 0.5;
    rand() < 0.5 ? $_->close : $_->reset for @clients;
    my $answer = ask('POST', "/api/counters/mine/b/c?do=answer&body=mine-$round");
    $answered++;
    $wrong++ if $answer->{body} ne "mine-$round";
}
is($wrong, 0, "$answered answers among $aborted that went away");
is(way(), "mux\n", 'the mux stays');
is(muxes(), 1, 'the same');
is(worker(), $pid, 'and so does the worker');



=== TEST 20: QUIT with requests on the way
--- config eval: $::api
--- client
open_mux();
my @held = hold('t16', 'POST', 3);
my $pid = worker();
my $master = Edgemeter::Capture::master();
kill 'QUIT', $master;
wait_until('no listener', sub { !eval { client(); 1 } });
open_gate('t16');
is(codes(@held), '200 200 200', 'answered');
wait_until('end', sub { !kill 0, $pid });
wait_log('^mux \d+ closed');
is(errors(), '', 'nothing in the error log');
