# Which location a request is metered by: the first metered one it reaches.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/Capture.pm' }

use Test::Nginx::Socket;

repeat_each(1);
plan tests => 104;

our $edge = Edgemeter::Capture->start;

# Every way out of a bound location, to one that has other captures, other
# arguments and other variables, and looks at the maps.
our $ways = $edge->http . <<'_EOC_';
    log_format seen '$request_uri $uri $request_method $who $mine $top';
    access_log $TEST_NGINX_METER_LOG seen;
    map $uri $top { default none; "~^/(?<first>[a-z]+)/" $first; }
    map $status $class { default none; 200 good; }
    map $bytes_sent $size { default small; "~^\d{4,}$" large; }
_EOC_

our $locations = <<'_EOC_';
    meter_tenant $1;
    meter_customer $who;
    meter_resource $arg_a;
    meter_event_id "$http_x_id";
    meter_quantity "${arg_a}0";
    meter_if "$arg_a$status";
    meter_attribute uri $uri;
    meter_attribute args $args;
    meter_attribute request $request_uri;
    meter_attribute method $request_method;
    meter_attribute root $document_root;
    meter_attribute mine $mine;
    meter_attribute top $top;
    meter_attribute class $class;
    meter_attribute size $size;
    meter_attribute status $status;
    meter_attribute mixed "$1 $status";
    set $mine "$arg_a server";
    location ~ ^/page/(?<who>[a-z]+) { meter on; set $mine "$arg_a"; root html; error_page 404 405 = /to/globex/x?a=2; }
    location ~ ^/away/(?<who>[a-z]+) { meter on; set $mine "$arg_a"; root html; proxy_pass http://unix:$TEST_NGINX_METER_DEAD; error_page 502 = /to/globex/x; }
    location ~ ^/name/(?<who>[a-z]+) { meter on; set $mine "$arg_a"; root html; error_page 404 = @to; }
    location ~ ^/try/(?<who>[a-z]+) { meter on; set $mine "$arg_a"; root html; try_files /none /to/globex/x?a=2; }
    location ~ ^/tryname/(?<who>[a-z]+) { meter on; set $mine "$arg_a"; root html; try_files /none @to; }
    location ~ ^/file/(?<who>[a-z]+) { meter on; set $mine "$arg_a"; root html; try_files /none /a.txt; }
    location ~ ^/accel/(?<who>[a-z]+) { meter on; set $mine "$arg_a"; root html; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND; }
    location ~ ^/index/(?<who>[a-z]+)/$ { meter on; set $mine "$arg_a"; alias html/; index a.txt; }
    location ~ ^/index/(?<who>[a-z])(.*) { meter on; set $mine "target"; alias html/a.txt; add_header X-Top $top; }
    location ~ ^/last/(.*) { meter on; set $mine "first"; rewrite ^/last/(.*)$ /page/$1 last; }
    location ~ ^/(?:to|ac(?=me))/?(?<who>[a-z]+) { set $mine "target"; alias html/a.txt; add_header X-Top $top; add_header X-Tenant $meter_tenant; }
    location @to { set $who named; set $mine "target"; if ($uri ~ "^/(n|t)") { set $two $1; } rewrite ^ /a.txt break; root html; add_header X-Top $top; add_header X-Tenant $meter_tenant; }
_EOC_

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



=== TEST 16: whose it is, is decided where it is bound, whatever comes later
--- http_config eval: $::ways
--- config eval: $::locations
--- user_files
>>> a.txt
text
--- client
my $client = client();
for my $way (qw(page away name try tryname file accel)) {
    my $answer = $client->get("/$way/acme/x?a=1", "X-Id: id-$way");
    is($answer->{code}, 200, "$way: answered");
    like($answer->{head}, qr/^X-Tenant: acme\r$/m, "$way: in a header") if $way ne 'file';
}
is($client->get('/index/acme/?a=1', 'X-Id: id-index')->{body}, "text\n", 'index');
is($client->get('/last/acme/x?a=1', 'X-Id: id-last')->{body}, "text\n", 'rewrite');
is($client->request('POST', '/page/acme/post?a=1', 'X-Id: id-post', 'Content-Length: 0')->{body},
    "text\n", 'POST');
$client->close;
--- events
id=id-page tenant=acme customer=acme resource=1 quantity=10 @uri=/page/acme/x @args=a=1 @request=/page/acme/x?a=1 @method=GET @root~html$ @mine=1 @top=page @class=good @size=small @status=200 @mixed=acme%20200
id=id-away tenant=acme customer=acme resource=1 quantity=10 @uri=/away/acme/x @args=a=1 @request=/away/acme/x?a=1 @method=GET @root~html$ @mine=1 @top=away @class=good @size=small @status=200 @mixed=acme%20200
id=id-name tenant=acme customer=acme resource=1 quantity=10 @uri=/name/acme/x @args=a=1 @request=/name/acme/x?a=1 @method=GET @root~html$ @mine=1 @top=name @class=good @size=small @status=200 @mixed=acme%20200
id=id-try tenant=acme customer=acme resource=1 quantity=10 @uri=/try/acme/x @args=a=1 @request=/try/acme/x?a=1 @method=GET @root~html$ @mine=1 @top=try @class=good @size=small @status=200 @mixed=acme%20200
id=id-tryname tenant=acme customer=acme resource=1 quantity=10 @uri=/tryname/acme/x @args=a=1 @request=/tryname/acme/x?a=1 @method=GET @root~html$ @mine=1 @top=tryname @class=good @size=small @status=200 @mixed=acme%20200
id=id-file tenant=acme customer=acme resource=1 quantity=10 @uri=/file/acme/x @args=a=1 @request=/file/acme/x?a=1 @method=GET @root~html$ @mine=1 @top=file @class=good @size=small @status=200 @mixed=acme%20200
id=id-accel tenant=acme customer=acme resource=1 quantity=10 @uri=/accel/acme/x @args=a=1 @request=/accel/acme/x?a=1 @method=GET @root~html$ @mine=1 @top=accel @class=good @size=small @status=200 @mixed=acme%20200
id=id-index tenant=acme customer=acme resource=1 quantity=10 @uri=/index/acme/ @args=a=1 @request=/index/acme/?a=1 @method=GET @root~html/$ @mine=1 @top=index @class=good @size=small @status=200 @mixed=acme%20200
id=id-last tenant=acme customer=acme resource=1 quantity=10 @uri=/page/acme/x @args=a=1 @request=/last/acme/x?a=1 @method=GET @root~html$ @mine=1 @top=page @class=good @size=small @status=200 @mixed=acme%20200
id=id-post tenant=acme customer=acme resource=1 quantity=10 @uri=/page/acme/post @args=a=1 @request=/page/acme/post?a=1 @method=POST @root~html$ @mine=1 @top=page @class=good @size=small @status=200 @mixed=acme%20200



=== TEST 17: others see the request as it is now
--- http_config eval: $::ways
--- config eval: $::locations
--- user_files
>>> a.txt
text
--- client
my $client = client();
$client->get('/page/acme/x?a=1');
$client->request('POST', '/page/acme/x?a=1', 'Content-Length: 0');
$client->get('/name/acme/x?a=1');
$client->close;
my @lines;
wait_until('3 lines of the access log', sub {
    open my $file, '<', $ENV{TEST_NGINX_METER_LOG} or return 0;
    @lines = grep { !m{^/version} } <$file>;
    return @lines >= 3;
});
is(join('', @lines), <<"_END_", 'the access log');
/page/acme/x?a=1 /to/globex/x GET globex target to
/page/acme/x?a=1 /to/globex/x GET globex target to
/name/acme/x?a=1 /a.txt GET named target none
_END_



=== TEST 18: values that are all known when the header leaves
--- config
    meter_tenant $arg_t;
    meter_attribute path $uri;
    meter_attribute method $request_method;
    location /m { meter on; root html; error_page 404 405 = /to?t=globex; }
    location /n { meter on; root html; try_files /none /to?t=globex; }
    location /ok { meter on; root html; try_files /none @to; }
    location @to { set $args t=globex; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND; }
    location = /to { proxy_method $request_method; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
--- client
my $client = client();
is($client->get('/m/x?t=acme')->{body}, "ok\n", 'GET');
is($client->request('POST', '/m/y?t=acme', 'Content-Length: 0')->{body}, "ok\n", 'POST');
is($client->get('/n?t=acme')->{body}, "ok\n", 'try_files');
is($client->get('/n')->{body}, "ok\n", 'no tenant is not another one');
is($client->get('/ok?t=acme')->{body}, "ok\n", 'a named location');
$client->close;
--- events
tenant=acme @path=/m/x @method=GET
tenant=acme @path=/m/y @method=POST
tenant=acme @path=/n @method=GET
tenant= @path=/n @method=GET
tenant=acme @path=/ok @method=GET



=== TEST 19: subrequests assign variables, which they share with the request
--- config
    meter_tenant $who;
    meter_customer $mine;
    meter_attribute args $args;
    meter_attribute sent $body_bytes_sent;
    location ~ ^/m/(?<who>[a-z]+) { meter on; set $mine bound; mirror /to/globex; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok?$args; }
    location ~ ^/s/(?<who>[a-z]+) { meter on; set $mine bound; ssi on; ssi_types text/plain; alias html/page.txt; }
    location ~ ^/u/(?<who>[a-z]+) { meter on; set $mine bound; auth_request /auth; auth_request_set $mine granted; alias html/a.txt; }
    location ~ ^/to/(?<who>[a-z]+) { set $mine target; alias html/a.txt; }
    location = /auth { set $mine auth; return 204; }
--- user_files
>>> page.txt
<!--#include virtual="/to/globex?x=2" -->!
>>> a.txt
text
--- client
my $client = client();
is($client->get('/m/acme?x=1')->{body}, "ok\n", 'a mirror');
is($client->get('/s/acme?x=1')->{body}, "text\n!\n", 'SSI');
is($client->get('/u/acme?x=1')->{body}, "text\n", 'auth_request');
$client->close;
--- events
tenant=acme customer=bound @args=x=1 @sent=3
tenant=acme customer=bound @args=x=1 @sent=22
tenant=acme customer=granted @args=x=1 @sent=5



=== TEST 20: redirects of a redirect, and a location that is bound later
--- config
    recursive_error_pages on;
    meter_tenant $1;
    location ~ ^/a/(\w+) { meter on; root html; error_page 404 = /b/globex; }
    location ~ ^/b/(\w+) { meter on; root html; error_page 404 = /c/initech; }
    location ~ ^/c/(\w+) { meter on; root html; try_files /a.txt =404; }
    location ~ ^/free/(\w+) { root html; error_page 404 = /b/globex; }
    location ~ ^/deny/(\w+) { meter on; deny all; error_page 403 = /c/initech; }
--- user_files
>>> a.txt
text
--- request eval
["GET /a/acme", "GET /free/acme", "GET /deny/acme"]
--- error_code eval
[200, 200, 200]
--- events
tenant=acme
tenant=globex
tenant=initech
