# What is not billed: meter_if, and without it some statuses.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/Capture.pm' }

use Test::Nginx::Socket;

repeat_each(1);
plan tests => 91;

our $edge = Edgemeter::Capture->start;

# What nginx refuses before it looks for a location.
sub refused {
    my @only = @_;

    my %text = (
        414 => 'GET /' . 'x' x 3000 . " HTTP/1.1\r\nHost: localhost\r\n\r\n",
        505 => "GET /m HTTP/3.0\r\nHost: localhost\r\n\r\n",
        501 => "GET /m HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: identity\r\n\r\n",
        405 => "TRACE /m HTTP/1.1\r\nHost: localhost\r\n\r\n",
    );
    for my $code (sort @only) {
        my $client = client();
        $client->send($text{$code});
        is($client->receive->{code}, $code, "$code: refused");
        $client->is_closed;
    }
    return;
}

no_long_string();
run_tests();

__DATA__

=== TEST 1: without meter_if: all but 400, 401, 403, 408 and 494 of upstreams
--- config
    location ~ ^/m/(?<code>\d+) { meter on; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/status/$code; }
--- client
is(get("/m/$_")->{code}, $_, "status $_") for 200, 204, 400, 401, 402, 403, 404, 408,
    409, 414, 429, 494, 499, 500, 501, 502, 503, 505;
--- events
@status=200
@status=204
@status=402
@status=404
@status=409
@status=414
@status=429
@status=499
@status=500
@status=501
@status=502
@status=503
@status=505



=== TEST 2: the same by nginx's own hand
--- config
    location = /401 { meter on; auth_basic x; auth_basic_user_file /dev/null; }
    location = /403 { meter on; deny all; }
    location = /404 { meter on; root html; }
    location = /405 { meter on; limit_except GET { deny all; } empty_gif; }
--- client
is(get("/$_")->{code}, $_, "status $_") for 401, 403, 404;
is(client()->request('PUT', '/405')->{code}, 403, 'not allowed');
--- events
@status=404



=== TEST 3: a header that is too large
--- config
    meter on;
    large_client_header_buffers 2 1k;
    location /m { return 204; }
--- client
is(get('/m', 'X-Large: ' . 'x' x 3000)->{code}, 400, 'refused');
is(get('/m')->{code}, 204, 'served');
--- events
@status=204



=== TEST 4: no Host
--- config
    meter on;
    location /m { return 204; }
--- client
my $client = client();
$client->send("GET /m HTTP/1.1\r\n\r\n");
is($client->receive->{code}, 400, 'refused');
--- events



=== TEST 5: meter_if takes anything but empty and 0
--- config
    location /m { meter on; meter_if $arg_if; return 204; }
--- client
get("/m?if=$_&n") for '1', '0', '', 'no', '00', '0.0', '-1';
get('/m');
--- events
@path=/m
@path=/m
@path=/m
@path=/m
@path=/m



=== TEST 6: meter_if replaces the default list
--- config
    location /m { meter on; meter_if 1; return 403; }
    location /n { meter on; meter_if 0; return 200; }
--- request eval
["GET /m", "GET /n"]
--- error_code eval
[403, 200]
--- events
@path=/m @status=403



=== TEST 7: only 2xx, by a map of the status
--- http_config eval
$::edge->http . 'map $status $billed { ~^2 1; default 0; }'
--- config
    location ~ ^/m/(?<code>\d+) { meter on; meter_if $billed; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/status/$code; }
--- client
get("/m/$_") for 200, 304, 404, 500, 204, 503;
--- events
@status=200
@status=204



=== TEST 8: only 2xx, where nginx itself answers
--- http_config eval
$::edge->http . 'map $status $billed { ~^2 1; default 0; }'
--- config
    location / { meter on; meter_if $billed; root html; }
    location /dead { meter on; meter_if $billed; proxy_pass http://unix:$TEST_NGINX_METER_DEAD:/; }
--- user_files
>>> a.txt
0123456789
--- client
get('/a.txt');
get('/none');
get('/a.txt', 'Range: bytes=1-2');
get('/a.txt', 'Range: bytes=100-');
get('/dead');
--- events
@status=200
@status=206



=== TEST 9: the status itself as the filter
--- config
    location /m { meter on; meter_if $status; return 204; }
--- request
GET /m
--- error_code: 204
--- events
@status=204



=== TEST 10: by the upstream's word
--- config
    location /ok { meter on; meter_if $upstream_status; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
    location /none { meter on; meter_if $upstream_status; root html; }
--- request eval
["GET /ok", "GET /none"]
--- error_code eval
[200, 404]
--- events
@path=/ok @status=200



=== TEST 11: meter_if is inherited, and replaced
--- config
    meter_if $arg_if;
    location /m { meter on; return 204; }
    location /n { meter on; meter_if 1; return 204; }
--- request eval
["GET /m", "GET /m?if=1", "GET /n"]
--- error_code eval
[204, 204, 204]
--- events
@path=/m
@path=/n



=== TEST 12: filtered requests are counted
--- config
    location /m { meter on; meter_if $arg_if; return 204; }
--- client
my $before = metric('edgemeter_edge_requests_filtered_total');
get("/m?if=$_") for 0, 1, 0;
flush_ring();
is(metric('edgemeter_edge_requests_filtered_total') - $before, 2, 'two');
--- events
@path=/m



=== TEST 13: a client that left is billed unless the filter says no
--- http_config eval
$::edge->http . 'map $status $billed { 499 0; default 1; }'
--- config
    location /m { meter on; meter_if $billed; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/hold/f13; }
--- client
my $client = client();
$client->send("GET /m HTTP/1.1\r\nHost: localhost\r\n\r\n");
wait_until('call', sub { grep { /f13/ } $::edge->backend->calls });
$client->close;
--- events



=== TEST 14: what reached no location is not billed
--- config
    meter on;
    large_client_header_buffers 2 1k;
    keepalive_timeout 0;
    location / { return 204; }
--- client
my $before = metric('edgemeter_edge_requests_filtered_total');
refused(414, 501, 505, 405);
get('/m');
flush_ring();
is(metric('edgemeter_edge_requests_filtered_total') - $before, 4, 'all are filtered');
is(metric('edgemeter_edge_conservation_gap'), 0, 'the sum is right');
--- events
@path=/m @status=204



=== TEST 15: nor is it with an error page of its own
--- config
    meter on;
    large_client_header_buffers 2 1k;
    keepalive_timeout 0;
    error_page 414 /sorry;
    error_page 501 /sorry/too;
    error_page 505 /sorry/again;
    location = /sorry { root html; try_files /a.txt =404; }
    location = /sorry/too { proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
    location = /sorry/again { return 505 "sorry\n"; }
--- user_files
>>> a.txt
sorry
--- client
refused(414, 501, 505);
--- events



=== TEST 16: meter_if bills it where one wants to
--- config
    meter on;
    meter_if 1;
    large_client_header_buffers 2 1k;
    keepalive_timeout 0;
    location / { return 204; }
--- client
refused(405, 414, 501, 505);
--- events
@status=405
@status=414
@status=501
@status=505
