# One event a request: plain requests in all their shapes.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/Capture.pm' }

use Test::Nginx::Socket;

repeat_each(1);
plan tests => 105;

our $edge = Edgemeter::Capture->start;

our $static = <<'_EOC_';
    location / { root html; meter on; }
_EOC_

no_long_string();
run_tests();

__DATA__

=== TEST 1: a static file
--- config eval: $::static
--- user_files
>>> a.txt
0123456789
--- request
GET /a.txt
--- response_body
0123456789
--- events
type=request tenant=acme id=minted ts=now count=1 customer resource quantity flags=captured @path=/a.txt @status=200



=== TEST 2: return
--- config
    location = /r { meter on; return 200 "r\n"; }
--- request
GET /r?x=1
--- response_body
r
--- events
type=request tenant=acme @path=/r @status=200



=== TEST 3: return without a body
--- config
    location = /r { meter on; return 204; }
--- request
GET /r
--- error_code: 204
--- events
@path=/r @status=204



=== TEST 4: empty_gif
--- config
    location = /e { meter on; empty_gif; }
--- request
GET /e
--- response_body_like chomp
^GIF89a
--- events
@path=/e @status=200



=== TEST 5: HEAD
--- config eval: $::static
--- user_files
>>> a.txt
0123456789
--- request
HEAD /a.txt
--- response_body:
--- events
@path=/a.txt @status=200



=== TEST 6: not modified
--- config
    location / { root html; meter on; if_modified_since before; }
--- user_files
>>> a.txt
0123456789
--- request
GET /a.txt
--- more_headers
If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT
--- error_code: 304
--- events
@path=/a.txt @status=304



=== TEST 7: a range
--- config eval: $::static
--- user_files
>>> a.txt
0123456789
--- request
GET /a.txt
--- more_headers
Range: bytes=2-4
--- error_code: 206
--- response_body chomp
234
--- events
@path=/a.txt @status=206



=== TEST 8: several ranges
--- config eval: $::static
--- user_files
>>> a.txt
0123456789
--- request
GET /a.txt
--- more_headers
Range: bytes=0-1,4-5
--- error_code: 206
--- response_body_like chomp
multipart|Content-Range
--- events
@path=/a.txt @status=206



=== TEST 9: a range that is not there runs the header filters twice
--- config eval: $::static
--- user_files
>>> a.txt
0123456789
--- request
GET /a.txt
--- more_headers
Range: bytes=500-
--- error_code: 416
--- events
@path=/a.txt @status=416



=== TEST 10: no such file
--- config eval: $::static
--- request
GET /none
--- error_code: 404
--- events
@path=/none @status=404



=== TEST 11: a directory without its slash
--- config eval: $::static
--- user_files
>>> a.txt
x
--- client
mkdir server_root() . '/html/sub';
my $answer = get('/sub');
is($answer->{code}, 301, 'redirected');
--- events
@path=/sub @status=301



=== TEST 12: a method that static files do not take
--- config eval: $::static
--- user_files
>>> a.txt
x
--- request
DELETE /a.txt
--- error_code: 405
--- events
@path=/a.txt @status=405



=== TEST 13: HTTP/1.0
--- config eval: $::static
--- user_files
>>> a.txt
0123456789
--- raw_request eval
"GET /a.txt HTTP/1.0\r\n\r\n"
--- response_body
0123456789
--- events
@path=/a.txt @status=200



=== TEST 14: HTTP/0.9
--- config
    location = /r { meter on; return 200 "r\n"; }
--- client
my $client = client();
$client->send("GET /r\r\n");
$client->is_closed;
is($client->take(100), "r\n", 'a body and nothing else');
--- events
@path=/r @status=200



=== TEST 15: several requests on one connection
--- config
    location /r { meter on; return 200 "r\n"; }
--- client
my $client = client();
is($client->get("/r/$_")->{code}, 200, "request $_") for 1 .. 3;
is($client->get('/r/4', 'Connection: close')->{code}, 200, 'the last');
ok($client->is_closed, 'closed');
--- events
@path=/r/1 @status=200
@path=/r/2 @status=200
@path=/r/3 @status=200
@path=/r/4 @status=200



=== TEST 16: pipelined requests
--- config eval: $::static
--- user_files
>>> a.txt
0123456789
--- client
my $client = client();
$client->send("GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n"
    . "HEAD /a.txt?2 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    . "GET /none HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
is($client->receive->{code}, 200, 'first');
is($client->receive('HEAD')->{code}, 200, 'second');
is($client->receive->{code}, 404, 'third');
--- events
@path=/a.txt @status=200
@path=/a.txt @status=200
@path=/none @status=404



=== TEST 17: metered and not metered on one connection
--- config
    location /r { meter on; return 200 "r\n"; }
    location /free { return 200 "free\n"; }
--- client
my $client = client();
$client->get($_) for '/r/1', '/free', '/r/2', '/free';
$client->close;
--- events
@path=/r/1
@path=/r/2



=== TEST 18: meter off is the default
--- config
    location /free { return 200 "free\n"; }
--- request
GET /free
--- response_body
free
--- events



=== TEST 19: a body that nobody reads, and a client that lingers
--- config
    location = /r { meter on; return 200 "r\n"; }
--- request eval
"POST /r\n" . ('x' x 300000)
--- response_body
r
--- events
@path=/r @status=200



=== TEST 20: a chunked request body
--- config
    location = /r { meter on; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
--- client
my $client = client();
$client->send("POST /r HTTP/1.1\r\nHost: localhost\r\n"
    . "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    . "3\r\nabc\r\n");
$client->send("0\r\n\r\n");
is($client->receive->{body}, "ok\n", 'answered');
--- events
@path=/r @status=200



=== TEST 21: a client that waits for 100 Continue
--- config
    location = /r { meter on; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
--- client
my $client = client();
$client->send("POST /r HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n"
    . "Expect: 100-continue\r\nConnection: close\r\n\r\n");
is($client->receive->{code}, 100, 'continue');
$client->send('abc');
is($client->receive->{code}, 200, 'answered');
--- events
@path=/r @status=200



=== TEST 22: a compressed answer
--- config
    location / { root html; meter on; gzip on; gzip_min_length 1; gzip_types text/plain; }
--- user_files
>>> a.txt
0123456789012345678901234567890123456789
--- request
GET /a.txt
--- more_headers
Accept-Encoding: gzip
--- response_headers
Content-Encoding: gzip
--- events
@path=/a.txt @status=200



=== TEST 23: a body that is rewritten, chunked
--- config
    location / { root html; meter on; sub_filter_types text/plain; sub_filter 345 abc; }
--- user_files
>>> a.txt
0123456789
--- request
GET /a.txt
--- response_body
012abc6789
--- events
@path=/a.txt @status=200



=== TEST 24: a body above client_max_body_size
--- config
    location = /r { meter on; client_max_body_size 1k; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
--- request eval
"POST /r\n" . ('x' x 2000)
--- error_code: 413
--- events
@path=/r @status=413



=== TEST 25: an index, autoindex and a file by random choice
--- config
    location /list/ { alias html/; autoindex on; index none; meter on; }
    location / { root html; meter on; }
--- user_files
>>> index.html
home
--- request eval
["GET /", "GET /list/"]
--- error_code eval
[200, 200]
--- response_body_like eval
['home', 'index.html']
--- events
@path=/ @status=200
@path=/list/ @status=200



=== TEST 26: hundreds of requests
--- config
    location /r { meter on; return 204; }
--- client
my $client = client();
my @want = map { "/r/$_" } 1 .. 300;
$client->send(join '', map {
    "GET $_ HTTP/1.1\r\nHost: localhost\r\n\r\n" } @want);
$client->receive for @want;
$client->close;
flush_ring();
my @got = map { $_->{attributes}[0][1] } @{ arrived() };
is("@got", "@want", 'all, once, in order');
