# What arrives at the aggregator is what the client sent.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/FakeAggregator.pm' }

use Test::Nginx::Socket;
use Digest::MD5 ();

repeat_each(2);
plan tests => repeat_each() * 127;

our $fake = Edgemeter::FakeAggregator->start;

our $http = <<'_EOC_';
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
_EOC_

# A body of this size and the answer that proves it came through.
sub body { my $n = shift; return substr 'abcdefghijklmno' x ($n / 15 + 1), 0, $n }

sub sum { my $body = body(shift); return length($body) . ' ' . Digest::MD5::md5_hex($body) . "\n" }

sub ce { return join '', map { "ce-a$_: v\n" } 1 .. shift }

# The same body, chunked.
sub chunked {
    my ($body, $size) = @_;
    my $out = '';
    while (length $body) {
        my $piece = substr $body, 0, $size, '';
        $out .= sprintf "%x\r\n%s\r\n", length $piece, $piece;
    }
    return "${out}0\r\n\r\n";
}

no_long_string();
run_tests();

__DATA__

=== TEST 1: each method is named
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
["GET /v1/m", "POST /v1/m", "PUT /v1/m", "PATCH /v1/m", "DELETE /v1/m",
 "OPTIONS /v1/m", "SEARCH /v1/m"]
--- error_code eval
[200, 200, 200, 200, 200, 200, 200]
--- response_body_like eval
["^.\"method\":\"GET\",", "^.\"method\":\"POST\",", "^.\"method\":\"PUT\",",
 "^.\"method\":\"PATCH\",", "^.\"method\":\"DELETE\",",
 "^.\"method\":\"OTHER\",", "^.\"method\":\"OTHER\","]



=== TEST 2: HEAD is forwarded and gets no body
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request
HEAD /v1/events/1?do=answer&body=hello
--- response_headers
Content-Length: 5
Content-Type: application/json
--- response_body



=== TEST 3: path and arguments stay as the client wrote them
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request
GET /v1/events/a%2Fb%20c%c3%a9?x=%26&y=a+b&&z
--- response_body
{"method":"GET","path":"/v1/events/a%2Fb%20c%c3%a9","args":"x=%26&y=a+b&&z","client_address":"127.0.0.1"}



=== TEST 4: no arguments and empty arguments
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
["GET /v1/usage", "GET /v1/usage?"]
--- error_code eval
[200, 200]
--- response_body_like eval
["^.\"method\":\"GET\",\"path\":\"/v1/usage\",\"client", "\"path\":\"/v1/usage\","]



=== TEST 5: dots and double slashes in a path are not resolved
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request
GET /v1/a/../b//c/./d
--- response_body
{"method":"GET","path":"/v1/a/../b//c/./d","client_address":"127.0.0.1"}



=== TEST 6: a request line with a whole URL
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request
GET http://localhost/v1/events/7?a=b
--- response_body
{"method":"GET","path":"/v1/events/7","args":"a=b","client_address":"127.0.0.1"}



=== TEST 7: the headers that mean something are forwarded
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request
POST /v1/events
{}
--- more_headers
Authorization: Bearer em_1_secret
Content-Type: application/json; charset=utf-8
Content-Encoding: gzip
Accept: application/json
Idempotency-Key: k-1
--- response_body
{"method":"POST","path":"/v1/events","authorization":"Bearer em_1_secret","content_type":"application/json; charset=utf-8","content_encoding":"gzip","accept":"application/json","idempotency_key":"k-1","client_address":"127.0.0.1","body":"{}"}



=== TEST 8: CloudEvents headers are forwarded in lower case, others are not
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request
POST /v1/events
{}
--- more_headers
CE-Id: 17
Ce-Source: /a b
X-Tenant: other
Cookie: c=1
--- response_body
{"method":"POST","path":"/v1/events","client_address":"127.0.0.1","ce-id":"17","ce-source":"/a b","body":"{}"}



=== TEST 9: 64 CloudEvents headers pass, 65 do not
--- http_config
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
    large_client_header_buffers 4 64k;
--- config
    location /v1/ { meter_api; }
--- request eval
["POST /v1/events?do=sum\na", "POST /v1/events?do=sum\na"]
--- more_headers eval
[main::ce(64), main::ce(65)]
--- error_code eval
[200, 400]
--- response_body eval
[main::sum(1), "{\"error\":\"there are more than 64 ce- headers\"}\n"]



=== TEST 10: a part replaces the location's prefix
--- http_config eval: $::http
--- config
    location /ingest { meter_api events; }
    location /stock/ { meter_api counters; }
    location = /search { meter_api search; }
--- request eval
["GET /ingest", "GET /ingest/a%2Fb?x=1", "GET /stock/", "GET /stock/items?b=2", "GET /search"]
--- error_code eval
[200, 200, 200, 200, 200]
--- response_body_like eval
["\"path\":\"/v1/events\",", "\"path\":\"/v1/events/a%2Fb\",\"args\":\"x=1\"",
 "\"path\":\"/v1/counters/?\",", "\"path\":\"/v1/counters/items\",\"args\":\"b=2\"",
 "\"path\":\"/v1/search\","]



=== TEST 11: a part's location whose name the client encoded
--- http_config eval: $::http
--- config
    location /ingest { meter_api events; }
--- request
GET /%69ngest/a%20b
--- response_body
{"method":"GET","path":"/v1/events/a%20b","client_address":"127.0.0.1"}



=== TEST 12: a regular expression and a rewrite
--- http_config eval: $::http
--- config
    location ~ ^/v[1-9]/ { meter_api; }
    location /old/ { rewrite ^/old/(.*)$ /v1/$1 last; }
--- request eval
["GET /v2/x%20y", "GET /old/x%20y"]
--- error_code eval
[200, 200]
--- response_body_like eval
["\"path\":\"/v2/x%20y\"", "\"path\":\"/v1/x%20y\""]



=== TEST 13: an exact location that is routed by the whole path
--- http_config eval: $::http
--- config
    location = /healthz { meter_api; }
--- request
GET /healthz
--- response_body
{"method":"GET","path":"/healthz","client_address":"127.0.0.1"}



=== TEST 14: if and limit_except inside the location
--- http_config eval: $::http
--- config
    location /v1/ {
        meter_api;
        if ($arg_flag) { set $x 1; }
        limit_except GET { deny 10.0.0.0/8; }
    }
--- request eval
["GET /v1/a?flag=1", "POST /v1/a"]
--- error_code eval
[200, 200]
--- response_body_like eval
["\"path\":\"/v1/a\",\"args\":\"flag=1\"", "\"method\":\"POST\",\"path\":\"/v1/a\""]



=== TEST 15: a body of one byte
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
"POST /v1/events?do=sum\n" . main::body(1)
--- response_body eval
main::sum(1)



=== TEST 16: a body as large as the buffer and one byte more
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; client_body_buffer_size 8k; }
--- request eval
["POST /v1/events?do=sum\n" . main::body(8192), "POST /v1/events?do=sum\n" . main::body(8193)]
--- error_code eval
[200, 200]
--- response_body eval
[main::sum(8192), main::sum(8193)]



=== TEST 17: a body in a temporary file
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; client_body_buffer_size 1k; }
--- request eval
"POST /v1/events?do=sum\n" . main::body(300_000)
--- response_body eval
main::sum(300_000)
--- error_log
a client request body is buffered to a temporary file



=== TEST 18: a body that is in a file only
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; client_body_in_file_only clean; }
--- request eval
"POST /v1/events?do=sum\n" . main::body(5000)
--- response_body eval
main::sum(5000)



=== TEST 19: a body of 8 MB, in a file and in memory
--- http_config eval: $::http
--- config
    location /v1/file/ { meter_api; }
    location /v1/memory/ { meter_api; client_body_buffer_size 9m; }
--- request eval
["POST /v1/file/x?do=sum\n" . main::body(8 << 20), "POST /v1/memory/x?do=sum\n" . main::body(8 << 20)]
--- error_code eval
[200, 200]
--- response_body eval
[main::sum(8 << 20), main::sum(8 << 20)]
--- timeout: 10
--- log_level: warn



=== TEST 20: the largest body, 16 MB
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
"POST /v1/x?do=sum\n" . main::body(16 << 20)
--- response_body eval
main::sum(16 << 20)
--- timeout: 10
--- log_level: warn



=== TEST 21: a chunked body has its real length
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
"POST /v1/events?do=sum\n" . main::chunked(main::body(3000), 700)
--- more_headers
Transfer-Encoding: chunked
--- response_body eval
main::sum(3000)



=== TEST 22: a chunked body in a temporary file
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; client_body_buffer_size 1k; }
--- request eval
"POST /v1/events?do=sum\n" . main::chunked(main::body(100_000), 999)
--- more_headers
Transfer-Encoding: chunked
--- response_body eval
main::sum(100_000)



=== TEST 23: an empty chunked body
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
"POST /v1/events?do=sum\n0\r\n\r\n"
--- more_headers
Transfer-Encoding: chunked
--- response_body
0 d41d8cd98f00b204e9800998ecf8427e



=== TEST 24: a request that comes byte by byte
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
[[split //, "POST /v1/events?do=sum\n" . main::body(40)]]
--- response_body eval
main::sum(40)



=== TEST 25: a slow body
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
[["POST /v1/events?do=sum\n", "abcdefghij", {value => "klmno", delay_before => 0.2},
  {value => "abcdefghijklmno", delay_before => 0.2}]]
--- more_headers
Content-Length: 30
--- response_body eval
main::sum(30)



=== TEST 26: status, type and headers of the answer reach the client
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request
GET /v1/x?do=answer&status=409&type=application/problem%2Bjson&body=%7B%7D&headers=x-reason:twice|etag:%22e%22
--- error_code: 409
--- response_headers
Content-Type: application/problem+json
Content-Length: 2
X-Reason: twice
Etag: "e"
Cache-Control: no-store
X-Content-Type-Options: nosniff
! Retry-After
! WWW-Authenticate
--- response_body chomp
{}



=== TEST 27: Retry-After, Allow and WWW-Authenticate come from the answer
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
["GET /v1/x?do=answer&status=429&retry=7&body=q", "GET /v1/x?do=answer&status=405&allow=GET,%20POST&body=q",
 "GET /v1/x?do=answer&status=401&body=q"]
--- error_code eval
[429, 405, 401]
--- response_headers eval
["Retry-After: 7", "Allow: GET, POST", "WWW-Authenticate: Bearer"]
--- response_body eval
["q", "q", "q"]



=== TEST 28: headers that would change the framing are not passed on
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request
GET /v1/x?do=answer&body=hello&headers=content-length:1|transfer-encoding:chunked|connection:upgrade|x-fine:1
--- response_headers
Content-Length: 5
! Transfer-Encoding
Connection: close
X-Fine: 1
--- response_body chomp
hello



=== TEST 29: an answer without a body
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
["GET /v1/x?do=answer&status=204", "GET /v1/x?do=answer&status=200"]
--- error_code eval
[204, 200]
--- response_body eval
["", ""]



=== TEST 30: an answer of 20 MB is streamed
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request
GET /v1/x?do=big&size=20971520
--- response_headers
Content-Length: 20971520
--- response_body eval
'x' x 20971520
--- timeout: 10
--- log_level: warn



=== TEST 31: an answer that comes byte by byte
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request
GET /v1/x?do=dribble
--- response_body
drop by drop



=== TEST 32: an answer larger than the buffer
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; meter_buffer_size 1k; }
--- request
GET /v1/x?do=big&size=100000
--- response_body eval
'x' x 100000
--- no_error_log
[error]



=== TEST 33: gzip may encode the answer
--- http_config
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
    gzip on;
    gzip_types text/plain;
--- config
    location /v1/ { meter_api; }
--- request
GET /v1/x?do=big&size=100000
--- more_headers
Accept-Encoding: gzip
--- response_headers
Content-Encoding: gzip
--- response_body_like: ^\x1f\x8b



=== TEST 34: the aggregator sees the address that the realip module found
--- http_config
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
    set_real_ip_from 127.0.0.1;
--- config
    location /v1/ { meter_api; }
--- request
GET /v1/x
--- more_headers
X-Real-IP: 192.0.2.7
--- response_body
{"method":"GET","path":"/v1/x","client_address":"192.0.2.7"}
