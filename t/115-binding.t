# Which location a request is metered by: the first metered one it reaches.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/Capture.pm' }

use Test::Nginx::Socket;

repeat_each(1);
plan tests => 63;

our $edge = Edgemeter::Capture->start;

no_long_string();
run_tests();

__DATA__

=== TEST 1: the first metered location is kept over a redirect
--- config
    location /a { meter on; meter_event a; meter_tenant ta; root html; error_page 404 = /b; }
    location /b { meter on; meter_event b; meter_tenant tb; root html; try_files /a.txt =404; }
--- user_files
>>> a.txt
text
--- request
GET /a/none
--- response_body
text
--- events
type=a tenant=ta @status=200



=== TEST 2: a location that answers in the rewrite phase is never reached
--- config
    location /a { meter on; meter_event a; rewrite ^ /b last; }
    location /b { meter on; meter_event b; return 200 "b\n"; }
--- request
GET /a
--- response_body
b
--- events
type=b @path=/b



=== TEST 3: a request that ends before it reaches any uses its final one
--- config
    location /a { meter on; meter_event a; return 404; error_page 404 = /b; }
    location /b { meter on; meter_event b; return 200 "b\n"; }
--- request
GET /a
--- response_body
b
--- events
type=b



=== TEST 4: from a metered location to one that is not: still one event
--- config
    location /a { meter on; meter_event a; root html; error_page 404 = /b; }
    location /b { return 200 "b\n"; }
--- request
GET /a/none
--- response_body
b
--- events
type=a @status=200



=== TEST 5: from a location that is not metered to one that is
--- config
    location /a { root html; error_page 404 = /b; }
    location /b { meter on; meter_event b; root html; try_files /a.txt =404; }
--- user_files
>>> a.txt
text
--- request
GET /a/none
--- response_body
text
--- events
type=b @status=200



=== TEST 6: from one that is not metered to `return` in one that is
--- config
    location /a { root html; error_page 404 = /b; }
    location /b { meter on; meter_event b; return 200 "b\n"; }
--- request
GET /a/none
--- response_body
b
--- events
type=b @status=200



=== TEST 7: metered, unmetered, metered: the first
--- config
    recursive_error_pages on;
    location /a { meter on; meter_event a; root html; error_page 404 = /b; }
    location /b { root html; error_page 404 = /c; }
    location /c { meter on; meter_event c; root html; try_files /a.txt =404; }
--- user_files
>>> a.txt
text
--- request
GET /a/none
--- response_body
text
--- events
type=a @status=200



=== TEST 8: the bound location's filter decides
--- config
    location /a { meter on; meter_event a; meter_if 0; root html; error_page 404 = /b; }
    location /b { meter on; meter_event b; meter_if 1; root html; try_files /a.txt =404; }
--- user_files
>>> a.txt
text
--- request
GET /a/none
--- response_body
text
--- events



=== TEST 9: an if block is a location of its own
--- config
    location /a {
        meter on;
        meter_event a;
        if ($arg_b) {
            meter_event b;
        }
        root html;
    }
--- user_files
>>> a
text
--- request eval
["GET /a", "GET /a?b=1"]
--- error_code eval
[200, 200]
--- events
type=a @status=200
type=b



=== TEST 10: if turns metering off
--- config
    location /a {
        meter on;
        if ($arg_free) {
            meter off;
        }
        proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok;
    }
--- request eval
["GET /a?free=1", "GET /a"]
--- error_code eval
[200, 200]
--- events
@status=200



=== TEST 11: nested locations
--- config
    location /a {
        meter on;
        meter_event outer;
        location /a/in {
            meter_event inner;
            return 200 "in\n";
        }
        location /a/off {
            meter off;
            return 200 "off\n";
        }
        return 200 "out\n";
    }
--- request eval
["GET /a", "GET /a/in", "GET /a/off"]
--- error_code eval
[200, 200, 200]
--- response_body eval
["out\n", "in\n", "off\n"]
--- events
type=outer
type=inner



=== TEST 12: a whole server
--- config
    meter on;
    location /a { return 200 "a\n"; }
    location /b { meter off; return 200 "b\n"; }
    location /c { root html; }
--- request eval
["GET /a", "GET /b", "GET /c"]
--- error_code eval
[200, 200, 404]
--- events
@path=/a @status=200
@path=/c @status=404



=== TEST 13: return in the server itself
--- config
    meter on;
    return 403;
--- request
GET /x
--- error_code: 403
--- events



=== TEST 14: a request that is no request, in a metered server
--- config
    meter on;
    meter_if 1;
--- client
my $client = client();
$client->send("NONSENSE\r\n\r\n");
ok($client->is_closed, 'closed');
--- events
@status=400



=== TEST 15: a connection without a request, and one with half of it
--- config
    meter on;
    meter_if 1;
--- client
client()->close;
my $client = client();
$client->send('GET /');
$client->close;
--- events
@status=400
