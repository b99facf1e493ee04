# The mux: requests of the counters API, many at once on one connection.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/MuxCapture.pm' }

use Digest::MD5 qw(md5_hex);
use Test::Nginx::Socket;

repeat_each(1);
no_shuffle();
worker_connections(1024);
plan tests => 174;

our $edge = Edgemeter::MuxCapture->start;

our $api = '    location /api/counters/ { meter_api; }';
our $unknown = '{"error":"It is not known whether the operation was applied",'
    . "\"outcome\":\"unknown\"}\n";

# The way a body goes; that it arrives whole is checked.
sub way_of {
    my ($path, $body, $chunked) = @_;

    my @headers = $chunked ? 'Transfer-Encoding: chunked' : ();
    my $sent = $body;
    if ($chunked) {
        $sent =~ s/(.{1,1000})/sprintf "%x\r\n%s\r\n", length $1, $1/gse;
        $sent .= "0\r\n\r\n";
    }
    is(ask('POST', "$path?do=sum", $sent, @headers)->{body},
        length($body) . ' ' . md5_hex($body) . "\n",
        length($body) . ' bytes arrive');
    return ask('POST', "$path?do=way", $sent, @headers)->{body};
}

# Each client and the answer it is to get.
sub hold {
    my ($gate, @numbers) = @_;
    return map { {
        n => $_, client => begin('POST',
            "?do=hold&gate=$gate&n=$_&tag=$gate&dots=" . $_ * 50),
    } } @numbers;
}

sub all_get_their_own {
    my ($name, @held) = @_;

    my @wrong;
    for my $one (@held) {
        my $answer = $one->{client}->receive;
        push @wrong, "$one->{n}: $answer->{code} $answer->{body}"
            if $answer->{code} != 200
                || $answer->{body} !~ /^held $one->{n} \d+\.{@{[$one->{n} * 50]}}$/;
    }
    return is(join('', @wrong), '', $name);
}

no_long_string();
run_tests();

__DATA__

=== TEST 1: the first request has a connection of its own, later ones go on the mux
--- config eval: $::api
--- client
is(way(), "connection\n", 'the first');
wait_until('mux', sub { metric('edgemeter_edge_muxes_opened_total') == 1 });
my $opened = metric('edgemeter_edge_connections_opened_total');
is(metric('edgemeter_edge_mux_requests_total'), 0, 'none on it yet');
is(way(), "mux\n", 'the next') for 1 .. 3;
is(ask('GET', '?do=way')->{body}, "mux\n", 'a read');
is(ask('PUT', '?do=way')->{body}, "mux\n", 'a PUT');
is(metric('edgemeter_edge_mux_requests_total'), 5, 'counted');
is(metric('edgemeter_edge_muxes_opened_total'), 1, 'one mux');
is(metric('edgemeter_edge_connections_opened_total'), $opened, 'nothing else');
is(() = fake_log() =~ /^mux \d+ opened/mg, 1, 'one MUX');



=== TEST 2: what meterd gets is the same on both ways
--- config eval: $::api
--- client
my @request = ('POST', '?a=1', "{\"n\":\"\\u00e9\xff\"}", 'Authorization: Bearer x', 'Content-Type: application/json', 'Idempotency-Key: k1');
my $first = ask(@request);
open_mux();
my $second = ask(@request);
is($second->{body}, $first->{body}, 'the same');
like($second->{body}, qr/"idempotency_key":"k1".*"body":/, 'whole');



=== TEST 3: many at once on one connection, answered in reverse
--- config eval: $::api
--- client
open_mux();
my @held = hold('t3', 1 .. 300);
wait_log('^arrived t3 \d+', 300);
open_gate('t3', 'reverse');
all_get_their_own('each its own', @held);
is(() = fake_log() =~ /^mux \d+ opened/mg, 1, 'one mux');
my %seen;
is((grep { $seen{$_}++ } fake_log() =~ /^arrived t3 (\d+)/mg), 0, 'no number twice');
unlike(fake_log(), qr/cancelled/, 'nothing was taken back');



=== TEST 4: numbers that share a place
--- config
    location /api/counters/ { meter_api; keepalive_requests 5000; }
--- log_level: info
--- client
open_mux();
my @held = hold('t4', 1);
my $number = wait_log('^arrived t4 (\d+)');
my $client = client();
for my $round (1 .. 2) {
    $client->send(Edgemeter::HttpClient::text('GET', '/api/counters/a/b/get?do=answer') x 1023);
    $client->receive for 1 .. 1023;
    push @held, hold('t4', 1 + $round);
    wait_log('^arrived t4', 1 + $round);
}
is(join(' ', map { $_ - $number } fake_log() =~ /^arrived t4 (\d+)/mg), '0 1024 2048', 'one place');
my ($gone) = splice @held, 1, 1;
$gone->{client}->close;
is(wait_log('^cancelled t4 (\d+)'), $number + 1024, 'one goes away');
open_gate('t4');
all_get_their_own('the others stay', @held);



=== TEST 5: answers in one write, in single bytes
--- config eval: $::api
--- client
open_mux();
my @held = hold('t4glue', 1 .. 100);
wait_log('^arrived t4glue', 100);
open_gate('t4glue', 'glue');
all_get_their_own('one write', @held);
@held = hold('t4cut', 1 .. 3);
wait_log('^arrived t4cut', 3);
open_gate('t4cut', 'reverse cut');
all_get_their_own('single bytes', @held);
my @slow = map { begin('POST', '?do=dribble') } 1 .. 2;
is($_->receive->{body}, "drop by drop\n", 'drop by drop') for @slow;
is(way(), "mux\n", 'the mux stays');



=== TEST 6: answers of every kind
--- config
    location /api/counters/ { meter_api; meter_buffer_size 1k; }
--- client
open_mux();
my $before = metric('edgemeter_edge_mux_requests_total');
my $answer = ask('POST', '?do=answer&status=201&body=made&headers=x-a:1%7Cx-b:two&allow=GET&type=text/x');
is($answer->{code}, 201, 'status');
is($answer->{body}, 'made', 'body');
like($answer->{head}, qr/^$_\r$/mi, $_) for 'x-a: 1', 'x-b: two', 'Content-Type: text/x', 'Content-Length: 4';
is(ask('POST', "?do=answer&status=$_&body=no")->{code}, $_, "status $_") for 400, 404, 409, 500, 503;
$answer = ask('POST', '?do=answer&status=429&retry=7&body=later');
is("$answer->{code} $answer->{body}", '429 later', 'too many');
like($answer->{head}, qr/^Retry-After: 7\r$/mi, 'Retry-After');
$answer = ask('PUT', '?do=answer');
is("$answer->{code} $answer->{body}", '200 ', 'an empty body');
like($answer->{head}, qr/^Content-Length: 0\r$/mi, 'its length');
$answer = ask('HEAD', '?do=answer&body=seen');
is($answer->{code}, 200, 'HEAD');
like($answer->{head}, qr/^Content-Length: 4\r$/mi, 'HEAD has the length');
$answer = ask('HEAD', '?do=big&size=300000');
like($answer->{head}, qr/^Content-Length: 300000\r$/mi, 'HEAD of a large one');
for my $size (1, 1023, 1024, 1025, 70_000, 3_000_000) {
    is(ask('GET', "?do=big&size=$size")->{body}, 'x' x $size, "$size bytes");
}
is(metric('edgemeter_edge_mux_requests_total') - $before, 16, 'all on the mux');
is(way(), "mux\n", 'which stays');



=== TEST 7: a client that reads its large answer late holds up nobody
--- config
    location /api/counters/ { meter_api; meter_buffer_size 1k; meter_read_timeout 1s; }
--- client
open_mux();
my $slow = client(buffer => 1 << 18);
$slow->send("GET /api/counters/a/b/get?do=big&size=8000000&tag=t6 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
wait_log('^arrived t6');
my $until = Time::HiRes::time() + 1.2;
is(way(), "mux\n", 'another') for 1 .. 20;
way() while Time::HiRes::time() < $until;
is(length $slow->receive->{body}, 8_000_000, 'all of it');
unlike(errors(), qr/timed out/, 'no timeout of an answer that is there');



=== TEST 8: bodies of requests
--- config
    location /api/counters/ { meter_api; client_body_buffer_size 16k; }
    location /api/counters/file/ { meter_api; client_body_in_file_only clean; }
    location /api/counters/small/ { meter_api; client_body_buffer_size 1k; }
--- client
open_mux();
my $path = '/api/counters/a/b/increment';
my @bytes = map { join '', map { chr int rand 256 } 1 .. $_ } 1, 4095, 4096, 4097, 20000;
is(way_of($path, $bytes[$_]), "mux\n", 'small') for 0 .. 2;
is(way_of($path, $bytes[$_]), "connection\n", 'large') for 3, 4;
is(way_of($path, $bytes[2], 'chunked'), "mux\n", 'chunked, small');
is(way_of($path, $bytes[3], 'chunked'), "connection\n", 'chunked, large');
is(way_of('/api/counters/file/b/increment', '{}'), "connection\n", 'in a file');
is(way_of('/api/counters/small/b/increment', $bytes[2]), "connection\n", 'more than the buffer');
is(way(), "mux\n", 'the mux stays');



=== TEST 9: only the counters API, as it is spelled
--- config
    location /api/ { meter_api; }
    location /v1/ { meter_api; }
--- client
open_mux();
is(way("$_?do=way"), "connection\n", $_) for '/v1/events', '/v1/api/counters/a/b/increment', '/api/counters', '/api/counter/a/b/increment',
    '/api/counterz/a/b/increment', '/%61pi/counters/a/b/increment', '/api/c%6Funters/a/b/increment', '/api/Counters/a/b/increment';
is(way("$_?do=way"), "mux\n", $_) for '/api/counters/', '/api/counters/a/%62/increment';



=== TEST 10: meter_keepalive 0 has no mux
--- http_config eval: $::edge->http . 'meter_keepalive 0;'
--- config eval: $::api
--- client
is(way(), "connection\n", 'on its own') for 1 .. 5;
is(metric('edgemeter_edge_muxes_opened_total'), 0, 'none opened');
unlike(fake_log(), qr/mux/, 'none tried');



=== TEST 11: a meterd that knows no muxes is asked once
--- http_config
    meter_aggregator unix:$TEST_NGINX_METER_OLD;
    meter_outbox $TEST_NGINX_METER_OUTBOX 1m;
    meter_event request;
    meter_tenant acme;
--- config eval: $::api
--- client
is(way(), "connection\n", 'served');
wait_log('^mux \d+ refused');
my $until = Time::HiRes::time() + 1.3;
my @ways;
while (Time::HiRes::time() < $until) { push @ways, way(); Time::HiRes::sleep(0.02) }
is((grep { $_ ne "connection\n" } @ways), 0, 'served on connections');
is(() = fake_log() =~ /refused/g, 1, 'asked once');
is(metric('edgemeter_edge_muxes_opened_total'), 0, 'none opened');
unlike(errors(), qr/./, 'nothing in the error log');



=== TEST 12: a meterd that is away is no matter of the mux
--- config
    location /api/counters/ { meter_api; meter_aggregator unix:$TEST_NGINX_METER_AWAY; }
    location /api/counters/dead/ { meter_api; meter_aggregator unix:$TEST_NGINX_METER_DEAD; }
--- alerts: No such file
--- client
is(ask('POST', $_)->{code}, 503, $_) for ('?a=1', '/api/counters/dead/b/increment') x 2;
is(() = errors() =~ /connect\(\)/g, 4, 'each request tells once');



=== TEST 13: subrequests are requests
--- config eval
"$::api\n    location /both { ssi on; ssi_types text/plain; default_type text/html; }"
--- user_files
>>> both
<!--#include virtual="/api/counters/a/b/get?do=hold&gate=t13&n=1&tag=t13" --><!--#include virtual="/api/counters/a/b/get?do=hold&gate=t13&n=2&tag=t13" -->
--- client
open_mux();
my $client = begin('GET', '/both');
wait_log('^arrived t13', 2);
open_gate('t13', 'reverse');
like($client->receive->{body}, qr/^held 1 \d+\nheld 2 \d+\n/, 'both, in order');



=== TEST 14: a client that goes away takes its request back
--- config eval: $::api
--- client
open_mux();
my ($held) = hold('t14', 1);
wait_log('^arrived t14');
my $gone = begin('POST', '?do=late&tag=gone');
my $number = wait_log('^arrived gone (\d+)');
$gone->close;
is(wait_log('^cancelled gone (\d+)'), $number, 'with its number');
is(way(), "mux\n", 'the late answer disturbs nobody');
$gone = begin('GET', '?do=never&tag=reset');
$number = wait_log('^arrived reset (\d+)');
$gone->reset;
is(wait_log('^cancelled reset (\d+)'), $number, 'a reset does, too');
open_gate('t14');
all_get_their_own('another one is answered', $held);
is(() = fake_log() =~ /^mux \d+ opened/mg, 1, 'on the same mux');
unlike(errors(), qr/\[(alert|crit)\]/, 'nothing bad in the log');



=== TEST 15: silence is unknown for a write, and taken back
--- config
    location /api/counters/ { meter_api; }
    location /api/counters/quick/ { meter_api; meter_read_timeout 100ms; }
--- client
open_mux();
my ($held) = hold('t15', 1);
wait_log('^arrived t15');
for my $method (qw(POST PUT GET)) {
    my $answer = ask($method, "/api/counters/quick/b/c?do=late&tag=$method");
    is($answer->{code}, 504, "$method: 504");
    $method eq 'GET' ? unlike($answer->{body}, qr/unknown/, 'not unknown') : is($answer->{body}, $::unknown, 'unknown');
    my $number = wait_log("^arrived $method (\\d+)");
    is(wait_log("^cancelled $method (\\d+)"), $number, 'taken back');
}
is(way(), "mux\n", 'the mux stays');
open_gate('t15');
all_get_their_own('another one is answered', $held);
is(() = fake_log() =~ /^mux \d+ opened/mg, 1, 'on the same mux');



=== TEST 16: answers to nobody and frames for later are ignored
--- config eval: $::api
--- client
open_mux();
my ($held) = hold('t16', 1);
wait_log('^arrived t16');
is(way('?do=stranger'), "mux\n", 'numbers that nobody has');
is(way('?do=frame&type=99&flags=0'), "mux\n", 'an unknown frame');
open_gate('t16');
all_get_their_own('another one is answered', $held);
is(() = fake_log() =~ /^mux \d+ opened/mg, 1, 'on the same mux');
