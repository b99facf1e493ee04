# The link: whatever the other end does, nothing is lost or told twice.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/Capture.pm' }

use Test::Nginx::Socket;
use Time::HiRes qw(time);

repeat_each(1);
plan tests => 118;

our $edge = Edgemeter::Capture->start;

our $metered = <<'_EOC_';
    location /m { meter on; meter_attribute n $arg_n; meter_attribute fake $arg_fake; return 204; }
_EOC_

# Three requests, the second with a word for the fake; all must arrive once,
# and without waiting for silence where there is none.
sub survives {
    my ($word) = @_;

    my $until = time + ($word =~ /mute/ ? 8 : 2.8);
    my %before = map { $_ => 1 } numbers();
    my @wanted = map { "$word/$_" } 1 .. 3;
    get("/m?n=$wanted[0]");
    get("/m?n=$wanted[1]&fake=$word");
    (my $first = $word) =~ s/^hello://;
    wait_until($first, sub { noted('word', word => $first) });
    get("/m?n=$wanted[2]");
    settle();
    my @got = grep { !$before{$_} } numbers();
    is("@got", "@wanted", $word);
    cmp_ok(time, '<', $until, "$word in time");
    return;
}

# Lines of the ledger since the block began, of this kind (and value).
sub noted {
    my ($kind, $name, $value) = @_;
    return grep {
        $_->{kind} eq $kind && (!defined $name || $_->{$name} eq $value)
    }
        @{ $::edge->ledger->lines($::edge->{from}) };
}

sub numbers {
    return map { ($_->{again} ? 'again:' : '') . $_->{attributes}[0][1] }
        @{ arrived() };
}

no_long_string();
run_tests();

__DATA__

=== TEST 1: connections that end, before and after the commit
--- config eval: $::metered
--- client
survives($_) for qw(close keep:close half keep:half bye);



=== TEST 2: nonsense and frames that are bad
--- config eval: $::metered
--- client
survives($_) for qw(garbage keep:garbage crc tag type);



=== TEST 3: messages that must be known and are not, or cannot be
--- config eval: $::metered
--- client
survives($_) for qw(critical field toofar);



=== TEST 4: what may be skipped, and answers told differently
--- config eval: $::metered
--- client
settle();
my $opened = metric('edgemeter_edge_links_opened_total');
survives($_) for qw(skip more bytes ping);
is(metric('edgemeter_edge_links_opened_total'), $opened, 'all on one link');
ok(noted('pong', number => 4711), 'the PING was answered');



=== TEST 18: verdicts that were not told come with the next HELLO_ACK
--- config eval: $::metered
--- client
settle();
get('/m?n=1&fake=nocodes');
wait_until('event', sub { @{ arrived() } });
flush_ring();
wait_until('the others', sub { metric('edgemeter_edge_in_flight') == 1 });
survives('bye');
is(metric('edgemeter_edge_in_flight'), 0, 'all are known');



=== TEST 5: NACK
--- config eval: $::metered
--- alerts: meterd expects record
--- client
settle();
my $opened = metric('edgemeter_edge_links_opened_total');
get('/m?n=0&fake=gap');
settle();
is(metric('edgemeter_edge_links_opened_total'), $opened, 'sent again at once');
survives($_) for qw(gap fenced retry:100);



=== TEST 6: an aggregator that drains
--- config eval: $::metered
--- client
get('/m?n=1&fake=drain');
wait_until('drain', sub { noted('drained') });
get("/m?n=$_") for 2 .. 5;
settle();
is(join(' ', numbers()), '1 2 3 4 5', 'all, once');



=== TEST 7: silence
--- config eval: $::metered
--- client
survives('mute');



=== TEST 8: HELLO is answered by nonsense, or not at all
--- config eval: $::metered
--- client
survives("hello:$_") for qw(close garbage half tag noversion unknown fenced);



=== TEST 9: HELLO meets an aggregator that speaks another version, for a while
--- config eval: $::metered
--- client
survives("hello:$_") for qw(version retry:100);



=== TEST 10: HELLO meets silence
--- config eval: $::metered
--- client
survives('hello:mute');



=== TEST 11: tiny credit
--- config eval: $::metered
--- client
$::edge->ledger->tell(credit => 1);
get('/m?n=0&fake=hello:unknown');
my $client = client();
$client->get("/m?n=$_") for 1 .. 40;
$client->close;
flush_ring();
is(join(' ', numbers()), join(' ', 0 .. 40), 'all, in order');



=== TEST 12: credit that stops and comes again
--- config eval: $::metered
--- client
get('/m?n=0&fake=hello:unknown');
flush_ring();
$::edge->ledger->tell(hold => 1, credit => 5);
my $client = client();
$client->get("/m?n=$_") for 1 .. 40;
$client->close;
$::edge->ledger->tell(hold => 0);
flush_ring();
is(join(' ', numbers()), join(' ', 0 .. 40), 'all, in order');



=== TEST 13: the database has lost the last records: they come again
--- config eval: $::metered
--- alerts: the database went back in time
--- client
get("/m?n=$_") for 1 .. 5;
settle();
my $rewinds = metric('edgemeter_edge_ring_rewinds_total');
get('/m?n=6&fake=hello:rewind:4');
wait_until('alarm', sub {
    metric('edgemeter_edge_ring_rewinds_total') > $rewinds;
});
get('/m?n=7');
settle();
my @numbers = numbers();
is(join(' ', grep { !/again/ } @numbers), '1 2 3 4 5 6 7', 'all, once');
cmp_ok(scalar(grep { /again/ } @numbers), '>=', 2, 'some again, as they were');
is(metric('edgemeter_edge_ring_rewinds_total') - $rewinds, 1, 'counted');



=== TEST 14: the ring's file is older than the database: a new session
--- config eval: $::metered
--- alerts: went back in time: it had
--- client
get("/m?n=$_") for 1 .. 3;
settle();
my $rollbacks = metric('edgemeter_edge_ring_rollbacks_total');
get('/m?n=4&fake=hello:rollback:10');
wait_until('alarm', sub {
    metric('edgemeter_edge_ring_rollbacks_total') > $rollbacks;
});
get("/m?n=$_") for 5 .. 7;
settle();
my %sessions;
push @{ $sessions{ $_->{session} } }, $_->{attributes}[0][1]
    for @{ arrived() };
is(join(' ', sort { $a <=> $b } numbers()), '1 2 3 4 5 6 7', 'all, once');
is(scalar(keys %sessions), 2, 'two sessions');
is(metric('edgemeter_edge_ring_rollbacks_total') - $rollbacks, 1, 'counted');



=== TEST 15: nobody there, then somebody
--- config eval: $::metered
--- client
rename $ENV{TEST_NGINX_METER_SOCKET}, "$ENV{TEST_NGINX_METER_SOCKET}.away"
    or die;
get('/m?n=1&fake=keep:close');
get("/m?n=$_") for 2 .. 10;
rename "$ENV{TEST_NGINX_METER_SOCKET}.away", $ENV{TEST_NGINX_METER_SOCKET}
    or die;
flush_ring();
is(join(' ', numbers()), join(' ', 1 .. 10), 'all, in order');



=== TEST 16: an older connection of the session is fenced
--- config eval: $::metered
--- client
get('/m?n=1');
flush_ring();
my $lines = $::edge->ledger->lines($::edge->{from});
my ($session) = map { $_->{session} } @{ arrived() };
$::edge->ledger->change(sub { $_[0]{sessions}{$session}{generation}++ });
get("/m?n=$_") for 2 .. 4;
flush_ring();
is(join(' ', numbers()), '1 2 3 4', 'all, once');



=== TEST 17: pings keep an idle link alive
--- config eval: $::metered
--- client
get('/m?n=1');
flush_ring();
my $opened = metric('edgemeter_edge_links_opened_total');
my $failures = metric('edgemeter_edge_link_failures_total');
$::edge->ledger->tell(hold => 1);
get('/m?n=2');
my $until = time + 3.5;
wait_until('time', sub { time > $until });
$::edge->ledger->tell(hold => 0);
flush_ring();
is(metric('edgemeter_edge_links_opened_total'), $opened, 'the same link');
is(metric('edgemeter_edge_link_failures_total'), $failures, 'no failure');
is(join(' ', numbers()), '1 2', 'all, once');
