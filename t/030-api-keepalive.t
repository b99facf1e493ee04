# Connections to the aggregator: kept, found stale, never reused in doubt.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/FakeAggregator.pm' }

use Test::Nginx::Socket;

repeat_each(2);
no_shuffle();
plan tests => repeat_each() * 90;

our $fake = Edgemeter::FakeAggregator->start;

our $http = <<'_EOC_';
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
_EOC_

no_long_string();
run_tests();

__DATA__

=== TEST 1: a second request uses the first one's connection
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
["GET /v1/x?do=where", "POST /v1/x?do=where\n{}"]
--- error_code eval
[200, 200]
--- response_body_like eval
['^request \d+$', '^request ([2-9]|\d\d+)$']



=== TEST 2: two locations with the same socket share connections
--- config
    location /v1/a { meter_api; meter_aggregator unix:$TEST_NGINX_METER_SOCKET; }
    location /v1/b { meter_api; meter_aggregator unix:$TEST_NGINX_METER_SOCKET; }
--- request eval
["GET /v1/a?do=where", "GET /v1/b?do=where"]
--- error_code eval
[200, 200]
--- response_body_like eval
['^request \d+$', '^request ([2-9]|\d\d+)$']



=== TEST 3: meter_keepalive 0 keeps none
--- http_config
    meter_keepalive 0;
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
--- config
    location /v1/ { meter_api; }
--- request eval
["GET /v1/x?do=where", "GET /v1/x?do=where"]
--- error_code eval
[200, 200]
--- response_body eval
["request 1\n", "request 1\n"]



=== TEST 4: errors that the aggregator answers keep the connection
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
["GET /v1/x?do=answer&status=500&body=x", "GET /v1/x?do=answer&status=404", "GET /v1/x?do=where"]
--- error_code eval
[500, 404, 200]
--- response_body_like eval
['^x$', '^$', '^request ([3-9]|\d\d+)$']



=== TEST 5: a large answer keeps the connection
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; meter_buffer_size 1k; }
--- request eval
["GET /v1/x?do=big&size=300000", "GET /v1/x?do=where"]
--- error_code eval
[200, 200]
--- response_body_like eval
['^x{300}', '^request ([2-9]|\d\d+)$']



=== TEST 6: HEAD of a large answer does not keep the connection
--- http_config
    meter_keepalive 1;
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
--- config
    location /v1/ { meter_api; meter_buffer_size 1k; }
--- request eval
["HEAD /v1/x?do=big&size=300000", "GET /v1/x?do=where"]
--- error_code eval
[200, 200]
--- response_body eval
["", "request 1\n"]



=== TEST 7: one byte too many closes the connection
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
["GET /v1/x?do=surplus", "GET /v1/x?do=where"]
--- error_code eval
[200, 200]
--- response_body eval
["enough\n", "request 1\n"]



=== TEST 8: one byte too many is logged
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request
GET /v1/x?do=surplus
--- response_body
enough
--- error_log
meterd sent more than its answer



=== TEST 9: a bad answer closes the connection
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
["GET /v1/x?do=crc", "GET /v1/x?do=where"]
--- error_code eval
[502, 200]
--- response_body_like eval
['no valid answer', '^request 1$']



=== TEST 10: a kept connection that was closed is not used
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
    location /other/ { meter_api; meter_aggregator unix:$TEST_NGINX_METER_OTHER; }
--- request eval
["POST /v1/x?do=bye&tag=t10\n{}", "GET /other/x?do=log&take=1&for=bye%20t10%20closed", "POST /v1/x?do=where\n{}"]
--- error_code eval
[200, 200, 200]
--- response_body_like eval
['^bye$', 'bye t10 closed', '^request 1$']



=== TEST 11: a GET that meets a stale connection is tried once more
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
["GET /v1/x?do=stale&tag=t11", "GET /v1/x?do=where", "GET /v1/x?do=log&for=stale%20t11%20met"]
--- error_code eval
[200, 200, 200]
--- response_body_like eval
['^stale$', '^request 1$', 'stale t11 met a request']



=== TEST 12: a POST that meets a stale connection is never sent again
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
["GET /v1/x?do=stale&tag=t12", "POST /v1/x?do=where\n{}"]
--- error_code eval
[200, 503]
--- response_headers eval
["! Retry-After", "Retry-After: 1"]
--- response_body eval
["stale\n", "{\"error\":\"the aggregator is away, try again\"}\n"]



=== TEST 13: a PUT or DELETE that meets a stale connection is never sent again
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
["GET /v1/x?do=stale&tag=t13", "PUT /v1/x?do=where\n{}", "GET /v1/x?do=stale&tag=t13", "DELETE /v1/x?do=where"]
--- error_code eval
[200, 503, 200, 503]
--- response_headers eval
["! Retry-After", "Retry-After: 1", "! Retry-After", "Retry-After: 1"]



=== TEST 14: a GET is not tried again when a new connection fails
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
["GET /v1/x?do=where", "GET /v1/x?do=close"]
--- error_code eval
[200, 503]
--- response_body_like eval
['^request', 'away']



=== TEST 15: a client that goes away takes its connection with it
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request
POST /v1/x?do=never&tag=t15
{}
--- timeout: 0.2
--- abort
--- ignore_response
--- wait: 0.2
--- error_log
client prematurely closed connection, so upstream connection is closed too
--- no_error_log
[alert]



=== TEST 16: the aggregator sees an aborted request's connection close
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request
GET /v1/x?do=log&for=never%20t15%20ended
--- response_body_like chomp
never t15 ended with a closed connection



=== TEST 17: a client that goes away in the middle of an answer
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request
GET /v1/x?do=pause&tag=t17
--- timeout: 0.2
--- abort
--- ignore_response
--- wait: 0.2
--- no_error_log
[alert]



=== TEST 18: a client that goes away in the middle of its body
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; client_body_buffer_size 1k; }
--- request eval
"POST /v1/x?do=sum\n" . ('x' x 5000)
--- more_headers
Content-Length: 1000000
--- timeout: 0.2
--- abort
--- ignore_response
--- no_error_log
[alert]
[error]



=== TEST 19: the read timeout closes the connection
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; meter_read_timeout 100ms; }
--- request eval
["GET /v1/x?do=never&tag=t19", "GET /v1/x?do=where", "GET /v1/x?do=log&for=never%20t19%20ended"]
--- error_code eval
[504, 200, 200]
--- response_body_like eval
['in time', '^request 1$', 'never t19 ended with a closed connection']



=== TEST 20: no more connections than meter_keepalive are kept
--- http_config
    meter_keepalive 1;
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
--- config
    location /v1/ { meter_api; }
    location /both { ssi on; ssi_types text/plain; default_type text/html; }
--- user_files
>>> both
<!--#include virtual="/v1/a?do=where" --><!--#include virtual="/v1/b?do=where" -->
--- request eval
["GET /both", "GET /v1/x?do=where"]
--- error_code eval
[200, 200]
--- response_body_like eval
['^request \d+\nrequest \d+\n', '^request ([2-9]|\d\d+)$']
--- no_error_log
[alert]



=== TEST 21: the aggregator sees the connection of a cut answer close
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
--- request eval
["GET /v1/x?do=log&for=pause%20t17%20ended", "GET /v1/x?do=where"]
--- error_code eval
[200, 200]
--- response_body_like eval
['pause t17 ended with a closed connection', 'request']
