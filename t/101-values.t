# What a record holds: the values of a route, evaluated.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/Capture.pm' }

use Test::Nginx::Socket;

repeat_each(1);
plan tests => 65;

our $edge = Edgemeter::Capture->start;

our $bare = <<'_EOC_';
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
    meter_outbox $TEST_NGINX_METER_OUTBOX 1m;
_EOC_

our $id = <<'_EOC_';
    location /m { meter on; meter_event_id $http_idempotency_key; return 204; }
_EOC_

no_long_string();
run_tests();

__DATA__

=== TEST 1: literals in every value
--- http_config eval: $::bare
--- config
    location /m {
        meter on;
        meter_event api.request;
        meter_tenant acme;
        meter_customer "cust 1";
        meter_resource model-7;
        meter_quantity 2.5;
        meter_attribute region eu;
        return 204;
    }
--- request
GET /m
--- error_code: 204
--- events
kind=event type=api.request tenant=acme customer=cust%201 resource=model-7 quantity=2.5 id=minted count=1 ts=now attributes=region @region=eu



=== TEST 2: only what must be there
--- http_config eval: $::bare
--- config
    location /m { meter on; meter_event e; meter_tenant t; return 204; }
--- request
GET /m
--- error_code: 204
--- events
type=e tenant=t customer resource quantity id=minted count=1 attributes=



=== TEST 3: variables in every value
--- http_config eval: $::bare
--- config
    location /m {
        meter on;
        meter_event api.$arg_type;
        meter_tenant $http_x_tenant;
        meter_customer $cookie_customer;
        meter_resource "$request_method $uri";
        meter_quantity $arg_q;
        meter_event_id $http_idempotency_key;
        meter_attribute region $arg_region-1;
        meter_attribute status $status;
        return 204;
    }
--- request
GET /m/x?type=read&q=17&region=eu
--- more_headers
X-Tenant: globex
Cookie: customer=c9
Idempotency-Key: order-1
--- error_code: 204
--- events
type=api.read tenant=globex customer=c9 resource=GET%20/m/x quantity=17 id=order-1 attributes=region,status @region=eu-1 @status=204



=== TEST 4: variables of maps, sets and captures
--- http_config eval
$::bare . '
    map $arg_plan $price { gold 10; default 1; }
'
--- config
    location ~ ^/m/(?<thing>\w+) {
        set $who "t-$arg_t";
        meter on;
        meter_event e;
        meter_tenant $who;
        meter_resource $thing;
        meter_quantity $price;
        meter_attribute first $1;
        return 204;
    }
--- request eval
["GET /m/abc?plan=gold&t=1", "GET /m/def?t=2"]
--- error_code eval
[204, 204]
--- events
type=e tenant=t-1 resource=abc quantity=10 @first=abc
type=e tenant=t-2 resource=def quantity=1 @first=def



=== TEST 5: an empty tenant is recorded as such, and counted
--- config
    location /m { meter on; meter_tenant $http_x_tenant; return 204; }
--- client
my $before = metric('edgemeter_edge_tenant_empty_total');
is(get('/m')->{code}, 204, 'served');
is(get('/m', 'X-Tenant: t')->{code}, 204, 'served');
is(metric('edgemeter_edge_tenant_empty_total') - $before, 1, 'counted');
--- events
tenant= type=request id=minted
tenant=t type=request id=minted



=== TEST 6: the client's id
--- config eval: $::id
--- request
GET /m
--- more_headers
Idempotency-Key: 3f2b0c1e-1111-4222-8333-444455556666
--- error_code: 204
--- events
id=3f2b0c1e-1111-4222-8333-444455556666 flags=captured



=== TEST 7: ids that cannot be used: minted, and counted
--- config eval: $::id
--- client
my $hex = '0123456789abcdef' x 2;
my @bad = ('', 'x' x 256, "caf\xe9", "edge-$hex-1-1", "\xed\xa0\x80",
    "edge-$hex-18446744073709551615-1700000000000000");
my $before = metric('edgemeter_edge_ids_unusable_total');
get('/m', "Idempotency-Key: $_") for @bad;
get('/m');
is(metric('edgemeter_edge_ids_unusable_total') - $before, @bad + 1, 'counted');
--- events
id=minted tenant=acme
id=minted
id=minted
id=minted
id=minted
id=minted
id=minted



=== TEST 8: ids that look odd and are fine
--- config eval: $::id
--- client
my $before = metric('edgemeter_edge_ids_unusable_total');
get('/m', "Idempotency-Key: $_")
    for 'y' x 255, "caf\xc3\xa9", 'edge-1', 'edge-0123456789abcdef-1-1', 'a b';
is(metric('edgemeter_edge_ids_unusable_total') - $before, 0, 'all usable');
--- events eval
'id=' . ('y' x 255) . "\nid=caf%C3%A9\nid=edge-1\nid=edge-0123456789abcdef-1-1\nid=a%20b\n"



=== TEST 9: the quantity as it is evaluated, for meterd to judge
--- config
    location /m { meter on; meter_quantity $arg_q; return 204; }
--- client
get("/m?q=$_") for '0', '1.50', '-3', '1e3', 'many',
    '12345678901234567890123456789.123456789';
--- events
quantity=0
quantity=1.50
quantity=-3
quantity=1e3
quantity=many
quantity=12345678901234567890123456789.123456789



=== TEST 10: attributes keep their order; an empty one is left out
--- config
    location /m {
        meter on;
        meter_attribute b $arg_b;
        meter_attribute a $arg_a;
        meter_attribute empty $arg_none;
        meter_attribute c $arg_c;
        return 204;
    }
--- request
GET /m?a=1&b=2&c=3
--- error_code: 204
--- events
attributes=b,a,c @a=1 @b=2 @c=3 @empty flags=captured



=== TEST 11: attributes of a location replace those above
--- config
    location /m { meter on; meter_attribute mine 1; return 204; }
    location /n { meter on; return 204; }
--- request eval
["GET /m", "GET /n"]
--- error_code eval
[204, 204]
--- events
attributes=mine
attributes=path,status



=== TEST 12: what does not fit a record: the largest attributes go
--- config
    large_client_header_buffers 4 32k;
    location /m {
        meter on;
        meter_attribute small $arg_small;
        meter_attribute big $http_x_big;
        meter_attribute bigger $http_x_bigger;
        meter_attribute last $arg_last;
        return 204;
    }
--- client
my $before = metric('edgemeter_edge_truncated_total');
get('/m?small=s&last=l', 'X-Big: ' . 'b' x 2500, 'X-Bigger: ' . 'c' x 3000);
get('/m?small=s&last=l', 'X-Big: ' . 'b' x 20000, 'X-Bigger: ' . 'c' x 30000);
get('/m?small=s&last=l', 'X-Big: ' . 'b' x 1000, 'X-Bigger: ' . 'c' x 2000);
is(metric('edgemeter_edge_truncated_total') - $before, 2, 'counted');
--- events
attributes=small,big,last flags=captured,truncated
attributes=small,last flags=captured,truncated
attributes=small,big,bigger,last flags=captured



=== TEST 13: many attributes
--- config eval
"location /m { meter on; "
    . CORE::join('', map { "meter_attribute n$_ v\$arg_x$_; " } 1 .. 100)
    . "return 204; }"
--- request
GET /m?x50=y
--- error_code: 204
--- events
@n1=v @n50=vy @n100=v flags=captured



=== TEST 14: bytes that are no text
--- config
    location /m { meter on; meter_customer $http_x_c; meter_attribute h $http_x_h; return 204; }
--- client
get('/m', "X-C: a\xff\xfe", "X-H: \x01\x7f\xc3\xa9");
--- events
customer=a%FF%FE @h=%01%7F%C3%A9



=== TEST 15: the event's time is the request's
--- config
    location /m { meter on; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
--- request
GET /m
--- events
ts=now



=== TEST 16: ids that are minted differ by their sequence
--- config
    location /m { meter on; return 204; }
--- client
get('/m') for 1 .. 5;
flush_ring();
my %seen;
$seen{"$_->{session} $_->{seq}"}++ for @{ arrived() };
is(scalar(keys %seen), 5, 'five of them');



=== TEST 17: the node is told
--- http_config eval
$::edge->http . 'meter_node gw-7;'
--- config
    location /m { meter on; return 204; }
--- client
get('/m');
flush_ring();
my ($session) = map { $_->{session} } @{ arrived() };
my ($hello) = reverse grep { $_->{kind} eq 'hello' && $_->{session} eq $session }
    @{ $::edge->ledger->lines };
is($hello->{node}, 'gw-7', 'node');
like($hello->{build}, qr/./, 'build');
ok($hello->{pid}, 'pid');
--- events
tenant=acme



=== TEST 18: a location says whether a quantity may be below 0
--- config
    location /m { meter on; meter_quantity $http_x_cost; return 204; }
    location /n { meter on; meter_quantity $http_x_cost negative; return 204; }
    location /o { meter on; meter_quantity -2 negative; return 204; }
--- client
my $client = client();
$client->get($_, 'X-Cost: -5') for '/m', '/n', '/o';
$client->close;
--- events
quantity=-5 flags=captured
quantity=-5 flags=captured,negative
quantity=-2 flags=captured,negative
