# Directives: what nginx takes, and what it says of what it does not.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/FakeAggregator.pm' }

use Test::Nginx::Socket;

repeat_each(1);
plan tests => 66;

our $fake = Edgemeter::FakeAggregator->start;

run_tests();

__DATA__

=== TEST 1: all directives with good values
--- http_config
    meter_keepalive 4;
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
    meter_connect_timeout 500ms;
    meter_send_timeout 5s;
    meter_read_timeout 5s;
    meter_buffer_size 4k;
--- config
    location /v1/ {
        meter_api;
    }
    location = /status {
        meter_status;
    }
--- request
GET /v1/events/1
--- response_body
{"method":"GET","path":"/v1/events/1","client_address":"127.0.0.1"}
--- no_error_log
[error]
[alert]



=== TEST 2: the aggregator of a location wins over that of the server
--- http_config
    meter_aggregator unix:$TEST_NGINX_METER_AWAY;
--- config
    meter_aggregator unix:$TEST_NGINX_METER_DEAD;
    location /v1/ {
        meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
        meter_api;
    }
--- request
GET /v1/usage
--- response_body
{"method":"GET","path":"/v1/usage","client_address":"127.0.0.1"}
--- no_error_log
[error]



=== TEST 3: the aggregator of the server wins over that of http
--- http_config
    meter_aggregator unix:$TEST_NGINX_METER_AWAY;
--- config
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
    location /v1/ {
        meter_api;
    }
--- request
GET /v1/usage
--- response_body
{"method":"GET","path":"/v1/usage","client_address":"127.0.0.1"}
--- no_error_log
[error]



=== TEST 4: a socket that does not exist is no error of the configuration
--- config
    location /v1/ {
        meter_aggregator unix:$TEST_NGINX_METER_AWAY;
        meter_api;
    }
    location = /fine {
        return 200 "fine\n";
    }
--- request
GET /fine
--- response_body
fine



=== TEST 5: an aggregator that is no unix socket
--- config
    meter_aggregator 127.0.0.1:9000;
--- must_die
--- error_log
"127.0.0.1:9000" in "meter_aggregator" is no unix domain socket, it must be "unix:PATH"



=== TEST 6: an aggregator without a path
--- config
    meter_aggregator unix:;
--- must_die
--- error_log
the path in "unix:" in "meter_aggregator" must start with "/"



=== TEST 7: an aggregator with a relative path
--- config
    meter_aggregator unix:meterd.sock;
--- must_die
--- error_log
the path in "unix:meterd.sock" in "meter_aggregator" must start with "/"



=== TEST 8: a path of 107 bytes is the longest
--- config eval
my $path = '/tmp/' . ('p' x 102);
"location /v1/ { meter_aggregator unix:$path; meter_api; }
 location = /fine { return 200 fine; }"
--- request
GET /fine
--- response_body chomp
fine



=== TEST 9: a path of 108 bytes is too long
--- config eval
my $path = '/tmp/' . ('p' x 103);
"location /v1/ { meter_aggregator unix:$path; meter_api; }"
--- must_die
--- error_log
in "meter_aggregator" is longer than 107 bytes



=== TEST 10: two aggregators in one block
--- config
    meter_aggregator unix:/tmp/a;
    meter_aggregator unix:/tmp/b;
--- must_die
--- error_log
"meter_aggregator" directive is duplicate



=== TEST 11: meter_aggregator without a value
--- config
    meter_aggregator;
--- must_die
--- error_log
invalid number of arguments in "meter_aggregator" directive



=== TEST 12: meter_api without an aggregator names its line
--- config
    location /v1/ {
        meter_api;
    }
--- must_die
--- error_log eval
qr/no "meter_aggregator" is given for the "meter_api" directive in \S+nginx\.conf:\d+/



=== TEST 13: meter_api twice
--- config
    location /v1/ {
        meter_aggregator unix:/tmp/a;
        meter_api;
        meter_api events;
    }
--- must_die
--- error_log
"meter_api" directive is duplicate



=== TEST 14: meter_api with an unknown part
--- config
    location /v1/ {
        meter_aggregator unix:/tmp/a;
        meter_api event;
    }
--- must_die
--- error_log
unknown part "event" in "meter_api", it must be adjustments, counters, events, query, search, series, tenants or usage



=== TEST 15: meter_api with two parts
--- config
    location /v1/ {
        meter_aggregator unix:/tmp/a;
        meter_api events counters;
    }
--- must_die
--- error_log
invalid number of arguments in "meter_api" directive



=== TEST 16: a part has no prefix to replace in a regular expression
--- config
    location ~ /v1/ {
        meter_aggregator unix:/tmp/a;
        meter_api events;
    }
--- must_die
--- error_log
"meter_api" cannot have a part in location given by regular expression



=== TEST 17: a part has no prefix to replace in a named location
--- config
    location @api {
        meter_aggregator unix:/tmp/a;
        meter_api events;
    }
--- must_die
--- error_log
"meter_api" cannot have a part in location given by regular expression or inside named location



=== TEST 18: meter_api outside a location
--- config
    meter_api;
--- must_die
--- error_log
"meter_api" directive is not allowed here



=== TEST 19: meter_status beside meter_api
--- config
    location /v1/ {
        meter_aggregator unix:/tmp/a;
        meter_api;
        meter_status;
    }
--- must_die
--- error_log
"meter_status" directive conflicts with "meter_api" in the same location



=== TEST 20: meter_api beside meter_status
--- config
    location /v1/ {
        meter_aggregator unix:/tmp/a;
        meter_status;
        meter_api;
    }
--- must_die
--- error_log
"meter_api" directive conflicts with "meter_status" in the same location



=== TEST 21: meter_status twice
--- config
    location /status {
        meter_status;
        meter_status;
    }
--- must_die
--- error_log
"meter_status" directive is duplicate



=== TEST 22: meter_status takes no value
--- config
    location /status {
        meter_status on;
    }
--- must_die
--- error_log
invalid number of arguments in "meter_status" directive



=== TEST 23: meter_keepalive that is no number
--- http_config
    meter_keepalive many;
--- config
--- must_die
--- error_log
"meter_keepalive" directive invalid number



=== TEST 24: meter_keepalive beyond its bound
--- http_config
    meter_keepalive 1025;
--- config
--- must_die
--- error_log
value must be between 0 and 1024 in



=== TEST 25: meter_keepalive outside http
--- config
    meter_keepalive 4;
--- must_die
--- error_log
"meter_keepalive" directive is not allowed here



=== TEST 26: meter_buffer_size that is no size
--- config
    meter_buffer_size big;
--- must_die
--- error_log
"meter_buffer_size" directive invalid value



=== TEST 27: meter_buffer_size that holds no answer's head
--- config
    meter_buffer_size 100;
--- must_die
--- error_log
"meter_buffer_size" directive must be at least 1k



=== TEST 28: timeouts that are no times
--- config
    meter_connect_timeout soon;
--- must_die
--- error_log
"meter_connect_timeout" directive invalid value



=== TEST 29: a send timeout that is no time
--- config
    meter_send_timeout soon;
--- must_die
--- error_log
"meter_send_timeout" directive invalid value



=== TEST 30: a read timeout that is no time
--- config
    meter_read_timeout -1;
--- must_die
--- error_log
"meter_read_timeout" directive invalid value



=== TEST 31: a read timeout twice
--- config
    meter_read_timeout 1s;
    meter_read_timeout 2s;
--- must_die
--- error_log
"meter_read_timeout" directive is duplicate
