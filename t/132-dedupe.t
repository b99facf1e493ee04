# The zone: ids known to be durable are called duplicates at once.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/Capture.pm' }

use Test::Nginx::Socket;

repeat_each(1);
plan tests => 43;

our $edge = Edgemeter::Capture->start(http => <<'_EOC_');
    meter_zone ids 64k;
_EOC_

our $metered = <<'_EOC_';
    location /m {
        meter on;
        meter_event $arg_type;
        meter_tenant $arg_t;
        meter_event_id $arg_id;
        meter_customer $arg_c;
        meter_resource $arg_r;
        meter_attribute fake $arg_fake;
        meter_attribute status $status;
        add_trailer X-Verdict $meter_verdict;
        return 204;
    }
_EOC_

no_long_string();
run_tests();

__DATA__

=== TEST 1: known and durable: a note instead of an event
--- config eval: $::metered
--- client
get('/m?type=e&t=t1&id=a');
settle();
get('/m?type=e&t=t1&id=a') for 1 .. 2;
--- events
kind=event type=e tenant=t1 id=a verdict=accepted
kind=dupnote type=e tenant=t1 id=a ts=now verdict=duplicate
kind=dupnote type=e tenant=t1 id=a ts=now verdict=duplicate



=== TEST 2: without an answer yet: forwarded as an event
--- config eval: $::metered
--- client
$::edge->ledger->tell(hold => 1);
get('/m?type=e&t=t2&id=a') for 1 .. 3;
$::edge->ledger->tell(hold => 0);
settle();
get('/m?type=e&t=t2&id=a');
--- events
kind=event id=a verdict=accepted
kind=event id=a verdict=duplicate
kind=event id=a verdict=duplicate
kind=dupnote id=a verdict=duplicate



=== TEST 3: other content: always forwarded
--- config eval: $::metered
--- client
get('/m?type=e&t=t3&id=a&c=1&r=1');
settle();
get('/m?type=f&t=t3&id=a&c=1&r=1');
get('/m?type=e&t=t3&id=a&c=2&r=1');
get('/m?type=e&t=t3&id=a&c=1&r=2');
settle();
get('/m?type=e&t=t3&id=a&c=1&r=1');
--- events
kind=event id=a verdict=accepted
kind=event id=a verdict=conflict
kind=event id=a verdict=conflict
kind=event id=a verdict=conflict
kind=dupnote id=a verdict=duplicate



=== TEST 4: status, quantity and attributes are no part of the content
--- config
    location /m { meter on; meter_event e; meter_tenant t4; meter_event_id $arg_id; meter_quantity $arg_q; meter_attribute x $arg_x; if ($arg_x = 2) { return 404; } return 204; }
--- client
get('/m?id=a&q=1&x=1');
settle();
get('/m?id=a&q=2&x=2');
--- events
kind=event quantity=1 @x=1
kind=dupnote quantity=2 @x=2



=== TEST 5: another tenant's id is another id
--- config eval: $::metered
--- client
get('/m?type=e&t=t5a&id=a');
settle();
get('/m?type=e&t=t5b&id=a');
--- events
kind=event tenant=t5a id=a verdict=accepted
kind=event tenant=t5b id=a verdict=accepted



=== TEST 6: rejected and in conflict: forgotten, forwarded again
--- config eval: $::metered
--- client
get('/m?type=e&t=t6&id=a&fake=rejected');
settle();
get('/m?type=e&t=t6&id=a');
get('/m?type=e&t=t6&id=b&fake=conflict');
settle();
get('/m?type=e&t=t6&id=b');
--- events
kind=event id=a verdict=rejected
kind=event id=a verdict=accepted
kind=event id=b verdict=conflict
kind=event id=b verdict=accepted



=== TEST 7: a duplicate in the registry is durable, too
--- config eval: $::metered
--- client
get('/m?type=e&t=t7&id=a&fake=duplicate');
settle();
get('/m?type=e&t=t7&id=a');
--- events
kind=event id=a verdict=duplicate
kind=dupnote id=a



=== TEST 8: another database: everything is forgotten
--- config eval: $::metered
--- client
get('/m?type=e&t=t8&id=a');
settle();
get('/m?type=e&t=t8&id=a');
get('/m?type=e&t=t8&id=b&fake=hello:epoch:' . time);
settle();
wait_until('new link', sub {
    grep { $_->{kind} eq 'word' && $_->{word} =~ /^epoch/ }
        @{ $::edge->ledger->lines($::edge->{from}) };
});
settle();
get('/m?type=e&t=t8&id=a');
--- events
kind=event id=a verdict=accepted
kind=dupnote id=a verdict=duplicate
kind=event id=b verdict=accepted
kind=event id=a verdict=duplicate



=== TEST 9: a database that went back: everything is forgotten
--- config eval: $::metered
--- alerts: the database went back in time
--- client
get('/m?type=e&t=t9&id=a');
settle();
get('/m?type=e&t=t9&id=b&fake=hello:rewind:1');
settle();
wait_until('new link', sub {
    grep { $_->{kind} eq 'word' && $_->{word} =~ /^rewind/ }
        @{ $::edge->ledger->lines($::edge->{from}) };
});
settle();
get('/m?type=e&t=t9&id=a');
settle();
my ($last) = reverse @{ arrived() };
is($last->{kind}, 'event', 'forwarded');
is($last->{event_id}, 'a', 'the same id');



=== TEST 10: minted ids are none of the zone's business
--- config
    location /m { meter on; meter_event e; meter_tenant t10; return 204; }
--- client
get('/m');
settle();
get('/m');
--- events
kind=event id=minted
kind=event id=minted



=== TEST 11: no zone: every event is forwarded
--- http_config
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
    meter_outbox $TEST_NGINX_METER_OUTBOX 1m;
--- config eval: $::metered
--- client
get('/m?type=e&t=t11&id=a');
settle();
get('/m?type=e&t=t11&id=a');
--- events
kind=event id=a verdict=accepted
kind=event id=a verdict=duplicate



=== TEST 12: a tiny zone and many ids: evicted, never wrong
--- http_config
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
    meter_outbox $TEST_NGINX_METER_OUTBOX 1m;
    meter_zone ids 32k;
--- config eval: $::metered
--- client
my $evictions = metric('edgemeter_edge_zone_evictions_total');
for my $round (1, 2) {
    my $client = client();
    $client->get("/m?type=e&t=t12&id=id-$_") for 1 .. 900;
    $client->close;
    settle();
}
cmp_ok(metric('edgemeter_edge_zone_evictions_total'), '>', $evictions,
    'some had to go');
my %count;
$count{"$_->{kind} $_->{verdict}"}++ for @{ arrived() };
is($count{'event accepted'}, 900, 'each accepted once');
is(($count{'event duplicate'} // 0) + ($count{'dupnote duplicate'} // 0), 900,
    'and once more as a duplicate');
is(scalar(keys %count), $count{'dupnote duplicate'} ? 3 : 2, 'nothing else');



=== TEST 13: late values and ids
--- config
    location /m { meter on; meter_event e; meter_tenant t13; meter_event_id $arg_id; meter_attribute sent $bytes_sent; return 204; }
--- client
get('/m?id=a');
settle();
get('/m?id=a');
--- events
kind=event id=a verdict=accepted
kind=dupnote id=a verdict=duplicate
