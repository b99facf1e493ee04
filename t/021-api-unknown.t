# Writes of the counters API without an answer: 504 says that they may have
# been applied, 503 that they were not. None is ever sent twice.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/FakeAggregator.pm' }

use Test::Nginx::Socket;

repeat_each(2);
no_shuffle();
plan tests => repeat_each() * 97;

our $fake = Edgemeter::FakeAggregator->start;

our $http = <<'_EOC_';
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
_EOC_

our $path = '/api/counters/acme/hits';
our $unknown = '{"error":"It is not known whether the operation was applied",'
    . "\"outcome\":\"unknown\"}\n";
our $away = "{\"error\":\"the aggregator is away, try again\"}\n";

no_long_string();
run_tests();

__DATA__

=== TEST 1: an answer is the answer
--- http_config eval: $::http
--- config
    location /api/counters/ { meter_api; }
--- request eval
["POST $::path/increment?do=where\n{}", "PUT $::path/set?do=where\n{}",
 "POST $::path/increment?do=answer&status=504&body=theirs\n{}", "POST $::path/increment?do=answer&status=503&body=theirs\n{}"]
--- error_code eval
[200, 200, 504, 503]
--- response_body_like eval
['^request \d+$', '^request \d+$', '^theirs$', '^theirs$']



=== TEST 2: a connection that is closed before the answer is 504
--- http_config eval: $::http
--- config
    location /api/counters/ { meter_api; }
--- request eval
["POST $::path/increment?do=close\n{}", "PUT $::path/set?do=close\n{}", "POST $::path/decrementSync?do=close\n{}"]
--- error_code eval
[504, 504, 504]
--- response_headers eval
[("Content-Type: application/json\nCache-Control: no-store\n! Retry-After") x 3]
--- response_body eval
[($::unknown) x 3]



=== TEST 3: half an answer's head is 504
--- http_config eval: $::http
--- config
    location /api/counters/ { meter_api; }
--- request eval
"POST $::path/increment?do=half\n{}"
--- error_code: 504
--- response_body eval: $::unknown
--- no_error_log
[alert]



=== TEST 4: what is no answer is 504
--- http_config eval: $::http
--- config
    location /api/counters/ { meter_api; }
--- request eval
[map { "POST $::path/increment?do=$_\n{}" } qw(garbage crc type malformed bighead)]
--- error_code eval
[(504) x 5]
--- response_body eval
[($::unknown) x 5]



=== TEST 5: silence is 504 with the same body
--- http_config eval: $::http
--- config
    location /api/counters/ { meter_api; meter_read_timeout 100ms; }
--- request eval
["POST $::path/increment?do=never&tag=u5\n{}", "PUT $::path/set?do=never&tag=u5\n{}"]
--- error_code eval
[504, 504]
--- response_headers eval
[("Content-Type: application/json\n! Retry-After") x 2]
--- response_body eval
[($::unknown) x 2]



=== TEST 6: no connection is 503: nothing can have been applied
--- config
    location /api/counters/away/ { meter_api; meter_aggregator unix:$TEST_NGINX_METER_AWAY; }
    location /api/counters/dead/ { meter_api; meter_aggregator unix:$TEST_NGINX_METER_DEAD; }
--- request eval
["POST /api/counters/away/n/increment\n{}", "PUT /api/counters/away/n/set\n{}", "POST /api/counters/dead/n/increment\n{}"]
--- error_code eval
[503, 503, 503]
--- response_headers eval
[("Retry-After: 1") x 3]
--- response_body eval
[($::away) x 3]



=== TEST 7: a write that meets a stale connection is not sent again
--- http_config
    meter_aggregator unix:$TEST_NGINX_METER_OLD;
--- config
    location /api/counters/ { meter_api; }
--- request eval
["GET $::path/get?do=stale&tag=u7", "POST $::path/increment?do=where\n{}",
 "GET $::path/get?do=stale&tag=u7", "PUT $::path/set?do=where\n{}",
 "GET $::path/get?do=log&take=1&for=stale%20u7%20met"]
--- error_code eval
[200, 504, 200, 504, 200]
--- response_body_like eval
['^stale$', '"outcome":"unknown"', '^stale$', '"outcome":"unknown"', 'stale u7 met a request']



=== TEST 8: a write that is cut is not sent again: the next request is the first of its connection
--- http_config eval: $::http
--- config
    location /api/counters/ { meter_api; }
--- request eval
["POST $::path/increment?do=close\n{}", "POST $::path/increment?do=where\n{}"]
--- error_code eval
[504, 200]
--- response_body eval
[$::unknown, "request 1\n"]



=== TEST 9: reads are 503 and 504 as everywhere
--- http_config eval: $::http
--- config
    location /api/counters/ { meter_api; meter_read_timeout 100ms; }
--- request eval
["GET $::path/get?do=close", "GET $::path/sumRange?do=never", "GET $::path/get?do=crc"]
--- error_code eval
[503, 504, 502]
--- response_body eval
[$::away, "{\"error\":\"the aggregator did not answer in time\"}\n", "{\"error\":\"the aggregator sent no valid answer\"}\n"]



=== TEST 10: other paths are 503 and 504 as everywhere
--- http_config eval: $::http
--- config
    location /v1/ { meter_api; meter_read_timeout 100ms; }
    location /api/ { meter_api; meter_read_timeout 100ms; }
--- request eval
["POST /v1/events?do=close\n{}", "POST /v1/events?do=never\n{}", "POST /api/counters?do=close\n{}", "POST /api/counter/a/b/increment?do=close\n{}",
 "POST /v1/api/counters/a/b/increment?do=close\n{}"]
--- error_code eval
[503, 504, 503, 503, 503]
--- response_body eval
[$::away, "{\"error\":\"the aggregator did not answer in time\"}\n", ($::away) x 3]



=== TEST 11: a path that is spelled otherwise is the same path to meterd
--- http_config eval: $::http
--- config
    location /api/ { meter_api; }
--- request eval
["POST /%61pi/counters/acme/n/increment?do=close\n{}", "POST /api/c%6Funters/acme/n/increment?do=close\n{}"]
--- error_code eval
[504, 504]
--- response_body eval
[($::unknown) x 2]



=== TEST 12: the operator's page for 504 wins
--- http_config eval: $::http
--- config
    location /api/counters/ {
        meter_api;
        meter_read_timeout 100ms;
        error_page 504 @doubt;
    }
    location @doubt { return 504 "doubt\n"; }
--- request eval
["POST $::path/increment?do=close\n{}", "POST $::path/increment?do=never\n{}"]
--- error_code eval
[504, 504]
--- response_body eval
["doubt\n", "doubt\n"]



=== TEST 13: a page for 502 or 503 is not for them
--- http_config eval: $::http
--- config
    location /api/counters/ {
        meter_api;
        error_page 502 503 @mine;
    }
    location @mine { return 200 "mine\n"; }
--- request eval
["POST $::path/increment?do=close\n{}", "POST $::path/increment?do=crc\n{}"]
--- error_code eval
[504, 504]
--- response_body eval
[($::unknown) x 2]



=== TEST 14: the client's connection stays
--- http_config eval: $::http
--- config
    location /api/counters/ { meter_api; }
--- raw_request eval
"POST $::path/increment?do=close HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
. "POST $::path/increment?do=where HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
--- ignore_response
--- error_log
http keepalive handler
--- no_error_log
[alert]
