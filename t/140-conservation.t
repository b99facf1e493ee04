# The conservation line: every request that was seen is somewhere.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/Capture.pm' }

use Test::Nginx::Socket;

repeat_each(1);
plan tests => 54;

our $edge = Edgemeter::Capture->start(http => <<'_EOC_');
    meter_zone ids 64k;
_EOC_

my $P = 'edgemeter_edge_';

# The line's terms, by name; verdicts by theirs.
sub terms {
    my $page = metrics();
    my %terms = (
        seen => "${P}requests_seen_total",
        filtered => "${P}requests_filtered_total",
        lost => "${P}requests_unrecorded_total",
        in_flight => "${P}in_flight", gap => "${P}conservation_gap",
        map { $_ => "${P}verdicts_total{verdict=\"$_\"}" }
            qw(accepted duplicate conflict rejected),
    );
    for my $name (keys %terms) {
        ($terms{$name}) = $page =~ /^\Q$terms{$name}\E (-?\d+)$/m
            or die "no $name on the page\n";
    }
    return \%terms;
}

# What changed since, in one line; terms that did not are left out.
sub since {
    my ($before) = @_;
    my $now = terms();
    return join ' ', map { "$_=" . ($now->{$_} - $before->{$_}) }
        grep { $now->{$_} != $before->{$_} }
        qw(seen filtered lost in_flight accepted duplicate conflict rejected
           gap);
}

no_long_string();
run_tests();

__DATA__

=== TEST 1: accepted
--- config
    location /m { meter on; return 204; }
--- client
settle();
my $before = terms();
get('/m') for 1 .. 4;
settle();
is(since($before), 'seen=5 accepted=5', 'four and the sentinel');
is(terms()->{gap}, 0, 'gap');



=== TEST 2: filtered, duplicate, conflict, rejected
--- config
    location /m { meter on; meter_event_id $arg_id; meter_customer $arg_c; meter_if $arg_if; return 204; }
--- client
settle();
my $before = terms();
my $id = 'con-2-' . time . $$;
get('/m?if=0') for 1 .. 3;
get("/m?if=1&id=$id");
settle();
get("/m?if=1&id=$id");
get("/m?if=1&id=$id&c=other");
get('/m?if=1&fake=rejected');
settle();
is(since($before),
    'seen=9 filtered=3 accepted=3 duplicate=1 conflict=1 rejected=1', 'terms');
is(terms()->{gap}, 0, 'gap');



=== TEST 3: in flight, while nobody answers
--- config
    location /m { meter on; return 204; }
--- client
settle();
my $before = terms();
$::edge->ledger->tell(hold => 1);
get('/m') for 1 .. 6;
is(since($before), 'seen=6 in_flight=6', 'on the way');
$::edge->ledger->tell(hold => 0);
settle();
is(since($before), 'seen=7 accepted=7', 'there');
is(terms()->{gap}, 0, 'gap');



=== TEST 4: open deltas are in flight
--- config
    location /m { meter on; meter_capture delta; return 204; }
--- client
settle();
my $before = terms();
get('/m') for 1 .. 6;
like(since($before), qr/^seen=6 (in_flight=6|accepted=6)$/, 'open');
reload();
settle();
is(since($before), 'seen=7 accepted=7', 'there');
is(terms()->{gap}, 0, 'gap');



=== TEST 5: a delta's verdict counts for all its requests
--- config
    location /m { meter on; meter_capture delta; meter_attribute fake rejected; return 204; }
--- client
settle();
my $before = terms();
get('/m') for 1 .. 6;
reload();
settle();
is(since($before), 'seen=7 accepted=1 rejected=6', 'terms');
is(terms()->{gap}, 0, 'gap');



=== TEST 6: requests of late routes are seen at their end
--- config
    location /m { meter on; meter_attribute sent $bytes_sent; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/hold/c6; }
--- client
settle();
my $before = terms();
my $client = client();
$client->send("GET /m HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
wait_until('call', sub { grep { /c6/ } $::edge->backend->calls });
is(since($before), '', 'not yet');
$::edge->backend->open_gate('c6');
$client->is_closed;
settle();
is(since($before), 'seen=2 accepted=2', 'now');
is(terms()->{gap}, 0, 'gap');



=== TEST 7: verdicts that a lost connection did not tell
--- config
    location /m { meter on; meter_attribute fake $arg_fake; return 204; }
--- client
settle();
my $before = terms();
get('/m?fake=keep:close');
get('/m') for 1 .. 3;
settle();
is(since($before), 'seen=5 accepted=5', 'terms');
is(terms()->{gap}, 0, 'gap');



=== TEST 8: lost
--- http_config
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
    meter_outbox $TEST_NGINX_METER_OUTBOX-small 256k;
    meter_event request;
    meter_tenant acme;
--- config
    location /m { meter on; meter_attribute fill $http_x_fill; return 204; }
--- client
settle();
my $before = terms();
$::edge->ledger->tell(hold => 1);
my $client = client();
$client->get('/m', 'X-Fill: ' . 'f' x 3500) for 1 .. 100;
$client->close;
my ($lost) = since($before) =~ /lost=(\d+)/ or die 'nothing was lost';
is(since($before), "seen=100 lost=$lost in_flight=" . (100 - $lost), 'held');
is(terms()->{gap}, 0, 'gap');
$::edge->ledger->tell(hold => 0);
wait_until('room', sub { since($before) !~ /in_flight/ });
settle();
is(since($before), "seen=101 lost=$lost accepted=" . (101 - $lost), 'told');
is(terms()->{gap}, 0, 'gap');



=== TEST 9: refused requests are seen and not billed
--- http_config
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
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
settle();
my $before = terms();
$::edge->ledger->tell(hold => 1);
my $client = client();
my $refused = grep { $_->{code} == 503 }
    map { $client->get('/m', 'X-Fill: ' . 'f' x 3500) } 1 .. 100;
$client->close;
cmp_ok($refused, '>', 10, 'some are refused');
$::edge->ledger->tell(hold => 0);
wait_until('room', sub { since($before) !~ /in_flight/ });
is(since($before), "seen=100 filtered=$refused accepted=" . (100 - $refused),
    'terms');
is(terms()->{gap}, 0, 'gap');



=== TEST 10: the database went back
--- config
    location /m { meter on; meter_attribute fake $arg_fake; return 204; }
--- alerts: the database went back in time
--- client
settle();
my $before = terms();
my $rewinds = metric('edgemeter_edge_ring_rewinds_total');
get('/m') for 1 .. 5;
settle();
get('/m?fake=hello:rewind:3');
wait_until('alarm', sub {
    metric('edgemeter_edge_ring_rewinds_total') > $rewinds;
});
settle();
is(since($before), 'seen=8 accepted=8', 'terms');
is(terms()->{gap}, 0, 'gap');



=== TEST 11: over reloads
--- config
    location /m { meter on; return 204; }
--- client
settle();
my $before = terms();
for my $round (1 .. 3) {
    get('/m') for 1 .. 5;
    reload();
}
settle();
is(since($before), 'seen=16 accepted=16', 'terms');
is(terms()->{gap}, 0, 'gap');



=== TEST 12: every line of the page has a help and a type
--- config
    location = /status { meter_status; }
--- client
my $page = get('/status?do=metrics')->{body};
my (%help, %type, @naked);
for (grep { $_ ne 'meterd_up 1' } split /\n/, $page) {
    /^# HELP (\S+) \S/ ? $help{$1}++
    : /^# TYPE (\S+) (?:counter|gauge)$/ ? $type{$1}++
    : /^([a-z0-9_]+)(?:\{[^}]*\})? -?[\d.]+$/ ? $help{$1} && $type{$1}
        || push @naked, $_
    : push @naked, $_;
}
is("@naked", '', 'all lines are known');
is(join(' ', grep { $_ > 1 } values %help, values %type), '', 'told once');
