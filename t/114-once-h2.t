# One event a request: HTTP/2, where a connection carries many at a time.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/Capture.pm' }

use Test::Nginx::Socket;

repeat_each(1);
plan tests => 58;

our $edge = Edgemeter::Capture->start;

our $http = $edge->http . <<'_EOC_';
    server {
        listen unix:$TEST_NGINX_METER_H2 http2;
        location /m/ { meter on; return 200 "m\n"; }
        location /file/ { meter on; alias html/; }
        location /proxied/ { meter on; rewrite ^ /ok break; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:; }
        location /hold/ { meter on; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/hold/; }
        location /up/ { meter on; proxy_http_version 1.1; proxy_request_buffering off; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/hold/; }
        location /gate/ { meter on; proxy_buffering off; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/gate/; }
        location /gone/ { meter on; root html; error_page 404 = @gone; }
        location @gone { meter on; meter_event gone; return 200 "gone\n"; }
        location ~ ^/t/(?<who>\w+) { meter on; meter_tenant $1; meter_customer $who; root html; error_page 404 = /other/globex; }
        location ~ ^/other/(?<who>\w+) { return 200 "other\n"; }
        location /free/ { return 200 "free\n"; }
        location /late/ { meter on; meter_quantity $body_bytes_sent; return 200 "late\n"; }
    }
_EOC_

sub h2 { return Edgemeter::H2Client->new($ENV{TEST_NGINX_METER_H2}) }

# The codes of GET requests that are sent all at once.
sub codes {
    my ($client, @paths) = @_;
    my @streams = map { $client->request('GET', $_) } @paths;
    my $answers = $client->finish(@streams);
    return join ' ', map { $answers->{$_}{code} } @streams;
}

no_long_string();
run_tests();

__DATA__

=== TEST 1: one stream
--- http_config eval: $::http
--- client
my $client = h2();
my $stream = $client->request('GET', '/m/1');
is($client->finish($stream)->{$stream}{body}, "m\n", 'body');
$client->close;
--- events
@path=/m/1 @status=200



=== TEST 2: several streams, one after the other
--- http_config eval: $::http
--- client
my $client = h2();
is(codes($client, $_), 200, $_) for '/m/1', '/free/2', '/m/3';
$client->close;
--- events
@path=/m/1 @status=200
@path=/m/3 @status=200



=== TEST 3: many streams at a time
--- http_config eval: $::http
--- client
my $client = h2();
is(codes($client, map { ("/m/$_", "/free/$_", "/proxied/$_") } 1 .. 20),
    join(' ', (200) x 60), 'codes');
$client->close;
flush_ring();
is(scalar @{ arrived() }, 40, 'events');
my %paths;
$paths{ $_->{attributes}[0][1] }++ for @{ arrived() };
is(join(' ', map { $paths{"/m/$_"} } 1 .. 20), join(' ', (1) x 20), 'each once');
is($paths{'/ok'}, 20, 'each of the upstream once');



=== TEST 4: HEAD, a range and no such file
--- http_config eval: $::http
--- user_files
>>> a.txt
0123456789
--- client
my $client = h2();
my @streams = ($client->request('HEAD', '/file/a.txt'),
    $client->request('GET', '/file/a.txt', headers => { range => 'bytes=2-4' }),
    $client->request('GET', '/file/a.txt', headers => { range => 'bytes=50-' }),
    $client->request('GET', '/file/none'));
my $answers = $client->finish(@streams);
is(join(' ', map { $answers->{$_}{code} } @streams), '200 206 416 404', 'codes');
is($answers->{ $streams[1] }{body}, '234', 'range');
$client->close;
--- unordered
--- events
@path=/file/a.txt @status=200
@path=/file/a.txt @status=206
@path=/file/a.txt @status=416
@path=/file/none @status=404



=== TEST 5: an error page
--- http_config eval: $::http
--- client
my $client = h2();
is(codes($client, '/gone/1', '/gone/2'), '200 200', 'codes');
$client->close;
--- unordered
--- events
type=request @path=/gone/1 @status=200
type=request @path=/gone/2 @status=200



=== TEST 6: one stream is cancelled, the others go on
--- http_config eval: $::http
--- client
my $client = h2();
my $stream = $client->request('GET', '/hold/h6');
$client->flush;
wait_until('call', sub { grep { m{/hold/h6} } $::edge->backend->calls });
$client->cancel($stream);
is(codes($client, '/m/1', '/m/2'), '200 200', 'codes');
$client->close;
--- unordered
--- events
@path=/hold/h6 @status=499
@path=/m/1 @status=200
@path=/m/2 @status=200



=== TEST 7: a stream is cancelled inside its body
--- http_config eval: $::http
--- client
my $client = h2();
my $stream = $client->request('GET', '/gate/h7');
$client->flush;
$client->take_frame until $client->{answers}{$stream}{code};
$client->cancel($stream);
is(codes($client, '/m/1'), '200', 'code');
$client->close;
--- unordered
--- events
@path=/gate/h7 @status=200
@path=/m/1 @status=200



=== TEST 8: the connection ends under its streams
--- http_config eval: $::http
--- client
my $client = h2();
$client->request('GET', "/hold/h8-$_") for 1 .. 3;
$client->flush;
wait_until('calls', sub { 3 == grep { m{/hold/h8} } $::edge->backend->calls });
$client->close;
--- unordered
--- events
@path=/hold/h8-1 @status=499
@path=/hold/h8-2 @status=499
@path=/hold/h8-3 @status=499



=== TEST 9: bodies
--- http_config eval: $::http
--- client
my $client = h2();
my @streams = map { $client->request('POST', $_, body => 'x' x 20000) }
    '/m/1', '/proxied/1';
my $answers = $client->finish(@streams);
is(join(' ', map { $answers->{$_}{code} } @streams), '200 200', 'codes');
$client->close;
--- unordered
--- events
@path=/m/1 @status=200
@path=/ok @status=200



=== TEST 10: late values
--- http_config eval: $::http
--- client
my $client = h2();
is(codes($client, '/late/1', '/late/2'), '200 200', 'codes');
$client->close;
--- unordered
--- events
@path=/late/1 quantity=5
@path=/late/2 quantity=5



=== TEST 11: redirects of streams side by side: each has its own tenant
--- http_config eval: $::http
--- client
my $client = h2();
is(codes($client, map { "/t/$_" } qw(acme globex initech)), '200 200 200', 'codes');
$client->close;
--- unordered
--- events
tenant=acme customer=acme @path=/t/acme
tenant=globex customer=globex @path=/t/globex
tenant=initech customer=initech @path=/t/initech



=== TEST 12: unbuffered uploads: a stream is cancelled, then the connection ends
--- http_config eval: $::http
--- client
my $client = h2();
my ($stream) = map { $client->request('POST', "/up/h12-$_", body => 'abc', is_open => 1) } 1 .. 3;
$client->flush;
wait_until('calls', sub { 3 == grep { m{/hold/h12} } $::edge->backend->calls });
$client->cancel($stream);
is(codes($client, '/m/1'), '200', 'the others go on');
$client->close;
--- unordered
--- events
@path=/m/1 @status=200
@path=/up/h12-1 @status=499
@path=/up/h12-2 @status=499
@path=/up/h12-3 @status=499



=== TEST 13: a buffered upload is cancelled: over HTTP/2 nginx says 499 itself
--- http_config eval: $::http
--- client
my $client = h2();
my $stream = $client->request('POST', '/hold/h13', body => 'abc', is_open => 1);
is(codes($client, '/m/1'), '200', 'another stream');
$client->cancel($stream);
is(codes($client, '/m/2'), '200', 'and one more');
is(scalar(grep { /h13/ } $::edge->backend->calls), 0, 'no call');
$client->close;
--- unordered
--- events
@path=/hold/h13 @status=499
@path=/m/1 @status=200
@path=/m/2 @status=200
