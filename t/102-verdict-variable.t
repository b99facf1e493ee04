# $meter_verdict, $meter_tenant and $meter_event_id.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/Capture.pm' }

use Test::Nginx::Socket;

repeat_each(1);
plan tests => 49;

our $edge = Edgemeter::Capture->start(http => <<'_EOC_');
    log_format verdict '$request_uri|$meter_verdict|$meter_tenant|$meter_event_id';
    access_log $TEST_NGINX_METER_LOG verdict;
_EOC_

# The lines of a block's access log about /m, once there are so many.
sub logged {
    my ($count) = @_;

    my @lines;
    wait_until("$count lines of the access log", sub {
        open my $file, '<', $ENV{TEST_NGINX_METER_LOG} or return 0;
        @lines = map { m{^/m[^|]*\|(.*)\n} ? $1 : () } <$file>;
        return @lines >= $count;
    });
    return @lines;
}

no_long_string();
run_tests();

__DATA__

=== TEST 1: recorded; the minted id is in the log
--- config
    location /m { meter on; return 204; }
--- client
get('/m');
my ($line) = logged(1);
like($line, qr/^recorded\|acme\|edge-[0-9a-f]{32}-\d+-\d{16}$/, 'logged');
flush_ring();
my ($event) = @{ arrived() };
is($line, "recorded|acme|edge-$event->{session}-$event->{seq}-$event->{ts}",
    'the id that the record stands for');
--- events
tenant=acme id=minted



=== TEST 2: recorded with the client's id
--- config
    location /m { meter on; meter_tenant $arg_t; meter_event_id $arg_id; return 204; }
--- client
get('/m?t=globex&id=order-1');
is(join(' ', logged(1)), 'recorded|globex|order-1', 'logged');
--- events
tenant=globex id=order-1



=== TEST 3: filtered
--- config
    location /m { meter on; meter_if $arg_if; return 204; }
--- client
get('/m?if=0');
like(join(' ', logged(1)), qr/^filtered\|(acme|-?)\|-?$/, 'logged');
--- events



=== TEST 4: not metered
--- config
    location /m { return 204; }
--- client
get('/m');
is(join(' ', logged(1)), '-|-|-', 'logged');
--- events



=== TEST 5: a duplicate
--- http_config eval
$::edge->http . 'meter_zone ids 64k;'
--- config
    location /m { meter on; meter_event_id $arg_id; return 204; }
--- client
get('/m?id=dup-5');
settle();
get('/m?id=dup-5');
is(join(' ', logged(2)), 'recorded|acme|dup-5 duplicate|acme|dup-5', 'logged');
--- events
kind=event id=dup-5 verdict=accepted
kind=dupnote id=dup-5 verdict=duplicate



=== TEST 6: lost
--- http_config
    log_format verdict '$request_uri|$meter_verdict|$meter_tenant|$meter_event_id';
    access_log $TEST_NGINX_METER_LOG verdict;
    meter_aggregator unix:$TEST_NGINX_METER_AWAY;
    meter_outbox $TEST_NGINX_METER_OUTBOX-small 256k;
    meter_event request;
    meter_tenant acme;
--- config
    location /m { meter on; meter_attribute fill $http_x_fill; return 204; }
--- client
my $client = client();
$client->get('/m', 'X-Fill: ' . 'f' x 3500) for 1 .. 100;
$client->close;
my @lines = logged(100);
is(scalar(grep { /^recorded\|acme\|edge-/ } @lines)
    + scalar(grep { /^lost\|acme\|-?$/ } @lines), 100, 'one or the other');
like($lines[0], qr/^recorded/, 'the first fits');
like($lines[99], qr/^lost/, 'the last does not');



=== TEST 7: rejected
--- http_config
    log_format verdict '$request_uri|$meter_verdict|$meter_tenant|$meter_event_id';
    access_log $TEST_NGINX_METER_LOG verdict;
    meter_aggregator unix:$TEST_NGINX_METER_AWAY;
    meter_outbox $TEST_NGINX_METER_OUTBOX-small 256k;
    meter_event request;
    meter_tenant acme;
    meter_overflow reject;
--- config
    location /m { meter on; meter_attribute fill $http_x_fill; root html; try_files /a.txt =404; }
--- user_files
>>> a.txt
x
--- client
my $client = client();
$client->get('/m', 'X-Fill: ' . 'f' x 3500) for 1 .. 100;
$client->close;
my @lines = logged(100);
like($lines[0], qr/^recorded/, 'the first fits');
like($lines[99], qr/^rejected\|/, 'the last does not');
is(scalar(grep { /^lost/ } @lines), 0, 'none is lost');



=== TEST 8: in a header it is not decided yet, and that does not stick
--- config
    location /m { meter on; add_header X-Verdict "[$meter_verdict]"; add_header X-Id "[$meter_event_id]"; add_header X-Tenant "[$meter_tenant]"; return 200 "m\n"; }
--- client
my $answer = get('/m');
like($answer->{head}, qr/^X-Verdict: \[\]\r$/m, 'no verdict');
like($answer->{head}, qr/^X-Id: \[\]\r$/m, 'no id');
like((logged(1))[0], qr/^recorded\|acme\|edge-/, 'logged');
--- events
tenant=acme



=== TEST 9: in a trailer it is
--- config
    location /m { meter on; meter_event_id $arg_id; add_trailer X-Verdict $meter_verdict; add_trailer X-Id $meter_event_id; proxy_http_version 1.1; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/chunked; }
--- client
my $client = client();
$client->send("GET /m?id=nine HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
$client->is_closed;
like($client->take(10000),
    qr/\r\n0\r\nX-Verdict: recorded\r\nX-Id: nine\r\n\r\n$/, 'trailer');
--- events
id=nine



=== TEST 10: conditional logging by verdict
--- http_config eval
my $http = $::edge->http;
$http =~ s/_LOG verdict;/_LOG verdict if=\$lost;/;
$http . 'map $meter_verdict $lost { lost 1; filtered 1; default 0; }'
--- config
    location /m { meter on; meter_if $arg_if; return 204; }
--- client
get('/m?if=1');
get('/m?if=0');
get('/m?if=1');
like(join(' ', logged(1)), qr/^filtered\|\S*$/, 'only that one');
--- events
tenant=acme
tenant=acme



=== TEST 11: the values of a late route
--- config
    location /m { meter on; meter_attribute sent $bytes_sent; return 200 "m\n"; }
--- client
get('/m');
like((logged(1))[0], qr/^recorded\|acme\|edge-[0-9a-f]{32}-\d+-\d{16}$/, 'logged');
--- events
tenant=acme @sent~^\d{3}$
