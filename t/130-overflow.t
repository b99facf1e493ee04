# No room in the outbox: requests are served and counted as lost, or refused.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/Capture.pm' }

use Test::Nginx::Socket;

repeat_each(1);
plan tests => 58;

our $edge = Edgemeter::Capture->start;

our $small = <<'_EOC_';
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
    meter_outbox $TEST_NGINX_METER_OUTBOX-small 256k;
    meter_event request;
    meter_tenant acme;
    meter_attribute n $arg_n;
    meter_attribute fill $http_x_fill;
_EOC_

# So many requests with large records; the codes they got.
sub fill {
    my ($path, $from, $to) = @_;

    my $client = client();
    my @codes = map {
        $client->get("$path?n=$_", 'X-Fill: ' . 'f' x 3000)->{code};
    } $from .. $to;
    $client->close;
    return @codes;
}

# What arrived, when so many requests are accounted for.
sub accounted {
    my ($total) = @_;

    my (@events, $lost);
    wait_until("$total requests", sub {
        @events = grep { $_->{kind} ne 'lossnote' } @{ arrived() };
        $lost = 0;
        $lost += $_->{count}
            for grep { $_->{kind} eq 'lossnote' } @{ arrived() };
        return @events + $lost >= $total;
    });
    return (\@events, $lost);
}

no_long_string();
run_tests();

__DATA__

=== TEST 1: pass: served, and what is lost is told exactly
--- http_config eval: $::small
--- config
    location /m { meter on; return 204; }
--- client
my $before = metric('edgemeter_edge_requests_unrecorded_total');
$::edge->ledger->tell(hold => 1);
my @codes = fill('/m', 1, 120);
is(scalar(grep { $_ != 204 } @codes), 0, 'all are served');
$::edge->ledger->tell(hold => 0);
my ($events, $lost) = accounted(120);
flush_ring();
($events, $lost) = accounted(120);
is(@$events + $lost, 120, 'each is an event or lost');
cmp_ok($lost, '>', 20, 'some are lost');
cmp_ok(scalar(@$events), '>', 30, 'some are not');
is(join(' ', map { $_->{attributes}[0][1] } @$events),
    join(' ', 1 .. @$events), 'the first ones');
my ($note) = grep { $_->{kind} eq 'lossnote' } @{ arrived() };
is("@{ $note->{reasons} }", 'full', 'reason');
cmp_ok($note->{first}, '<=', $note->{last}, 'from, to');
is(metric('edgemeter_edge_requests_unrecorded_total') - $before, $lost,
    'the metric');



=== TEST 2: pass: the ring is used again when there is room
--- http_config eval: $::small
--- config
    location /m { meter on; return 204; }
--- client
my ($total, $told) = (0, 0);
for my $round (1, 2) {
    $::edge->ledger->tell(hold => 1);
    fill('/m', 1, 100);
    $::edge->ledger->tell(hold => 0);
    $total += 100;
    my ($events, $lost) = accounted($total);
    is(@$events + $lost, $total, "round $round");
    cmp_ok($lost, '>', $told, 'some are lost');
    $told = $lost;
}
flush_ring();
my ($events, $lost) = accounted($total);
is(@$events + $lost, $total, 'at the end');



=== TEST 3: pass: late routes
--- http_config eval: $::small
--- config
    location /m { meter on; meter_attribute n $arg_n; meter_attribute fill $http_x_fill; meter_attribute sent $bytes_sent; return 204; }
--- client
$::edge->ledger->tell(hold => 1);
my @codes = fill('/m', 1, 120);
is(scalar(grep { $_ != 204 } @codes), 0, 'all are served');
$::edge->ledger->tell(hold => 0);
accounted(120);
flush_ring();
my ($events, $lost) = accounted(120);
is(@$events + $lost, 120, 'each is an event or lost');
cmp_ok($lost, '>', 20, 'some are lost');



=== TEST 4: pass: deltas keep their sums while there is no room
--- http_config eval: $::small . 'meter_capture delta;'
--- config
    location /m { meter on; meter_capture event; return 204; }
    location /d { meter on; meter_attribute d 1; return 204; }
--- client
$::edge->ledger->tell(hold => 1);
fill('/m', 1, 120);
get('/d') for 1 .. 10;
$::edge->ledger->tell(hold => 0);
accounted(120);
flush_ring();
reload();
wait_until('sum', sub {
    my $count = 0;
    $count += $_->{count} for grep { $_->{kind} eq 'delta' } @{ arrived() };
    return $count == 10;
});
my ($events, $lost) = accounted(121);
my $sum = 0;
$sum += $_->{count} for @$events;
is($sum + $lost, 130, 'each is counted');



=== TEST 5: reject: refused before the upstream is called
--- http_config eval: $::small . 'meter_overflow reject;'
--- config
    location /m { meter on; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/status/200; }
--- client
my $calls = () = $::edge->backend->calls;
my $refused = metric('edgemeter_edge_refused_total');
$::edge->ledger->tell(hold => 1);
my @codes = fill('/m', 1, 100);
my $served = grep { $_ == 200 } @codes;
is($served + (grep { $_ == 503 } @codes), 100, '200 or 503');
cmp_ok($served, '>', 30, 'some are served');
cmp_ok($served, '<', 90, 'some are not');
is((() = $::edge->backend->calls) - $calls, $served, 'calls of the upstream');
is(metric('edgemeter_edge_refused_total') - $refused, 100 - $served, 'metric');
$::edge->ledger->tell(hold => 0);
flush_ring();
my ($events, $lost) = accounted($served);
is(scalar(@$events), $served, 'every served one is recorded');
is($lost, 0, 'none is lost');
my ($code) = fill('/m', 101, 101);
is($code, 200, 'and it goes on');



=== TEST 6: reject: what was admitted has its room, whatever comes in between
--- http_config eval: $::small . 'meter_overflow reject;'
--- config
    location /m { meter on; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/status/200; }
    location /slow { meter on; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/hold/o6; }
    location /pass { meter on; meter_overflow pass; return 204; }
--- client
$::edge->ledger->tell(hold => 1);
my @slow = map { client() } 1 .. 5;
$slow[$_]->send("GET /slow?n=s$_ HTTP/1.1\r\nHost: localhost\r\nX-Fill: "
    . ('f' x 3000) . "\r\nConnection: close\r\n\r\n") for 0 .. 4;
wait_until('calls', sub { 5 <= grep { /o6/ } $::edge->backend->calls });
my $served = grep { $_ == 200 } fill('/m', 1, 100);
fill('/pass', 101, 110);
$::edge->backend->open_gate('o6');
is($_->receive->{code}, 200, 'served') for @slow;
$_->close for @slow;
$::edge->ledger->tell(hold => 0);
my ($events, $lost) = accounted($served + 15);
my %seen = map { $_->{attributes}[0][1] => 1 } @$events;
is(join(' ', grep { $seen{"s$_"} } 0 .. 4), '0 1 2 3 4', 'all five recorded');
is($lost, 10, 'those that were let pass are lost');
flush_ring();



=== TEST 7: reject: requests that end before they are admitted are lost
--- http_config eval: $::small . 'meter_overflow reject;'
--- config
    location /r { meter on; return 204; }
--- client
$::edge->ledger->tell(hold => 1);
my @codes = fill('/r', 1, 100);
is(scalar(grep { $_ == 204 } @codes), 100, 'all are answered');
$::edge->ledger->tell(hold => 0);
accounted(100);
flush_ring();
my ($events, $lost) = accounted(100);
is(@$events + $lost, 100, 'each is an event or lost');



=== TEST 8: reject: deltas that end do not take promised room either
--- http_config eval: $::small . 'meter_drain_timeout 10s;'
--- config
    location /m { meter on; meter_overflow reject; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/status/200; }
    location /slow { meter on; meter_overflow reject; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/hold/o8; }
    location /d { meter on; meter_capture delta; meter_attribute n $arg_n; meter_attribute fill $http_x_fill; return 204; }
--- client
$::edge->ledger->tell(hold => 1);
my @slow = map { client() } 0 .. 4;
$slow[$_]->send("GET /slow?n=s$_ HTTP/1.1\r\nHost: localhost\r\nX-Fill: "
    . ('f' x 3000) . "\r\nConnection: close\r\n\r\n") for 0 .. 4;
wait_until('calls', sub { 5 <= grep { /o8/ } $::edge->backend->calls });
my $served = grep { $_ == 200 } fill('/m', 1, 100);
get("/d?n=d$_", 'X-Fill: ' . 'f' x 300) for 1 .. 60;
my $used = metric('edgemeter_edge_outbox_used_bytes');
my $master = Edgemeter::Capture::master();
my %old = map { $_ => 1 } Edgemeter::Capture::children($master);
kill 'HUP', $master;
wait_until('deltas', sub {
    metric('edgemeter_edge_outbox_used_bytes') > $used;
});
$::edge->backend->open_gate('o8');
is($_->receive->{code}, 200, 'served') for @slow;
$_->close for @slow;
$::edge->ledger->tell(hold => 0);
my ($events, $lost) = accounted($served + 65);
my %seen = map { $_->{attributes}[0][1] => 1 } @$events;
is(scalar(grep { $seen{"s$_"} } 0 .. 4), 5, 'all five recorded');
is(scalar(grep { $seen{"d$_"} } 1 .. 60), 60, 'and all deltas');
is($lost, 0, 'none is lost');
wait_until('end of the old worker', sub {
    !grep { $old{$_} } Edgemeter::Capture::children($master);
});
flush_ring();
