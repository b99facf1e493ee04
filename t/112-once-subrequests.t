# One event a request: subrequests are none.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/Capture.pm' }

use Test::Nginx::Socket;

repeat_each(1);
plan tests => 48;

our $edge = Edgemeter::Capture->start;

no_long_string();
run_tests();

__DATA__

=== TEST 1: a page that includes metered parts
--- config
    location /page { ssi on; default_type text/html; root html; meter on; meter_event page; }
    location /part { meter on; meter_event part; return 200 "part"; }
--- user_files
>>> page
<!--#include virtual="/part/1" -->|<!--#include virtual="/part/2" -->
--- request
GET /page
--- response_body
part|part
--- events
type=page @path=/page @status=200



=== TEST 2: a page that is not metered and includes metered parts
--- config
    location /page { ssi on; default_type text/html; root html; }
    location /part { meter on; meter_event part; return 200 "part"; }
--- user_files
>>> page
<!--#include virtual="/part/1" -->
--- request
GET /page
--- response_body
part
--- events



=== TEST 3: a part from an upstream that is away
--- config
    location /page { ssi on; default_type text/html; root html; meter on; meter_event page; }
    location /part { meter on; meter_event part; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/reset; error_page 502 = /stub; }
    location /stub { meter on; meter_event stub; return 200 "stub"; }
--- user_files
>>> page
<!--#include virtual="/part" -->
--- request
GET /page
--- response_body
stub
--- events
type=page @path=/page @status=200



=== TEST 4: text before and after the body
--- config
    location / { root html; meter on; addition_types *; add_before_body /before; add_after_body /after; }
    location = /before { meter on; meter_event before; return 200 "before\n"; }
    location = /after { meter on; meter_event after; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
--- user_files
>>> a.txt
text
--- request
GET /a.txt
--- response_body
before
text
ok
--- events
type=request @path=/a.txt @status=200



=== TEST 5: auth_request allows
--- config
    location /m { meter on; auth_request /auth; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
    location = /auth { meter on; meter_event auth; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/status/204; proxy_pass_request_body off; proxy_set_header Content-Length ""; }
--- request
GET /m
--- response_body
ok
--- events
type=request @path=/m @status=200



=== TEST 6: auth_request denies: by default not billed
--- config
    location /m { meter on; auth_request /auth; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
    location = /auth { meter on; meter_event auth; return 403; }
--- request
GET /m
--- error_code: 403
--- events



=== TEST 7: auth_request denies, billed because meter_if says so
--- config
    location /m { meter on; meter_if 1; auth_request /auth; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
    location = /auth { meter on; meter_event auth; return 401; }
--- request
GET /m
--- error_code: 401
--- events
type=request @path=/m @status=401



=== TEST 8: the tenant comes from auth_request
--- config
    location /m { meter on; meter_tenant $who; auth_request /auth; auth_request_set $who $upstream_http_x_who; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
    location = /auth { proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/who/globex; }
--- request
GET /m
--- response_body
ok
--- events
type=request tenant=globex @status=200



=== TEST 9: a mirrored request
--- config
    location /m { meter on; mirror /copy; mirror /copy; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
    location = /copy { internal; meter on; meter_event copy; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/status/500; }
--- request
POST /m
body
--- response_body
ok
--- events
type=request @path=/m @status=200



=== TEST 10: a mirror that outlives the answer
--- config
    location /m { meter on; mirror /copy; return 200 "m\n"; }
    location /n { meter on; mirror /copy; root html; try_files /a.txt =404; }
    location = /copy { internal; meter on; meter_event copy; proxy_read_timeout 300ms; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/silent; }
--- user_files
>>> a.txt
text
--- request eval
["GET /m", "GET /n"]
--- error_code eval
[200, 200]
--- response_body eval
["m\n", "text\n"]
--- events
type=request @path=/m @status=200
type=request @path=/n @status=200



=== TEST 11: slices of a file
--- http_config eval: $::edge->http
--- config
    location /m { meter on; slice 4; proxy_http_version 1.1; proxy_set_header Range $slice_range; proxy_set_header Host localhost; proxy_pass http://127.0.0.1:$TEST_NGINX_SERVER_PORT/a.txt; }
    location = /a.txt { root html; meter on; meter_event origin; }
--- user_files
>>> a.txt
0123456789
--- request
GET /m
--- response_body
0123456789
--- unordered
--- events
type=request @path=/m @status=200
type=origin @status=206
type=origin @status=206
type=origin @status=206



=== TEST 12: post_action
--- config
    location /m { meter on; post_action /after; return 200 "m\n"; }
    location = /after { meter on; meter_event after; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
--- request
GET /m
--- response_body
m
--- events
type=request @status=200
