# The metrics page: the edge's counters first, then the aggregator's.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/FakeAggregator.pm' }

use Test::Nginx::Socket;

repeat_each(2);
plan tests => repeat_each() * 68;

our $fake = Edgemeter::FakeAggregator->start;

our $http = <<'_EOC_';
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
_EOC_

no_long_string();
run_tests();

__DATA__

=== TEST 1: edge first, aggregator behind
--- http_config eval: $::http
--- config
    location = /metrics { meter_api; }
--- request
GET /metrics?do=metrics
--- response_headers
Content-Type: text/plain; version=0.0.4
Cache-Control: no-store
X-Content-Type-Options: nosniff
--- response_body_like chomp
^# HELP edgemeter_edge_requests_total .*edgemeter_aggregator_up 1\nmeterd_up 1\n$
--- no_error_log
[error]
[alert]



=== TEST 2: meter_status in a location of any name
--- http_config eval: $::http
--- config
    location = /edge-status { meter_status; }
--- request
GET /edge-status?do=metrics
--- response_body_like chomp
^# HELP edgemeter_edge_requests_total .*edgemeter_aggregator_up 1\nmeterd_up 1\n$
--- no_error_log
[error]



=== TEST 3: it asks the aggregator for /metrics
--- http_config eval: $::http
--- config
    location = /edge-status { meter_status; }
--- request
GET /edge-status
--- response_body_like chomp
"method":"GET","path":"/metrics",



=== TEST 4: without the aggregator the edge's part is the answer
--- config
    location = /metrics { meter_api; meter_aggregator unix:$TEST_NGINX_METER_AWAY; }
    location = /status { meter_status; meter_aggregator unix:$TEST_NGINX_METER_DEAD; }
--- request eval
["GET /metrics", "GET /status"]
--- error_code eval
[200, 200]
--- response_headers eval
["Content-Type: text/plain; version=0.0.4", "! Retry-After"]
--- response_body_like eval
['^# HELP edgemeter_edge_requests_total .*edgemeter_aggregator_up 0\n$',
 '^# HELP edgemeter_edge_requests_total .*edgemeter_aggregator_up 0\n$']



=== TEST 5: an aggregator that is silent, talks nonsense or fails counts as down
--- http_config eval: $::http
--- config
    location = /metrics { meter_api; meter_read_timeout 100ms; error_page 502 503 504 =418 /none; }
--- request eval
["GET /metrics?do=never&tag=m", "GET /metrics?do=crc", "GET /metrics?do=close", "GET /metrics?do=answer&status=500&body=oops"]
--- error_code eval
[200, 200, 200, 200]
--- response_body_like eval
['edgemeter_aggregator_up 0\n$', 'edgemeter_aggregator_up 0\n$', 'edgemeter_aggregator_up 0\n$', 'edgemeter_aggregator_up 0\n$']



=== TEST 6: meter_status without any aggregator
--- config
    location = /status { meter_status; }
--- request
GET /status
--- response_headers
Content-Type: text/plain; version=0.0.4
Cache-Control: no-store
--- response_body_like chomp
^# HELP edgemeter_edge_requests_total .*edgemeter_aggregator_up 0\n$



=== TEST 7: HEAD has the length and no body
--- http_config eval: $::http
--- config
    location = /metrics { meter_api; }
    location = /status { meter_status; }
--- request eval
["HEAD /metrics?do=metrics", "HEAD /status?do=metrics"]
--- error_code eval
[200, 200]
--- raw_response_headers_like eval
['Content-Length: \d{3,}', 'Content-Length: \d{3,}']
--- response_body eval
["", ""]



=== TEST 8: meter_status takes GET and HEAD only
--- http_config eval: $::http
--- config
    location = /status { meter_status; }
--- request
POST /status
x
--- error_code: 405
--- response_headers
Allow: GET, HEAD
Content-Type: application/json
--- response_body
{"error":"the method is not allowed here"}



=== TEST 9: every counter has one help, one type and a number
--- config
    location = /status { meter_status; }
--- request
GET /status
--- response_body_like chomp
^(# HELP (edgemeter_edge_\w+_total) [^\n]+\.\n# TYPE \2 counter\n(\2(\{\w+="\w+"\})? \d+\n)+)+# HELP edgemeter_aggregator_up [^\n]+\n# TYPE edgemeter_aggregator_up gauge\nedgemeter_aggregator_up 0\n$



=== TEST 10: requests are counted by class
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
    location = /status { meter_status; }
--- request eval
["GET /v1/x?do=where", "GET /v1/x?do=answer&status=404", "GET /v1/x?do=close", "GET /status?do=metrics"]
--- error_code eval
[200, 404, 503, 200]
--- response_body_like eval
['request', '^$', 'away', 'requests_total\{class="2xx"\} [1-9]\d*\n.*class="4xx"\} [1-9]\d*\n.*class="5xx"\} [1-9]']



=== TEST 11: failures are counted by kind
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; meter_read_timeout 100ms; }
    location = /status { meter_status; }
--- request eval
["GET /v1/x?do=close", "GET /v1/x?do=never&tag=t11", "GET /v1/x?do=crc", "GET /status?do=metrics"]
--- error_code eval
[503, 504, 502, 200]
--- response_body_like eval
['away', 'in time', 'no valid', 'kind="away"\} [1-9]\d*\n.*kind="timeout"\} [1-9]\d*\n.*kind="protocol"\} [1-9]']



=== TEST 12: bytes and connections are counted
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
    location = /status { meter_status; }
--- request eval
["POST /v1/x?do=sum\n" . ('x' x 5000), "GET /v1/x?do=big&size=7000", "GET /status?do=metrics"]
--- error_code eval
[200, 200, 200]
--- response_body_like eval
['5000', 'x', 'received_bytes_total ([5-9]\d{3}|\d{5,})\n.*sent_bytes_total ([7-9]\d{3}|\d{5,})\n.*opened_total [1-9]\d*\n.*reused_total [1-9]']



=== TEST 13: an aborted request is counted
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; }
    location = /status { meter_status; }
--- request
GET /v1/x?do=never&tag=abort
--- timeout: 0.2
--- abort
--- ignore_response
--- wait: 0.2
--- no_error_log
[alert]



=== TEST 14: a metrics page as an included part of another page
--- http_config eval: $::http
--- config
    location /page { ssi on; default_type text/html; }
    location = /status { meter_status; }
    location = /v1/away { meter_api; meter_aggregator unix:$TEST_NGINX_METER_AWAY; }
--- user_files
>>> page
<!--#include virtual="/status?do=metrics" -->|<!--#include virtual="/v1/away" -->|
--- request
GET /page
--- response_body_like chomp
aggregator_up 1\nmeterd_up 1\n\|\{"error":"the aggregator is away, try again"\}\n\|
--- no_error_log
[alert]
