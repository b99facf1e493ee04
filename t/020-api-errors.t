# Every error in an API location is JSON with the right status.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/FakeAggregator.pm' }

use Test::Nginx::Socket;

repeat_each(2);
plan tests => repeat_each() * 174;

our $fake = Edgemeter::FakeAggregator->start;

our $http = <<'_EOC_';
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
_EOC_

no_long_string();
run_tests();

__DATA__

=== TEST 1: no socket file is 503 with Retry-After
--- config
    location /v1/ { meter_api; meter_aggregator unix:$TEST_NGINX_METER_AWAY; }
--- request
POST /v1/events
{}
--- error_code: 503
--- response_headers
Retry-After: 1
Content-Type: application/json
Cache-Control: no-store
X-Content-Type-Options: nosniff
--- response_body
{"error":"the aggregator is away, try again"}
--- error_log
failed (2: No such file or directory) while connecting to upstream
[crit]
--- no_error_log
[alert]



=== TEST 2: a socket that nobody listens on is 503 with Retry-After
--- config
    location /v1/ { meter_api; meter_aggregator unix:$TEST_NGINX_METER_DEAD; }
--- request
GET /v1/events/1
--- error_code: 503
--- response_headers
Retry-After: 1
--- response_body
{"error":"the aggregator is away, try again"}
--- error_log
(111: Connection refused) while connecting to upstream
--- no_error_log
[alert]



=== TEST 3: a connection that is closed before the answer is 503
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
["GET /v1/x?do=close", "POST /v1/x?do=close\n{}"]
--- error_code eval
[503, 503]
--- response_headers eval
["Retry-After: 1", "Retry-After: 1"]
--- response_body eval
["{\"error\":\"the aggregator is away, try again\"}\n", "{\"error\":\"the aggregator is away, try again\"}\n"]



=== TEST 4: half an answer's head is 503
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request
POST /v1/x?do=half
{}
--- error_code: 503
--- response_body
{"error":"the aggregator is away, try again"}
--- error_log
upstream prematurely closed connection



=== TEST 5: half an answer's body leaves the client with a cut answer
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request
GET /v1/x?do=halfbody
--- response_headers
Content-Length: 1000
--- response_body eval
'y' x 500
--- error_log
upstream prematurely closed connection



=== TEST 6: garbage is 502
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request
GET /v1/x?do=garbage
--- error_code: 502
--- response_headers
Content-Type: application/json
Cache-Control: no-store
! Retry-After
--- response_body
{"error":"the aggregator sent no valid answer"}
--- error_log
meterd sent
[error]
--- no_error_log
[alert]



=== TEST 7: a wrong checksum, another frame, a malformed or huge head are 502
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
["GET /v1/x?do=crc", "GET /v1/x?do=type", "POST /v1/x?do=malformed\nx", "GET /v1/x?do=bighead"]
--- error_code eval
[502, 502, 502, 502]
--- response_body eval
my $body = "{\"error\":\"the aggregator sent no valid answer\"}\n";
[$body, $body, $body, $body]



=== TEST 8: a head larger than the buffer says so
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request
GET /v1/x?do=bighead
--- error_code: 502
--- response_body
{"error":"the aggregator sent no valid answer"}
--- error_log
meterd sent a head larger than "meter_buffer_size"



=== TEST 9: an impossible status, a header with a line feed are 502
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
["GET /v1/x?do=answer&status=99", "GET /v1/x?do=answer&status=600", "GET /v1/x?do=answer&headers=x-a:b%0d%0ax-c:d",
 "GET /v1/x?do=answer&headers=x%0a:b", "GET /v1/x?do=answer&type=a%0d%0ab:c"]
--- error_code eval
[502, 502, 502, 502, 502]
--- response_body eval
my $body = "{\"error\":\"the aggregator sent no valid answer\"}\n";
[$body, $body, $body, $body, $body]
--- raw_response_headers_unlike eval
["X-A:", "X-A:", "(?i)x-[ac]:", "X-A:", "b:c"]



=== TEST 10: silence is 504
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; meter_read_timeout 100ms; }
--- request
POST /v1/x?do=never&tag=t10
{}
--- error_code: 504
--- response_headers
Content-Type: application/json
! Retry-After
--- response_body
{"error":"the aggregator did not answer in time"}
--- error_log
upstream timed out (110: Connection timed out) while reading response header from upstream
--- no_error_log
[alert]



=== TEST 11: a late answer inside the timeout is an answer
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; meter_read_timeout 5s; }
--- request
POST /v1/x?do=delay&ms=300
{}
--- response_body
late



=== TEST 12: a body beyond client_max_body_size is 413
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; client_max_body_size 1k; }
--- request eval
"POST /v1/events\n" . ('x' x 1025)
--- error_code: 413
--- response_headers
Content-Type: application/json
--- response_body
{"error":"the request body is too large"}



=== TEST 13: a chunked body beyond client_max_body_size is 413
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; client_max_body_size 1k; }
--- request eval
"POST /v1/events\n" . sprintf("%x\r\n%s\r\n0\r\n\r\n", 1025, 'x' x 1025)
--- more_headers
Transfer-Encoding: chunked
--- error_code: 413
--- response_headers
Content-Type: application/json
--- response_body
{"error":"the request body is too large"}



=== TEST 14: a body beyond 16 MB is 413 whatever the operator allows
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; client_max_body_size 0; lingering_timeout 100ms; }
--- request
POST /v1/events
x
--- more_headers
Content-Length: 16777217
--- error_code: 413
--- response_body
{"error":"the request body is too large"}



=== TEST 15: a body that is encoded twice over is 400 before it is read
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; lingering_timeout 100ms; }
--- request
POST /v1/events
x
--- more_headers
Content-Encoding: gzip
Content-Encoding: gzip
Content-Length: 1000000
--- error_code: 400
--- response_headers
Content-Type: application/json
--- response_body
{"error":"the Content-Encoding header is sent twice"}



=== TEST 16: headers that may not be sent twice are 400
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
["GET /v1/x", "GET /v1/x", "GET /v1/x"]
--- more_headers eval
["Authorization: a\nAuthorization: b", "Content-Type: a\ncontent-type: a", "Idempotency-Key: a\nIdempotency-Key: b"]
--- error_code eval
[400, 400, 400]
--- response_body_like eval
["^.\"error\":\"the (request is malformed|Authorization header is sent twice)", "the Content-Type header is sent twice",
 "the Idempotency-Key header is sent twice"]



=== TEST 17: a body that does not come in time is 408
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; client_body_timeout 100ms; }
--- request
POST /v1/events
x
--- more_headers
Content-Length: 10
--- error_code: 408
--- response_headers
Content-Type: application/json
--- response_body
{"error":"the request did not arrive in time"}
--- no_error_log
[error]
[alert]



=== TEST 18: a malformed chunk is 400
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
"POST /v1/events\nzz\r\n"
--- more_headers
Transfer-Encoding: chunked
--- error_code: 400
--- response_headers
Content-Type: application/json
--- response_body
{"error":"the request is malformed or its headers are too large"}



=== TEST 19: errors before a location is chosen are JSON, too
--- http_config
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
    large_client_header_buffers 2 1k;
--- config
    location /v1/ { meter_api; }
--- request eval
["GET /v1/" . ('x' x 1100), "GET /v1/x", "TRACE /v1/x", "GET /v1/x", "GET /v1/%zz"]
--- more_headers eval
["", "X-Long: " . ('x' x 1100), "", "Content-Length: no", ""]
--- error_code eval
[414, 400, 405, 400, 400]
--- response_body eval
["{\"error\":\"the request URI is too long\"}\n", "{\"error\":\"the request is malformed or its headers are too large\"}\n",
 "{\"error\":\"the method is not allowed here\"}\n", "{\"error\":\"the request is malformed or its headers are too large\"}\n",
 "{\"error\":\"the request is malformed or its headers are too large\"}\n"]



=== TEST 20: a request line that outgrows its first buffer
--- http_config
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
    large_client_header_buffers 2 2k;
--- config
    location /v1/ { meter_api; }
--- request eval
[map { "GET /v1/" . ('x' x (2100 + 700 * $_)) } 0 .. 11]
--- error_code eval
[(414) x 12]
--- response_body eval
[("{\"error\":\"the request URI is too long\"}\n") x 12]



=== TEST 21: what other modules refuse is JSON
--- http_config eval: $::http
--- config
    location /v1/denied { meter_api; deny all; }
    location /v1/auth { meter_api; auth_basic x; auth_basic_user_file /dev/null; }
    location /v1/gone { meter_api; return 410; }
    location /v1/odd { meter_api; return 422; }
    location /v1/moved { meter_api; return 301 /v1/there; }
--- request eval
["GET /v1/denied", "GET /v1/auth", "GET /v1/gone", "GET /v1/odd", "GET /v1/moved"]
--- error_code eval
[403, 401, 410, 422, 301]
--- response_headers eval
["Content-Type: application/json", "WWW-Authenticate: Basic realm=\"x\"", "Content-Type: application/json",
 "Content-Type: application/json", "Content-Type: application/json"]
--- response_body eval
["{\"error\":\"access is forbidden\"}\n", "{\"error\":\"a valid bearer token is needed\"}\n",
 "{\"error\":\"the resource is gone\"}\n", "{\"error\":\"the request failed\"}\n",
 "{\"error\":\"the resource is elsewhere\"}\n"]



=== TEST 22: a text of the operator's own is left alone
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; return 404 "mine"; }
--- request
GET /v1/x
--- error_code: 404
--- response_body chomp
mine



=== TEST 23: HEAD gets an error's headers and no body
--- config
    location /v1/ { meter_api; meter_aggregator unix:$TEST_NGINX_METER_AWAY; }
--- request
HEAD /v1/x
--- error_code: 503
--- response_headers
Content-Length: 46
Retry-After: 1
--- response_body



=== TEST 24: an error is not encoded twice
--- http_config
    gzip on;
    gzip_types application/json;
    gzip_min_length 1;
--- config
    location /v1/ { meter_api; meter_aggregator unix:$TEST_NGINX_METER_AWAY; return 404; }
--- request
GET /v1/x
--- more_headers
Accept-Encoding: gzip
--- error_code: 404
--- response_headers
Content-Encoding: gzip
--- response_body_like: ^\x1f\x8b



=== TEST 25: the operator's page for 503 wins when the aggregator is away
--- config
    location /v1/ {
        meter_api;
        meter_aggregator unix:$TEST_NGINX_METER_AWAY;
        error_page 503 /sorry.html;
    }
--- user_files
>>> sorry.html
sorry
--- request eval
["GET /v1/x", "POST /v1/x\n{}", "HEAD /v1/x"]
--- error_code eval
[503, 503, 503]
--- response_body eval
["sorry\n", "sorry\n", ""]



=== TEST 26: the operator's page for 503 wins when the answer is cut
--- http_config eval: $::http
--- config
    location /v1/ {
        meter_api;
        error_page 503 =200 @sorry;
    }
    location @sorry { return 200 "sorry\n"; }
--- request
POST /v1/x?do=close
{}
--- response_body
sorry



=== TEST 27: a page for 502 is for bad answers only
--- http_config eval: $::http
--- config
    location /v1/ {
        meter_api;
        error_page 502 @bad;
    }
    location @bad { return 502 "bad\n"; }
--- request eval
["GET /v1/x?do=crc", "POST /v1/x?do=close\n{}"]
--- error_code eval
[502, 503]
--- response_body eval
["bad\n", "{\"error\":\"the aggregator is away, try again\"}\n"]



=== TEST 28: an error_page with another address is a redirect
--- http_config eval: $::http
--- config
    location /v1/ {
        meter_api;
        client_max_body_size 1;
        error_page 413 http://example.com/limits;
    }
--- request
POST /v1/x
xx
--- error_code: 302
--- response_headers
Location: http://example.com/limits
Content-Type: application/json



=== TEST 29: errors of the aggregator are not replaced by pages
--- http_config eval: $::http
--- config
    location /v1/ {
        meter_api;
        error_page 404 @mine;
    }
    location @mine { return 200 "mine\n"; }
--- request
GET /v1/x?do=answer&status=404&body=theirs
--- error_code: 404
--- response_body chomp
theirs



=== TEST 30: other locations keep nginx's own pages
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
    location /web { return 404; }
--- request
GET /web
--- error_code: 404
--- response_headers
Content-Type: text/html
--- response_body_like: <html>



=== TEST 31: an error keeps the client's connection where nginx would
--- config
    location /v1/ { meter_api; meter_aggregator unix:$TEST_NGINX_METER_AWAY; }
--- raw_request eval
"GET /v1/x HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v1/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
--- ignore_response
--- error_log
http keepalive handler
--- no_error_log
[alert]
