# One event a request: internal redirects of every kind.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/Capture.pm' }

use Test::Nginx::Socket;

repeat_each(1);
plan tests => 80;

our $edge = Edgemeter::Capture->start;

no_long_string();
run_tests();

__DATA__

=== TEST 1: rewrite last
--- config
    location /old { meter on; meter_event old; rewrite ^/old(.*)$ /new$1 last; }
    location /new { meter on; meter_event new; return 200 "new\n"; }
--- request
GET /old/1
--- response_body
new
--- events
type=new @path=/new/1 @status=200



=== TEST 2: rewrite break stays
--- config
    location /old { meter on; root html; rewrite ^ /a.txt break; }
--- user_files
>>> a.txt
text
--- request
GET /old/1
--- response_body
text
--- events
@path=/a.txt @status=200



=== TEST 3: error_page to a static file
--- config
    location /m { meter on; root html; error_page 404 /sorry.txt; }
    location /sorry.txt { meter on; meter_event sorry; root html; }
--- user_files
>>> sorry.txt
sorry
--- request
GET /m/none
--- error_code: 404
--- response_body
sorry
--- events
type=request @path=/m/none @status=404



=== TEST 4: error_page that changes the status
--- config
    location /m { meter on; root html; error_page 404 =200 /sorry.txt; }
    location /sorry.txt { root html; }
--- user_files
>>> sorry.txt
sorry
--- request
GET /m/none
--- error_code: 200
--- events
type=request @status=200



=== TEST 5: error_page to a named location
--- config
    location /m { meter on; root html; error_page 404 = @sorry; }
    location @sorry { meter on; meter_event sorry; return 410 "gone\n"; }
--- request
GET /m/none
--- error_code: 410
--- response_body
gone
--- events
type=request @path=/m/none @status=410



=== TEST 6: error_page to an upstream
--- config
    location /m { meter on; root html; error_page 404 = /backup; }
    location = /backup { proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
--- request
GET /m/none
--- response_body
ok
--- events
type=request @path=/m/none @status=200



=== TEST 7: error_page to another site
--- config
    location /m { meter on; root html; error_page 404 http://example.com/; }
--- request
GET /m/none
--- error_code: 302
--- events
type=request @path=/m/none @status=302



=== TEST 8: an error on the error page
--- config
    recursive_error_pages on;
    location /m { meter on; root html; error_page 404 = /second; }
    location = /second { meter on; meter_event second; error_page 403 = /third; return 403; }
    location = /third { meter on; meter_event third; return 402 "pay\n"; }
--- request
GET /m/none
--- error_code: 402
--- response_body
pay
--- events
type=request @path=/m/none @status=402



=== TEST 9: an upstream that is away, with a fallback
--- config
    location /m { meter on; proxy_pass http://unix:/nowhere/none.sock:/; error_page 502 = @backup; }
    location @backup { meter on; meter_event backup; return 200 "backup\n"; }
--- request
GET /m
--- response_body
backup
--- error_log
No such file or directory
--- alerts: connect\(\) to unix:/nowhere/none.sock failed
--- events
type=request @path=/m @status=200



=== TEST 10: an upstream's own error, intercepted
--- config
    location /m { meter on; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/status/503; proxy_intercept_errors on; error_page 503 /sorry.txt; }
    location /sorry.txt { root html; meter on; meter_event sorry; }
--- user_files
>>> sorry.txt
sorry
--- request
GET /m
--- error_code: 503
--- response_body
sorry
--- events
type=request @status=503



=== TEST 11: try_files finds the file
--- config
    location /m { meter on; root html; try_files /none.txt /a.txt =404; }
--- user_files
>>> a.txt
text
--- request
GET /m/x
--- response_body
text
--- events
@path=/m/x @status=200



=== TEST 12: try_files ends with a status
--- config
    location /m { meter on; root html; try_files /none.txt =410; }
--- request
GET /m/x
--- error_code: 410
--- events
@path=/m/x @status=410



=== TEST 13: try_files ends with another location
--- config
    location /m { meter on; meter_event tried; root html; try_files /none.txt /other; }
    location /other { meter on; meter_event other; return 200 "other\n"; }
--- request
GET /m/x
--- response_body
other
--- events
type=tried @path=/m/x @status=200



=== TEST 14: try_files ends with a named location
--- config
    location /m { meter on; meter_event tried; root html; try_files /none.txt @other; }
    location @other { meter on; meter_event other; return 200 "other\n"; }
--- request
GET /m/x
--- response_body
other
--- events
type=tried @path=/m/x @status=200



=== TEST 15: X-Accel-Redirect
--- config
    location /m { meter on; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/accel/files/a.txt; }
    location /files/ { internal; alias html/; meter on; meter_event files; }
--- user_files
>>> a.txt
text
--- request
GET /m
--- response_body
text
--- events
type=request @path=/m @status=200



=== TEST 16: X-Accel-Redirect to a named location
--- config
    location /m { meter on; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/accel/@named; }
    location /@named { meter on; meter_event named; return 200 "named\n"; }
--- request
GET /m
--- response_body
named
--- events
type=request @status=200



=== TEST 17: the index of a directory
--- config
    location /dir/ { meter on; meter_event dir; alias html/; index none.html a.txt; }
    location = /dir/a.txt { meter on; meter_event page; return 200 "page\n"; }
--- user_files
>>> a.txt
text
--- request
GET /dir/
--- response_body
page
--- events
type=dir @path=/dir/ @status=200



=== TEST 18: a loop of redirects ends
--- config
    location /m { meter on; root html; try_files /none.txt /m/again; }
--- request
GET /m/x
--- error_code: 500
--- error_log
rewrite or internal redirection cycle
--- events
@status=500



=== TEST 19: from http to error_page before any location
--- config
    error_page 400 /bad;
    location = /bad { meter on; meter_if 1; return 400 "bad\n"; }
--- client
my $client = client();
$client->send("GET /m HTTP/1.1\r\nConnection: close\r\n\r\n");
is($client->receive->{code}, 400, 'no Host');
--- events
@path=/bad @status=400



=== TEST 20: redirects of several requests on one connection
--- config
    location /m { meter on; root html; error_page 404 = @sorry; }
    location @sorry { return 200 "sorry\n"; }
--- client
my $client = client();
is($client->get("/m/$_")->{body}, "sorry\n", "request $_") for 1 .. 3;
$client->close;
--- events
@path=/m/1 @status=200
@path=/m/2 @status=200
@path=/m/3 @status=200
