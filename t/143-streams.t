# Workers that streams keep, and rings: after any number of reloads there is one
# for who serves. Where none can be had, what is lost is told in the end. What is
# removed under nginx is put back.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/Capture.pm' }

use Test::Nginx::Socket;

repeat_each(1);
no_shuffle();
plan tests => 48;

our $edge = Edgemeter::Capture->start(http => <<'_EOC_');
    meter_drain_timeout 800ms;
_EOC_

# Answers that go on: one is on record when they begin, one when they end.
our $metered = <<'_EOC_';
    location /m { meter on; meter_attribute n $arg_n; return 204; }
    location /final/ { meter on; meter_attribute n $arg_n; proxy_buffering off; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/gate/; }
    location /late/ { meter on; meter_attribute n $arg_n; meter_attribute sent $bytes_sent; proxy_buffering off; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/gate/; }
    location /slow/ { meter on; meter_attribute n $arg_n; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/hold/; }
_EOC_

my $P = 'edgemeter_edge_';

# A directory for each block, also where nginx is only reloaded.
sub place {
    my ($name, $files) = @_;
    $files = $files ? " files=$files" : '';
    return $edge->http =~ s/(meter_outbox \S+) 1m/$1-$name 256k$files/r;
}

sub outbox { return "$ENV{TEST_NGINX_METER_OUTBOX}-$_[0]" }
sub rings  { my @rings = glob outbox($_[0]) . '/ring-*'; return @rings }
sub files  { return metric("${P}outbox_rings{state=\"$_[0]\"}") }

sub workers_now {
    return Edgemeter::Capture::children(Edgemeter::Capture::master());
}

# A stream that has begun.
sub stream {
    my ($path) = @_;
    my $client = client();
    $client->send("GET $path HTTP/1.1\r\nHost: localhost\r\n"
        . "Connection: close\r\n\r\n");
    $client->more until $client->{bytes} =~ /first/;
    return $client;
}

# Old workers may stay.
sub next_workers {
    my %old = map { $_ => 1 } workers_now();
    kill 'HUP', Edgemeter::Capture::master();
    wait_until('new worker', sub {
        my @titles = map { Edgemeter::Capture::title($_) }
            grep { !$old{$_} } workers_now();
        return grep { /: worker process$/ } @titles;
    });
    wait_until('old ones leave', sub {
        my @titles = map { Edgemeter::Capture::title($_) } keys %old;
        return !grep { /: worker process$/ } @titles;
    });
    return;
}

sub numbers {
    return join ' ', sort { $a <=> $b } map { $_->{attributes}[0][1] }
        grep { $_->{kind} eq 'event' } @{ arrived() };
}

sub all_arrived {
    my ($wanted) = @_;
    eval { wait_until('all', sub { numbers() eq $wanted }) };
    return is(numbers(), $wanted, 'all, once');
}

# What is seen, filtered, unrecorded, since then; and the gap.
sub totals {
    my ($before) = @_;
    my $page = metrics();
    my @now = map { $page =~ /^\Q${P}$_\E (-?\d+)$/m ? $1 : die "no $_\n" }
        qw(requests_seen_total requests_filtered_total
        requests_unrecorded_total conservation_gap);
    return \@now if !$before;
    return join ' ', map { $now[$_] - $before->[$_] } 0 .. $#now;
}

sub told {
    my $sum = 0;
    $sum += $_->{count} for grep { $_->{kind} eq 'lossnote' }
        @{ $::edge->ledger->lines($::edge->{from}) };
    return $sum;
}

sub kill_worker {
    my ($worker) = workers_now();
    kill 'KILL', $worker;
    wait_until('new worker', sub {
        my @now = workers_now();
        return @now && !grep { $_ == $worker } @now;
    });
    forgive();
    return;
}

sub finish {
    my ($gate, @streams) = @_;
    $::edge->backend->open_gate($gate);
    is(join(' ', map { $_->receive->{body} } @streams),
        join(' ', ('firstlater') x @streams), 'the streams end well');
    $_->close for @streams;
    return;
}

no_long_string();
run_tests();

__DATA__

=== TEST 1: streams that hold slots, and more reloads than a directory had files
--- http_config eval: main::place('late')
--- config eval: $::metered
--- client
my @streams;
for my $n (1 .. 18) {
    push @streams, stream("/late/s1?n=$n");
    next_workers();
}
is(metric('edgemeter_edge_workers_without_ring'), 0, 'nobody is without');
get("/m?n=$_") for 19 .. 25;
all_arrived('19 20 21 22 23 24 25');
wait_until('all leave', sub { files('leaving') == 18 });
is(files('owned'), 1, 'and one serves');
cmp_ok(metric('edgemeter_edge_outbox_rings_max'), '>', 100, 'many more may be');
finish('s1', @streams);
all_arrived(join ' ', 1 .. 25);
is(metric('edgemeter_edge_requests_unrecorded_total'), 0, 'none is lost');
is(metric('edgemeter_edge_conservation_gap'), 0, 'no gap');



=== TEST 2: streams that are on record: their workers keep no ring
--- http_config eval: main::place('final', 8)
--- config eval: $::metered
--- client
my @streams;
for my $n (1 .. 9) {
    push @streams, stream("/final/s2?n=$n");
    next_workers();
    wait_until('no ring is kept', sub {
        files('owned') == 1 && !files('leaving');
    });
}
is(metric('edgemeter_edge_workers_without_ring'), 0, 'nobody is without');
get("/m?n=$_") for 10 .. 12;
all_arrived(join ' ', 1 .. 12);
finish('s2', @streams);
settle();
is(numbers(), join(' ', 1 .. 12), 'and nothing more');



=== TEST 3: a request that lasts gets a ring again when it is answered
--- http_config eval: main::place('again')
--- config eval: $::metered
--- client
my $client = client();
$client->send("GET /slow/s3?n=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
wait_until('call', sub { grep { m{/hold/s3$} } $::edge->backend->calls });
next_workers();
wait_until('spare', sub { files('spare') == 1 && files('owned') == 1 });
$::edge->backend->open_gate('s3');
is($client->receive->{code}, 200, 'answered');
$client->close;
all_arrived('1');



=== TEST 4: no more files than allowed
--- http_config eval: main::place('max', 8)
--- config eval: $::metered
--- client
my @streams;
for my $n (1 .. 8) {
    push @streams, stream("/late/s4?n=$n");
    next_workers();
}
wait_until('alarm', sub { metric('edgemeter_edge_workers_without_ring') == 1 });
is(scalar(rings('max')), 8, 'as many as allowed');
finish('s4', @streams);
wait_until('ring', sub { !metric('edgemeter_edge_workers_without_ring') });
get('/m?n=9');
all_arrived('1 2 3 4 5 6 7 8 9');



=== TEST 5: what is lost without a ring outlives its worker, and is told once
--- http_config eval: main::place('none')
--- config eval: $::metered . 'location /f { meter on; meter_if ""; return 204; }'
--- alerts: open\(\) "\S+/tmp-\w+" failed|exited on signal 9
--- client
get('/m?n=1');
settle();
my $start = totals();
chmod 0550, outbox('none');
reload(sub { s/(meter_outbox \S+) 256k/$1 512k/ });
get("/m?n=$_") for 2 .. 4;
get('/f');
is(totals($start), '4 1 3 0', 'seen, filtered, lost');
kill_worker();
get("/m?n=$_") for 5 .. 6;
reload();
get('/m?n=7');
is(totals($start), '7 1 6 0', 'a dead worker, and one that left');
is(told(), 0, 'nobody could tell it yet');
chmod 0770, outbox('none');
wait_until('told', sub { told() });
get('/m?n=8');
all_arrived('1 8');
reload();
get('/m?n=9');
all_arrived('1 8 9');
is(told(), 6, 'once');
is(totals($start), '9 1 6 0', 'and once in the totals');



=== TEST 6: ring files that are removed in use are put back, with all that is in them
--- http_config eval: main::place('removed')
--- config eval: $::metered
--- alerts: was removed in use|exited on signal 9
--- client
my $rescued = metric('edgemeter_edge_rings_rescued_total');
my $stream = stream('/late/s6?n=1');
$::edge->ledger->tell(hold => 1);
get("/m?n=$_") for 2 .. 5;
unlink rings('removed'), outbox('removed') . '/losses';
wait_until('rescue', sub {
    metric('edgemeter_edge_rings_rescued_total') > $rescued;
});
is(scalar(rings('removed')), 1, 'there is a file again');
is(metric('edgemeter_edge_in_flight'), 4, 'with what was in it');
get("/m?n=$_") for 6 .. 7;
kill_worker();
$::edge->ledger->tell(hold => 0);
get('/m?n=8');
all_arrived('1 2 3 4 5 6 7 8');
is(told(), 0, 'none is lost');
ok(-e outbox('removed') . '/losses', 'and a file for losses');
$stream->close;



=== TEST 7: a directory that is gone: what is at stake shows, and is told if it dies
--- http_config eval: main::place('gone')
--- config eval: $::metered . 'location /r { meter on; meter_overflow reject; proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok; }'
--- alerts: was removed in use|open(?:dir)?\(\)|died with|exited on signal 9
--- client
get('/m?n=1');
settle();
my ($mode, $uid, $gid) = (stat outbox('gone'))[2, 4, 5];
my $start = totals();
$::edge->ledger->tell(hold => 1);
get("/m?n=$_") for 2 .. 4;
system 'rm', '-rf', outbox('gone');
symlink '/nowhere', outbox('gone');
wait_until('stake', sub { metric('edgemeter_edge_outbox_removed') == 3 });
wait_until('alarm', sub { metric('edgemeter_edge_workers_without_ring') });
is(get('/r')->{code}, 503, 'refused');
get('/m?n=5');
kill_worker();
unlink outbox('gone');
mkdir outbox('gone');
chown $uid, $gid, outbox('gone');
chmod $mode & 0777, outbox('gone');
$::edge->ledger->tell(hold => 0);
wait_until('told', sub { told() >= 4 });
is(told(), 4, 'three that were in it, one without a ring');
get('/m?n=6');
all_arrived('1 6');
is(metric('edgemeter_edge_outbox_removed'), 0, 'nothing is at stake');
is(metric('edgemeter_edge_conservation_gap'), 0, 'no gap');
