# Ring files: whose they are, what becomes of them, and that no total falls.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/Capture.pm' }

use Test::Nginx::Socket;

repeat_each(1);
no_shuffle();
plan tests => 65;

our $edge = Edgemeter::Capture->start(http => <<'_EOC_');
    meter_drain_timeout 800ms;
_EOC_

our $metered = <<'_EOC_';
    location /m { meter on; meter_attribute n $arg_n; meter_attribute fake $arg_fake; meter_attribute fill $http_x_fill; return 204; }
_EOC_

my $P = 'edgemeter_edge_';

mkdir "$edge->{dir}/open" or die;
chmod 0777, "$edge->{dir}/open";

# A directory for each block, also where nginx is only reloaded.
sub place {
    my ($name, $size) = @_;
    $size //= '1m';
    return $edge->http =~ s/(meter_outbox \S+) 1m/$1-$name $size/r;
}

sub outbox { return "$ENV{TEST_NGINX_METER_OUTBOX}-$_[0]" }
sub rings  { my @rings = glob outbox($_[0]) . '/ring-*'; return @rings }

sub workers_now {
    return Edgemeter::Capture::children(Edgemeter::Capture::master());
}

sub numbers {
    return join ' ', sort { $a <=> $b } map { $_->{attributes}[0][1] }
        grep { $_->{kind} eq 'event' } @{ arrived() };
}

sub notes {
    return join ' ', map { $_->{count} } grep { $_->{kind} eq 'lossnote' }
        @{ $::edge->ledger->lines($::edge->{from}) };
}

sub all_arrived {
    my ($wanted) = @_;
    eval { wait_until('all', sub { numbers() eq $wanted }) };
    return is(numbers(), $wanted, 'all, once');
}

# How many are in this state; what is seen, lost, accepted, in flight, missing.
sub files { return metric("${P}outbox_rings{state=\"$_[0]\"}") }

sub totals {
    my ($before) = @_;
    my $page = metrics();
    my @now = map { $page =~ /^\Q${P}$_\E (-?\d+)$/m ? $1 : die "no $_\n" }
        qw(requests_seen_total requests_unrecorded_total
        verdicts_total{verdict="accepted"} in_flight conservation_gap);
    return \@now if !$before;
    return join ' ', map { $now[$_] - $before->[$_] } 0 .. $#now;
}

sub kill_worker {
    my ($worker) = workers_now();
    kill 'KILL', $worker;
    wait_until('new worker', sub {
        my @now = workers_now();
        return @now && !grep { $_ == $worker } @now;
    });
    return;
}

# More than half of a ring of 256k.
sub fill {
    my ($from) = @_;
    my $client = client();
    $client->get("/m?n=$_", 'X-Fill: ' . 'f' x 3500) for $from .. $from + 29;
    $client->close;
    return;
}

# A ring as a killed worker leaves it, full of records.
sub leave_ring {
    my ($path, $size, $events) = @_;
    system('build/integration/ring_client', $path, "make:$size",
        "event:$events") == 0 or die "ring_client\n";
    my ($user) = split ' ', $ENV{TEST_NGINX_WORKER_USER} // '';
    chown +(getpwnam $user)[2], -1, $path if $user;
    return (stat $path)[1];
}

# Whether somebody has it locked; looking at /proc/locks does not touch it.
sub is_locked {
    my ($inode) = @_;
    open my $locks, '<', '/proc/locks' or die "/proc/locks: $!\n";
    return scalar grep {/FLOCK.*:$inode /} <$locks>;
}

sub is_told {
    open my $log, '<', server_root() . '/logs/error.log' or return 0;
    return scalar grep {/$_[0]/} <$log>;
}

# Room for a file of a gigabyte that takes long to make.
our $memory = '/dev/shm';
our $roomy  = -w $memory
    && (split ' ', (`df -Pk $memory` =~ /\n(.*)/)[0] // '')[3] > 1.5 * 2**20;

END { system 'rm', '-rf', "$memory/edgemeter-$$" if $roomy }

no_long_string();
run_tests();

__DATA__

=== TEST 1: a result past what was sent is not believed
--- config eval: $::metered
--- client
$::edge->ledger->tell(credit => 1);
get('/m?n=0&fake=hello:unknown');
flush_ring();
$::edge->ledger->tell(hold => 1);
get('/m?n=1&fake=toofar');
get("/m?n=$_") for 2 .. 6;
$::edge->ledger->tell(hold => 0);
all_arrived('0 1 2 3 4 5 6');
wait_until('verdicts', sub { !metric('edgemeter_edge_in_flight') });



=== TEST 2: what a dead worker left is taken over, though its ring is too full
--- http_config eval: main::place('full', '256k')
--- config eval: $::metered
--- alerts: exited on signal 9
--- client
$::edge->ledger->tell(hold => 1);
fill(1);
my $claimed = metric('edgemeter_edge_rings_claimed_total');
kill_worker();
get('/m?n=31');
wait_until('adoption', sub {
    metric('edgemeter_edge_rings_claimed_total') > $claimed;
}, 2);
is(files('orphan'), 0, 'no orphan');
is(scalar(rings('full')), 2, 'the new worker writes to another file');
$::edge->ledger->tell(hold => 0);
all_arrived(join ' ', 1 .. 31);
wait_until('spare', sub { files('spare') == 1 });
is(metric('edgemeter_edge_conservation_gap'), 0, 'no gap');



=== TEST 3: the ring of a dead worker goes on under its session
--- http_config eval: main::place('dead')
--- config eval: $::metered
--- alerts: exited on signal 9
--- client
get("/m?n=$_") for 1 .. 3;
settle();
kill_worker();
get("/m?n=$_") for 4 .. 6;
all_arrived('1 2 3 4 5 6');
my %sessions = map { $_->{session} => 1 } @{ arrived() };
is(scalar(keys %sessions), 1, 'one session');
is(scalar(rings('dead')), 1, 'one file');



=== TEST 4: no total falls with a file that is unlinked
--- http_config eval: main::place('size')
--- config eval: $::metered
--- client
my $start = totals();
get("/m?n=$_") for 1 .. 9;
settle();
is(totals($start), '10 0 10 0 0', 'counted');
my $before = totals();
reload(sub { s/(meter_outbox \S+) 1m/$1 512k/ });
my $other = '';
wait_until('only new files', sub {
    my $change = totals($before);
    $other .= " $change;" if $change ne '0 0 0 0 0';
    return !grep { -s $_ != 512 << 10 } rings('size');
});
is($other, '', 'never another number');
is(totals($before), '0 0 0 0 0', 'the same in the end');



=== TEST 5: spares that are too many are unlinked, their counts are not
--- http_config eval: main::place('spare')
--- config eval: $::metered
--- client
my $start = totals();
get('/m?n=1');
settle();
reload(sub { s/worker_processes\s+\d+/worker_processes 7/ });
wait_until('rings of all', sub { files('owned') == 7 });
reload(sub { s/worker_processes\s+\d+/worker_processes 1/ });
wait_until('spares', sub { files('spare') <= 4 });
is(files('spare'), 4, 'four are kept');
is(totals($start), '2 0 2 0 0', 'counted as before');



=== TEST 6: requests without any ring are counted, and told when there is one
--- http_config eval: main::place('none')
--- config eval: $::metered
--- alerts: open\(\) "\S+/tmp-\w+" failed
--- client
get('/m?n=1');
settle();
my $missed = metric('edgemeter_edge_missed_total');
my $start = totals();
chmod 0550, outbox('none');
reload(sub { s/(meter_outbox \S+) 1m/$1 512k/ });
get("/m?n=$_") for 2 .. 4;
is(metric('edgemeter_edge_missed_total') - $missed, 3, 'missed');
is(totals($start), '3 3 0 0 0', 'and counted at once');
chmod 0770, outbox('none');
wait_until('ring', sub { files('owned') == 1 });
get('/m?n=5');
settle();
all_arrived('1 5');
is(notes(), 3, 'told');



=== TEST 7: what was left half made goes, what is foreign stays
--- http_config eval: main::place('foreign')
--- config eval: $::metered
--- client
my $half = outbox('foreign') . '/tmp-0123456789abcdef';
my $foreign = outbox('foreign') . '/ring-0123456789abcdef';
my $link = outbox('foreign') . '/ring-fedcba9876543210';
for my $path ($half, $foreign) {
    open my $file, '>', $path or die "$path: $!";
    print {$file} 'not a ring ' x 100_000;
    close $file;
    chmod 0666, $path;
}
symlink '/etc/passwd', $link or die;
wait_until('sweep', sub { !-e $half });
get("/m?n=$_") for 1 .. 3;
settle();
all_arrived('1 2 3');
is(-s $foreign, 1_100_000, 'left alone');
ok(-l $link, 'not followed');
is(metric('edgemeter_edge_conservation_gap'), 0, 'not counted');
unlink $foreign, $link;



=== TEST 8: a worker that does not move shows
--- http_config eval: main::place('stuck')
--- config eval: $::metered
--- client
get('/m?n=1');
settle();
reload(sub { s/worker_processes\s+\d+/worker_processes 2/ });
is(metric('edgemeter_edge_outbox_stuck_seconds'), 0, 'all move');
my ($worker) = workers_now();
kill 'STOP', $worker;
# The kernel may wake the stopped one for a connection: then another is made.
my $stuck = eval {
    wait_until('stuck', sub {
        local $SIG{ALRM} = sub { die "not accepted\n" };
        alarm 2;
        my $seconds = eval { metric('edgemeter_edge_outbox_stuck_seconds') };
        alarm 0;
        return $seconds;
    }, 60);
};
kill 'CONT', $worker;
cmp_ok($stuck // 0, '>', 3, 'for more than three seconds');
wait_until('move', sub { !metric('edgemeter_edge_outbox_stuck_seconds') });
is(files('owned'), 2, 'its ring was not taken');



=== TEST 9: records that a restored file cannot deliver are noted as lost
--- http_config eval: main::place('old')
--- config eval: $::metered
--- alerts: went back in time: it had
--- client
settle();
my $start = totals();
my $rollbacks = metric('edgemeter_edge_ring_rollbacks_total');
my $socket = $ENV{TEST_NGINX_METER_SOCKET};
rename $socket, "$socket.away" or die;
get('/m?n=1&fake=close');
get("/m?n=$_") for 2 .. 3;
$::edge->ledger->tell(hello => ['rollback:100']);
rename "$socket.away", $socket or die;
wait_until('alarm', sub {
    metric('edgemeter_edge_ring_rollbacks_total') > $rollbacks;
});
get('/m?n=4');
settle();
all_arrived('4');
is(notes(), 3, 'told');
is(totals($start), '5 3 2 0 0', 'three are lost, one and a sentinel are there');



=== TEST 10: an orphan is adopted by whoever is there, not only by its successor
--- http_config eval: main::place('orphan')
--- config eval: $::metered
--- alerts: exited on signal 9
--- client
reload(sub { s/worker_processes\s+\d+/worker_processes 2/ });
wait_until('two rings', sub { files('owned') == 2 });
reload(sub { s/worker_processes\s+\d+/worker_processes 1/ });
wait_until('a spare', sub { files('spare') });
$::edge->ledger->tell(hold => 1);
get("/m?n=$_") for 1 .. 3;
my $claimed = metric('edgemeter_edge_rings_claimed_total');
kill_worker();
wait_until('adoption', sub {
    metric('edgemeter_edge_rings_claimed_total') > $claimed;
}, 2);
get("/m?n=$_") for 4 .. 5;
$::edge->ledger->tell(hold => 0);
all_arrived('1 2 3 4 5');
my %sessions = map { $_->{session} => 1 } @{ arrived() };
is(scalar(keys %sessions), 2, 'the successor had taken the spare');
wait_until('no orphan', sub { !files('orphan') && files('owned') == 1 });



=== TEST 11: an answer for another session ends the connection
--- config eval: $::metered
--- client
settle();
my $failures = metric('edgemeter_edge_link_failures_total');
get('/m?n=1&fake=tag');
wait_until('new link', sub {
    metric('edgemeter_edge_link_failures_total') > $failures;
});
get('/m?n=2');
settle();
all_arrived('1 2');



=== TEST 12: a directory that everybody may write to
--- http_config eval
"meter_aggregator unix:$ENV{TEST_NGINX_METER_SOCKET}; meter_outbox $::edge->{dir}/open 1m;"
--- config
    location /m { meter on; meter_event e; meter_tenant t; return 204; }
--- must_die
--- error_log
is writable for everybody



=== TEST 13: a directory that cannot be made
--- http_config eval
"meter_aggregator unix:$ENV{TEST_NGINX_METER_SOCKET}; meter_outbox $::edge->{dir}/no/such 1m;"
--- config
    location /m { meter on; meter_event e; meter_tenant t; return 204; }
--- must_die
--- error_log
cannot be made



=== TEST 14: clients are answered while a large ring is verified
--- http_config eval: main::place('large') =~ s/(meter_aggregator unix:\S+?);/$1-none;/r
--- config eval: $::metered
--- alerts: meterd.sock-none failed
--- client
my $inode = leave_ring(outbox('large') . '/hold', 64 << 20, 350_000);
rename outbox('large') . '/hold', outbox('large') . '/ring-0123456789abcdef';
my $client = client();
my ($answered, $n, $end) = (0, 0, time + 30);
until (is_told('0123456789abcdef" is taken over') || time > $end) {
    $client->get('/m?n=' . ++$n);
    $answered += is_locked($inode);
}
$client->close;
cmp_ok($answered, '>=', 3, 'many times');
is(metric('edgemeter_edge_requests_seen_total'), 350_000 + $n,
    'and metered in the ring of the worker');



=== TEST 15: a ring that takes long to make: a small one serves meanwhile
--- http_config eval: $::roomy ? $::edge->http =~ s/meter_outbox \S+ 1m/"meter_outbox $::memory\/edgemeter-$$ 1g"/er : main::place('long')
--- config eval: $::metered
--- client
my $n = 0;
if ($::roomy) {
    my $made;
    wait_until('the large one', sub {
        get('/m?n=' . ++$n);
        my @sizes = map { -s } glob "$::memory/edgemeter-$$/ring-*";
        $made |= grep { $_ == 8 << 20 } @sizes;
        return "@sizes" eq 1 << 30;
    }, 30);
    ok($made, 'a small one was there, and is gone');
}
else {
    get('/m?n=' . ++$n);
    pass("not enough room in $::memory");
}
all_arrived(join ' ', 1 .. $n);
is(metric('edgemeter_edge_requests_unrecorded_total'), 0, 'nothing is lost');
