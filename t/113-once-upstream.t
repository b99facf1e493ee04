# One event a request: upstreams that fail and clients that leave.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/Capture.pm' }

use Test::Nginx::Socket;

repeat_each(1);
plan tests => 99;

our $edge = Edgemeter::Capture->start;

no_long_string();
run_tests();

__DATA__

=== TEST 1: an upstream answers
--- config
    location /m { meter on; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
--- request
GET /m
--- response_body
ok
--- events
@path=/m @status=200



=== TEST 2: an upstream answers with an error
--- config
    location /m { meter on; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/status/500; }
--- request
GET /m
--- error_code: 500
--- events
@path=/m @status=500



=== TEST 3: nobody listens
--- config
    location /m { meter on; proxy_pass http://unix:$TEST_NGINX_METER_DEAD:/; }
--- request
GET /m
--- error_code: 502
--- events
@path=/m @status=502



=== TEST 4: the upstream closes without an answer
--- config
    location /m { meter on; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/reset; }
--- request
GET /m
--- error_code: 502
--- events
@path=/m @status=502



=== TEST 5: the upstream is silent
--- config
    location /m { meter on; proxy_read_timeout 100ms; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/silent; }
--- request
GET /m
--- error_code: 504
--- events
@path=/m @status=504



=== TEST 6: one of two upstreams fails
--- http_config eval
$::edge->http . '
    upstream two {
        server unix:$TEST_NGINX_METER_DEAD;
        server unix:$TEST_NGINX_METER_BACKEND backup;
    }
'
--- config
    location /m { meter on; proxy_pass http://two/ok; }
--- request
GET /m
--- response_body
ok
--- events
@path=/m @status=200



=== TEST 7: the upstream closes inside its body
--- config
    location /m { meter on; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/cut; }
--- client
my $answer = get('/m');
is($answer->{code}, 200, 'status');
is(length $answer->{body}, 100, 'a part of the body');
--- events
@path=/m @status=200



=== TEST 8: the upstream closes inside a chunk
--- config
    location /m { meter on; proxy_http_version 1.1; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/cut-chunk; }
--- client
is(get('/m')->{code}, 200, 'status');
--- events
@path=/m @status=200



=== TEST 9: a chunked body
--- config
    location /m { meter on; proxy_http_version 1.1; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/chunked; }
--- client
is(get('/m')->{body}, 'onetwothree', 'body');
--- events
@path=/m @status=200



=== TEST 10: a long body, unbuffered
--- config
    location /m { meter on; proxy_buffering off; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/stream/40; }
--- client
my $answer = get('/m');
is(length $answer->{body}, 40 * 65536, 'all of it');
--- events
@path=/m @status=200



=== TEST 11: a long body through temporary files
--- config
    location /m { meter on; proxy_buffer_size 4k; proxy_buffers 4 4k; proxy_busy_buffers_size 8k; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/stream/40; }
--- client
my $client = client(buffer => 65536);
$client->send("GET /m HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
is(length $client->receive->{body}, 40 * 65536, 'all of it');
--- events
@path=/m @status=200



=== TEST 12: recorded when the header leaves, not when the body ends
--- config
    location /m { meter on; proxy_buffering off; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/gate/t12; }
--- client
my $client = client();
$client->send("GET /m HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
is($client->take(15), 'HTTP/1.1 200 OK', 'the header is here');
wait_until('event', sub { @{ arrived() } });
$::edge->backend->open_gate('t12');
ok($client->is_closed, 'the rest');
--- events
@path=/m @status=200



=== TEST 13: the client leaves before there is a header
--- config
    location /m { meter on; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/hold/t13; }
--- client
my $client = client();
$client->send("GET /m HTTP/1.1\r\nHost: localhost\r\n\r\n");
wait_until('call', sub { grep { /t13/ } $::edge->backend->calls });
$client->close;
--- events
@path=/m @status=499



=== TEST 14: the client leaves by a reset
--- config
    location /m { meter on; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/hold/t14; }
--- client
my $client = client();
$client->send("GET /m HTTP/1.1\r\nHost: localhost\r\n\r\n");
wait_until('call', sub { grep { /t14/ } $::edge->backend->calls });
$client->reset;
--- events
@path=/m @status=499



=== TEST 15: the client leaves behind the header: its status stays
--- config
    location /m { meter on; proxy_buffering off; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/gate/t15; }
--- client
my $client = client();
$client->send("GET /m HTTP/1.1\r\nHost: localhost\r\n\r\n");
is($client->take(15), 'HTTP/1.1 200 OK', 'the header is here');
$client->reset;
--- events
@path=/m @status=200



=== TEST 16: the client leaves, the upstream's answer does not matter
--- config
    location /m { meter on; proxy_ignore_client_abort on; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/hold/t16; }
--- client
my $client = client();
$client->send("GET /m HTTP/1.1\r\nHost: localhost\r\n\r\n");
wait_until('call', sub { grep { /t16/ } $::edge->backend->calls });
$client->close;
$::edge->backend->open_gate('t16');
--- events
@path=/m @status~^(200|499)$



=== TEST 17: the client leaves inside its body
--- config
    location /m { meter on; meter_if 1; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
--- client
my $client = client();
$client->send("POST /m HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc");
$client->reset;
--- events
@path=/m @status~^(400|499)$



=== TEST 18: the client is too slow with its body: by default not billed
--- config
    location /m { meter on; client_body_timeout 100ms; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
--- client
my $client = client();
$client->send("POST /m HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc");
ok($client->is_closed, 'closed');
--- events



=== TEST 19: 444, closed without an answer
--- config
    location /m { meter on; return 444; }
--- client
my $client = client();
$client->send("GET /m HTTP/1.1\r\nHost: localhost\r\n\r\n");
ok($client->is_closed, 'closed');
is($client->take(100), '', 'without a byte');
--- events
@path=/m @status=444



=== TEST 20: an upgraded connection
--- config
    location /m { meter on; proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/upgrade; }
--- client
my $client = client();
$client->send("GET /m HTTP/1.1\r\nHost: localhost\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\n");
is($client->receive->{code}, 101, 'switched');
wait_until('event', sub { @{ arrived() } });
$client->send('hello');
is($client->take(5), 'hello', 'bytes go through');
$client->close;
--- events
@path=/m @status=101



=== TEST 21: a cached answer
--- http_config eval
$::edge->http . '
    proxy_cache_path $TEST_NGINX_METER_OUTBOX-cache keys_zone=c:1m;
'
--- config
    location /m { meter on; proxy_cache c; proxy_cache_valid any 1m; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
--- request eval
["GET /m", "GET /m", "GET /m"]
--- error_code eval
[200, 200, 200]
--- events
@path=/m @status=200
@path=/m @status=200
@path=/m @status=200



=== TEST 22: a limited request
--- http_config eval
$::edge->http . '
    limit_req_zone $uri zone=l:64k rate=1r/m;
'
--- config
    location /m { meter on; limit_req zone=l; root html; try_files /a.txt =404; }
--- user_files
>>> a.txt
text
--- request eval
["GET /m", "GET /m"]
--- error_code eval
[200, 503]
--- events
@path=/m @status=200
@path=/m @status=503



=== TEST 23: the client leaves inside an unbuffered upload
--- config
    location /m { meter on; proxy_http_version 1.1; proxy_request_buffering off; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/hold/t23; }
--- client
my $client = client();
$client->send("POST /m HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc");
wait_until('call', sub { grep { /t23/ } $::edge->backend->calls });
$client->close;
--- events
@path=/m @status=499



=== TEST 24: by a reset, with a chunked body and late values
--- config
    location /m { meter on; meter_quantity $body_bytes_sent; proxy_http_version 1.1; proxy_request_buffering off; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/hold/t24; }
--- client
my $client = client();
$client->send("POST /m HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
wait_until('call', sub { grep { /t24/ } $::edge->backend->calls });
$client->reset;
--- events
@path=/m @status=499 quantity=0



=== TEST 25: meter_if decides about it, by its status
--- http_config eval
$::edge->http . 'map $status $billed { 499 0; default 1; }'
--- config
    location /m { meter on; meter_if $billed; proxy_http_version 1.1; proxy_request_buffering off; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/hold/t25; }
--- client
my $client = client();
$client->send("POST /m HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc");
wait_until('call', sub { grep { /t25/ } $::edge->backend->calls });
$client->close;
--- events



=== TEST 26: no upstream has seen it: an upload that is buffered, or is wrong
--- config
    location /m { meter on; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok/t26; }
    location /u { meter on; proxy_http_version 1.1; proxy_request_buffering off; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok/t26; }
--- client
my $client = client();
$client->send("POST /m HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc");
$client->close;
$client = client();
$client->send("POST /u HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n");
is($client->receive->{code}, 400, 'refused');
is(scalar(grep { /t26/ } $::edge->backend->calls), 0, 'no call');
--- events
