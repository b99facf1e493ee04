# Values that are known only at the end of a request.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/Capture.pm' }

use Test::Nginx::Socket;

repeat_each(1);
plan tests => 50;

our $edge = Edgemeter::Capture->start(http => <<'_EOC_');
    map $status $class { ~^2 good; default bad; }
    map $bytes_sent $size { default small; "~^\d{6,}$" large; }
_EOC_

no_long_string();
worker_connections(512);
run_tests();

__DATA__

=== TEST 1: bytes sent
--- config
    location / { root html; meter on; meter_quantity $body_bytes_sent; meter_attribute all $bytes_sent; }
--- user_files
>>> a.txt
0123456789
--- request
GET /a.txt
--- events
quantity=11 @all~^[23]\d\d$ flags=captured



=== TEST 2: all bytes of a long body
--- config
    location /m { meter on; meter_quantity $body_bytes_sent; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/stream/20; }
--- client
is(length get('/m')->{body}, 20 * 65536, 'body');
--- events
quantity=1310720



=== TEST 3: a map of what is known late is not fixed early
--- config
    location /m { meter on; meter_attribute size $size; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/stream/2; }
--- client
get('/m');
--- events
@size=large



=== TEST 4: a map of the status
--- config
    location / { root html; meter on; meter_attribute class $class; meter_attribute status $status; }
--- user_files
>>> a.txt
0123456789
--- client
get('/a.txt');
get('/none');
get('/a.txt', 'Range: bytes=2-3');
get('/a.txt', 'Range: bytes=50-');
--- events
@class=good @status=200
@class=bad @status=404
@class=good @status=206
@class=bad @status=416



=== TEST 5: the upstream's own
--- config
    location /m { meter on; meter_attribute us $upstream_status; meter_attribute len $upstream_response_length; meter_attribute t $upstream_response_time; meter_attribute x $upstream_http_content_type; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
--- request
GET /m
--- events
@us=200 @len=3 @t~^\d\.\d{3}$ @x=text/plain



=== TEST 6: an upstream's list of statuses is kept as text
--- http_config eval
$::edge->http . '
    upstream two {
        server unix:$TEST_NGINX_METER_DEAD;
        server unix:$TEST_NGINX_METER_BACKEND backup;
    }
'
--- config
    location /m { meter on; meter_quantity $upstream_response_length; meter_attribute us $upstream_status; proxy_pass http://two/ok; }
--- request
GET /m
--- events
@us=502,%20200 quantity=0,%203



=== TEST 7: the time it took
--- config
    location /m { meter on; meter_attribute took $request_time; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
--- request
GET /m
--- events
@took~^\d\.\d{3}$



=== TEST 8: the time of a slow one is the whole time
--- config
    location /m { meter on; meter_attribute took $request_time; proxy_buffering off; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/gate/l8; }
--- client
my $client = client();
$client->send("GET /m HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
is($client->take(15), 'HTTP/1.1 200 OK', 'the header is here');
my $until = Time::HiRes::time() + 0.3;
wait_until('time', sub { Time::HiRes::time() > $until });
is(scalar @{ arrived() }, 0, 'nothing before its end');
$::edge->backend->open_gate('l8');
$client->is_closed;
--- events
@took~^(0\.[3-9]\d\d|[1-9]\d*\.\d+)$



=== TEST 9: the recorded status is the header's, whatever comes later
--- config
    location /m { meter on; meter_attribute sent $bytes_sent; meter_attribute status $status; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/gate/l9; }
--- client
my $client = client();
$client->send("GET /m HTTP/1.1\r\nHost: localhost\r\n\r\n");
wait_until('call', sub { grep { /l9/ } $::edge->backend->calls });
my $until = Time::HiRes::time() + 0.1;
wait_until('time', sub { Time::HiRes::time() > $until });
$client->close;
--- events
@status=200 @sent~^\d+$



=== TEST 10: no header at all
--- config
    meter_attribute path $uri;
    meter_attribute status $status;
    meter_attribute sent $bytes_sent;
    location /m { meter on; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/hold/l10; }
    location /n { meter on; return 444; }
--- client
my $client = client();
$client->send("GET /m HTTP/1.1\r\nHost: localhost\r\n\r\n");
wait_until('call', sub { grep { /l10/ } $::edge->backend->calls });
$client->close;
wait_until('event', sub { @{ arrived() } });
my $other = client();
$other->send("GET /n HTTP/1.1\r\nHost: localhost\r\n\r\n");
$other->is_closed;
--- events
@path=/m @status=499 @sent=0
@path=/n @status=444 @sent=0



=== TEST 11: a client's id and a minted one
--- config
    location /m { meter on; meter_event_id $arg_id; meter_attribute sent $bytes_sent; return 204; }
--- request eval
["GET /m?id=late-1", "GET /m"]
--- error_code eval
[204, 204]
--- events
id=late-1
id=minted



=== TEST 12: over redirects and subrequests
--- config
    location /m { meter on; meter_attribute sent $body_bytes_sent; meter_attribute status $status; auth_request /auth; mirror /copy; root html; error_page 404 = @other; }
    location @other { meter on; meter_event other; return 200 "other\n"; }
    location = /auth { meter on; meter_event auth; return 204; }
    location = /copy { meter on; meter_event copy; return 204; }
--- request
GET /m/none
--- response_body
other
--- events
type=request @status=200 @sent=6



=== TEST 13: more requests in flight than slots
--- http_config
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
    meter_outbox $TEST_NGINX_METER_OUTBOX-small 256k;
    meter_event request;
    meter_tenant acme;
--- config
    location /m { meter on; meter_attribute n $arg_n; meter_attribute sent $body_bytes_sent; proxy_buffering off; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/gate/l13; }
--- client
my $before = metric('edgemeter_edge_slots_full_total');
my @clients = map { client() } 1 .. 80;
$clients[$_]->send("GET /m?n=$_ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    for 0 .. $#clients;
$_->take(15) for @clients;
$::edge->backend->open_gate('l13');
$_->is_closed for @clients;
flush_ring();
my %seen;
$seen{ $_->{attributes}[0][1] }++ for @{ arrived() };
is(scalar(keys %seen), 80, 'all are there');
is(scalar(grep { $_ != 1 } values %seen), 0, 'once');
cmp_ok(metric('edgemeter_edge_slots_full_total'), '>', $before, 'counted');



=== TEST 14: slots are used again
--- http_config
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
    meter_outbox $TEST_NGINX_METER_OUTBOX-small 256k;
    meter_event request;
    meter_tenant acme;
--- config
    location /m { meter on; meter_quantity $body_bytes_sent; return 200 "m\n"; }
    location /if { meter on; meter_if $arg_x; meter_quantity $body_bytes_sent; return 204; }
    location /cut { meter on; meter_quantity $body_bytes_sent; return 444; }
    location /file { meter on; meter_quantity $body_bytes_sent; root html; }
--- client
my $before = metric('edgemeter_edge_slots_full_total');
my $client = client();
for (1 .. 100) {
    $client->get($_) for '/m', '/if', '/file';
}
$client->close;
for (1 .. 70) {
    my $cut = client();
    $cut->send("GET /cut HTTP/1.1\r\nHost: localhost\r\n\r\n");
    $cut->is_closed;
}
flush_ring();
is(metric('edgemeter_edge_slots_full_total'), $before, 'there was always one');
is(scalar @{ arrived() }, 270, 'all are there');
