# meter_capture delta: requests of one key are summed for five seconds.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/Capture.pm' }

use Test::Nginx::Socket;

repeat_each(1);
plan tests => 40;

our $edge = Edgemeter::Capture->start(http => <<'_EOC_');
    meter_capture delta;
_EOC_

no_long_string();
run_tests();

__DATA__

=== TEST 1: requests of one key are one event
--- config
    location /m { meter on; return 204; }
--- client
get('/m') for 1 .. 7;
--- seal
--- events
kind=delta type=request tenant=acme count=7 quantity=7 id=minted ts=bucket customer resource @path=/m @status=204 flags=captured



=== TEST 2: quantities are added, exactly
--- config
    location /m { meter on; meter_quantity $arg_q negative; return 204; }
--- client
get("/m?q=$_") for '0.1', '0.2', '1000000000000000000000000000', '-0.3',
    '0.000000001';
--- seal
--- events
kind=delta count=5 quantity=1000000000000000000000000000.000000001



=== TEST 3: every part of the key counts
--- config
    location /m {
        meter on;
        meter_event $arg_type;
        meter_tenant $arg_t;
        meter_customer $arg_c;
        meter_resource $arg_r;
        meter_attribute a $arg_a;
        meter_attribute b $arg_b;
        return 204;
    }
--- client
my @keys = ('type=x&t=1', 'type=y&t=1', 'type=x&t=2', 'type=x&t=1&c=1',
    'type=x&t=1&r=1', 'type=x&t=1&a=1', 'type=x&t=1&b=1');
for my $round (1 .. 3) {
    get("/m?$_") for @keys;
}
--- seal
--- unordered
--- events
kind=delta type=x tenant=1 customer resource @a @b count=3
kind=delta type=y tenant=1 customer resource @a @b count=3
kind=delta type=x tenant=2 customer resource @a @b count=3
kind=delta type=x tenant=1 customer=1 resource @a @b count=3
kind=delta type=x tenant=1 customer resource=1 @a @b count=3
kind=delta type=x tenant=1 customer resource @a=1 @b count=3
kind=delta type=x tenant=1 customer resource @a @b=1 count=3



=== TEST 4: the status is part of the key when it is an attribute
--- config
    location ~ ^/m/(?<code>\d+) { meter on; meter_attribute status $status; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/status/$code; }
--- client
get("/m/$_") for 200, 404, 200, 500, 200, 403;
--- seal
--- unordered
--- events
kind=delta count=3 @status=200
kind=delta count=1 @status=404
kind=delta count=1 @status=500



=== TEST 5: a quantity that is none becomes an event of its own
--- config
    location /m { meter on; meter_quantity $arg_q; return 204; }
--- client
get("/m?q=$_") for '1', 'many', '2', '1e400', '3';
--- seal
--- unordered
--- events
quantity=many count=1
quantity=1e400 count=1
kind=delta quantity=6 count=3



=== TEST 6: a sum that would be too large is two
--- config
    location /m { meter on; meter_quantity $arg_q; return 204; }
--- client
get("/m?q=$_") for ('99999999999999999999999999999') x 2;
flush_ring();
reload();
wait_until('both', sub {
    my $count = 0;
    $count += $_->{count} for @{ arrived() };
    return $count == 2;
});
my $total = 0;
$total += $_->{count} for @{ arrived() };
is($total, 2, 'both are there');
is(scalar(grep { $_->{quantity} ne '99999999999999999999999999999' }
    @{ arrived() }), 0, 'neither was added');



=== TEST 7: more keys than cells: one by one
--- http_config
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
    meter_outbox $TEST_NGINX_METER_OUTBOX-small 256k;
    meter_event request;
    meter_tenant acme;
    meter_capture delta;
--- config
    location /m { meter on; meter_attribute n $arg_n; return 204; }
--- client
my $before = metric('edgemeter_edge_cells_full_total');
my $client = client();
$client->get("/m?n=$_") for 1 .. 400;
$client->close;
ok(metric('edgemeter_edge_cells_full_total') > $before, 'counted');
flush_ring();
reload();
my %count;
wait_until('all', sub {
    %count = ();
    $count{ $_->{attributes}[0][1] } += $_->{count} for @{ arrived() };
    return keys %count == 400;
});
is(scalar(grep { $_ != 1 } values %count), 0, 'each once');
ok((grep { $_->{kind} eq 'event' } @{ arrived() }), 'some as events');
ok((grep { $_->{kind} eq 'delta' } @{ arrived() }), 'some as deltas');



=== TEST 8: a key that is too long for a cell: an event
--- config
    location /m { meter on; meter_attribute long $http_x_long; return 204; }
--- client
get('/m', 'X-Long: ' . 'l' x 1000) for 1 .. 2;
get('/m');
--- seal
--- unordered
--- events
kind=event count=1 @long~^l{1000}$
kind=event count=1 @long~^l{1000}$
kind=delta count=1 @long



=== TEST 9: a bucket ends by itself
--- config
    location /m { meter on; return 204; }
--- client
get('/m') for 1 .. 3;
wait_until('delta', sub { @{ arrived() } }, 8);
--- seal
--- events
kind=delta count=3 quantity=3 ts=bucket



=== TEST 10: late values are part of the key at the end
--- config
    location /m { meter on; meter_quantity $body_bytes_sent; meter_attribute up $upstream_status; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }
--- client
get('/m') for 1 .. 4;
--- seal
--- events
kind=delta count=4 quantity=12 @up=200



=== TEST 11: filtered requests are in no sum
--- config
    location /m { meter on; meter_if $arg_if; return 204; }
--- client
get("/m?if=$_") for 1, 0, 1, 0;
--- seal
--- events
kind=delta count=2 quantity=2



=== TEST 12: a quantity below 0 that is not allowed does not vanish in a sum
--- config
    location /m { meter on; meter_quantity $arg_q; return 204; }
--- client
get("/m?q=$_") for '7', '-5', '-0', '3';
--- seal
--- unordered
--- events
kind=event quantity=-5 count=1 flags=captured
kind=delta quantity=10 count=3
