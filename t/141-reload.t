# Reloads and stops: new workers, old rings; nothing is lost or told twice.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/Capture.pm' }

use Test::Nginx::Socket;

repeat_each(1);
no_shuffle();
plan tests => 57;

our $edge = Edgemeter::Capture->start(http => <<'_EOC_');
    meter_drain_timeout 800ms;
_EOC_

our $metered = <<'_EOC_';
    location /m { meter on; meter_attribute n $arg_n; return 204; }
    location /d { meter on; meter_capture delta; meter_attribute d $arg_d; return 204; }
    location /slow { meter on; meter_attribute n $arg_n; meter_attribute sent $bytes_sent; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/hold/; }
    location /never { meter on; meter_attribute n $arg_n; meter_attribute sent $bytes_sent; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/silent; }
_EOC_

sub numbers {
    return join ' ', sort { $a <=> $b }
        map { $_->{attributes}[0][1] } @{ arrived() };
}

sub signal { return kill $_[0], Edgemeter::Capture::master() }

sub workers_now {
    return Edgemeter::Capture::children(Edgemeter::Capture::master());
}

# A sentinel would be another worker's: wait for all of them, then for none.
sub all_arrived {
    my ($wanted) = @_;
    eval { wait_until('all', sub { numbers() eq $wanted }) };
    return is(numbers(), $wanted, 'all, once');
}

sub rings { return glob "$ENV{TEST_NGINX_METER_OUTBOX}/ring-*" }

no_long_string();
run_tests();

__DATA__

=== TEST 1: a reload with records on their way
--- config eval: $::metered
--- client
$::edge->ledger->tell(hold => 1);
get("/m?n=$_") for 1 .. 20;
my %old = map { $_ => 1 } workers_now();
signal('HUP');
wait_until('new worker', sub { grep { !$old{$_} } workers_now() });
get("/m?n=$_") for 21 .. 40;
$::edge->ledger->tell(hold => 0);
wait_until('end', sub { !grep { $old{$_} } workers_now() });
all_arrived(join ' ', 1 .. 40);
settle();
is(numbers(), join(' ', 1 .. 40), 'and nothing more');



=== TEST 2: a worker that cannot deliver in time leaves its ring to the next
--- config eval: $::metered
--- client
$::edge->ledger->tell(hold => 1);
get("/m?n=$_") for 1 .. 5;
reload(sub { s/meter_drain_timeout 800ms/meter_drain_timeout 100ms/ });
get("/m?n=$_") for 6 .. 8;
my $claimed = metric('edgemeter_edge_rings_claimed_total');
reload();
$::edge->ledger->tell(hold => 0);
all_arrived(join ' ', 1 .. 8);
settle();
is(numbers(), join(' ', 1 .. 8), 'and nothing more');
cmp_ok(metric('edgemeter_edge_rings_claimed_total'), '>', $claimed, 'claimed');



=== TEST 3: a request that lasts longer than its worker's configuration
--- config eval: $::metered
--- client
my $client = client();
$client->send("GET /slow?n=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
wait_until('call', sub { grep { m{/hold/$} } $::edge->backend->calls });
my %old = map { $_ => 1 } workers_now();
signal('HUP');
wait_until('new worker', sub { grep { !$old{$_} } workers_now() });
get("/m?n=$_") for 2 .. 3;
$::edge->backend->open_gate('');
is($client->receive->{code}, 200, 'answered');
$client->close;
wait_until('end', sub { !grep { $old{$_} } workers_now() });
all_arrived('1 2 3');
settle();
is(numbers(), '1 2 3', 'and nothing more');



=== TEST 4: a delta is told by the worker that leaves
--- config eval: $::metered
--- client
get('/d?d=1') for 1 .. 3;
reload();
get('/d?d=1') for 1 .. 4;
reload();
settle();
my $count = 0;
$count += $_->{count} for @{ arrived() };
is($count, 7, 'all');



=== TEST 5: an outbox of another size
--- config eval: $::metered
--- client
get("/m?n=$_") for 1 .. 5;
reload(sub { s/(meter_outbox \S+) 1m/$1 512k/ });
get("/m?n=$_") for 6 .. 10;
all_arrived(join ' ', 1 .. 10);
settle();
wait_until('only new files', sub { !grep { -s $_ != 512 << 10 } rings() });
is(join(' ', grep { -s $_ != 512 << 10 } rings()), '', 'old files are gone');
reload(sub { s/(meter_outbox \S+) 512k/$1 1m/ });
get("/m?n=11");
settle();
is(numbers(), join(' ', 1 .. 11), 'and back');



=== TEST 6: an outbox in another place
--- config eval: $::metered
--- client
get("/m?n=$_") for 1 .. 5;
reload(sub { s/(meter_outbox \S+) 1m/$1-other 1m/ });
get("/m?n=$_") for 6 .. 10;
settle();
is(numbers(), join(' ', 1 .. 10), 'all, once');



=== TEST 7: more workers, fewer workers
--- config eval: $::metered
--- client
my $n = 0;
for my $count (3, 1, 2) {
    get('/m?n=' . ++$n) for 1 .. 15;
    reload(sub { s/worker_processes\s+\d+/worker_processes $count/ });
    is(scalar(workers_now()), $count, "$count workers");
    get('/m?n=' . ++$n) for 1 .. 15;
}
all_arrived(join ' ', 1 .. $n);
wait_until('verdicts', sub { !metric('edgemeter_edge_in_flight') });
is(metric('edgemeter_edge_conservation_gap'), 0, 'no gap');
my @rings = rings();
cmp_ok(scalar(@rings), '<=', 12, 'few rings');



=== TEST 8: a zone of another size only forgets
--- http_config eval: $::edge->http . 'meter_zone ids 64k;'
--- config
    location /m { meter on; meter_event_id $arg_n; meter_attribute n $arg_n; return 204; }
--- client
my $id = time . $$;
get("/m?n=$id");
settle();
reload();
get("/m?n=$id");
settle();
reload(sub { s/meter_zone ids 64k/meter_zone ids 128k/ });
get("/m?n=$id");
settle();
reload(sub { s/meter_zone ids 128k;// });
get("/m?n=$id");
settle();
is(join(' ', map { "$_->{kind}:$_->{verdict}" } @{ arrived() }),
    'event:accepted dupnote:duplicate event:duplicate event:duplicate',
    'kept, forgotten, forgotten');



=== TEST 9: locations that are metered no more
--- config eval: $::metered
--- client
$::edge->ledger->tell(hold => 1);
get("/m?n=$_") for 1 .. 5;
reload(sub { s/meter_drain_timeout 800ms/meter_drain_timeout 100ms/ });
reload(sub { s/location \/m \{ meter on;/location \/m { meter off;/ });
is(get('/m?n=6')->{code}, 204, 'served');
$::edge->ledger->tell(hold => 0);
all_arrived('1 2 3 4 5');
settle();
is(numbers(), '1 2 3 4 5', 'and nothing more');



=== TEST 10: a worker that is killed
--- config eval: $::metered
--- alerts: exited on signal 9
--- client
$::edge->ledger->tell(hold => 1);
get("/m?n=$_") for 1 .. 5;
get('/d?d=6') for 1 .. 3;
my ($worker) = workers_now();
kill 'KILL', $worker;
wait_until('new worker', sub {
    my @now = workers_now();
    return @now && !grep { $_ == $worker } @now;
});
forgive();
get("/m?n=$_") for 7 .. 8;
$::edge->ledger->tell(hold => 0);
all_arrived('1 2 3 4 5 6 7 8');
settle();
my ($delta) = grep { $_->{kind} eq 'delta' } @{ arrived() };
is($delta->{count}, 3, 'its delta, too');
is(scalar @{ arrived() }, 8, 'and nothing more');



=== TEST 11: many reloads in a row
--- config eval: $::metered
--- client
my $n = 0;
for my $round (1 .. 8) {
    get('/m?n=' . ++$n) for 1 .. 5;
    signal('HUP');
    get('/m?n=' . ++$n) for 1 .. 5;
}
reload();
all_arrived(join ' ', 1 .. $n);
wait_until('verdicts', sub { !metric('edgemeter_edge_in_flight') });
is(metric('edgemeter_edge_conservation_gap'), 0, 'no gap');



=== TEST 12: a worker whose time is up
--- main_config
    worker_shutdown_timeout 100ms;
--- config eval: $::metered
--- client
$::edge->ledger->tell(hold => 1);
get("/m?n=$_") for 1 .. 5;
my $client = client();
$client->send("GET /never?n=6 HTTP/1.1\r\nHost: localhost\r\n\r\n");
wait_until('call', sub { grep { /silent/ } $::edge->backend->calls });
reload();
$client->close;
$::edge->ledger->tell(hold => 0);
all_arrived('1 2 3 4 5 6');
settle();
is(numbers(), '1 2 3 4 5 6', 'and nothing more');



=== TEST 13: QUIT delivers what there is, at once
--- config eval: $::metered
--- client
get("/m?n=$_") for 1 .. 30;
get('/d?d=31') for 1 .. 2;
my $master = Edgemeter::Capture::master();
my @workers = workers_now();
kill 'QUIT', $master;
wait_until('end', sub { !grep { kill 0, $_ } @workers });
is(numbers(), join(' ', 1 .. 31), 'all, once');
