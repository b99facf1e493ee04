#!/usr/bin/perl

# 143-log-file.t - log.path, SIGUSR1, and the file for logrotate: turned
# again and again while meterd writes, and no line is lost or doubled.
#
# Each id is sent twice; the second one is a duplicate and logs one line. At
# most 100 of those are logged in a second, so there are fewer in all.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use File::Temp ();
use JSON::PP ();
use Test::More;
use Edgemeter::Account;
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

use constant { TURNS => 4, IDS => 20 };

my $root    = Edgemeter::Stack::root();
my $place   = File::Temp::tempdir('em-log-XXXXXX', TMPDIR => 1, CLEANUP => 1);
my $account = Edgemeter::Account->service;
my $logs    = "$place/logs";
my $json    = JSON::PP->new->utf8;
chmod 0755, $place;
mkdir $logs, 0750 or die "$logs: $!";
mkdir "$place/bin" or die $!;
$account->own($logs);

my $stack = Edgemeter::Stack->for_test(
    yaml => { log => "{ path: $logs/meterd.log }" })->start;
my $http = $stack->http('acme');

sub slurp {
    my ($path) = @_;
    my ($mode, @command) = $path =~ /\.gz$/ ? ('-|', 'gzip', '-dc') : '<';
    open my $in, $mode, @command, $path or die "$path: $!";
    local $/;
    return scalar(<$in>) // '';
}

sub send_twice {
    my ($id) = @_;
    my $event = {
        event_id => $id, type => 'api.request', ts => '2026-09-01T12:00:00Z',
        attributes => { route => '/log' } };
    $http->post('/v1/events', $event) for 1, 2;
    return;
}

# --- logrotate ----------------------------------------------------------

# The file as it is, but for its place and its user; systemctl is ours.
my $conf = slurp("$root/examples/logrotate/edgemeter");
my $user = $account->name;
my $group = getgrgid $account->gid;
ok $conf =~ s{^/var/log/edgemeter/}{$logs/}m, 'it is for /var/log/edgemeter';
ok $conf =~ s/^ *su edgemeter edgemeter\n/
    $account->differs ? "su $user $group\n" : ''/me, 'and for its user';
Edgemeter::Place::replace_file("$place/conf", 0644, undef, $conf);
Edgemeter::Place::replace_file("$place/bin/systemctl", 0755, undef, <<"SH");
#!/bin/sh
echo "\$*" >>$place/asked
kill -USR1 @{[ $stack->part_pid('meterd') ]}
SH

my $sent = 0;
for my $turn (1 .. TURNS) {
    my $rotate = do {
        local $ENV{PATH} = "$place/bin:$ENV{PATH}:/usr/sbin";
        Edgemeter::Process->spawn(
            name    => 'logrotate',
            command => ['logrotate', '--force', '--state', "$place/state",
                "$place/conf"],
            log     => "$place/rotate.log");
    };
    send_twice('log-' . ++$sent) for 1 .. IDS;
    wait_until { !$rotate->alive } 20, 'logrotate is done';
    is $rotate->status, 0, "turn $turn" or diag slurp("$place/rotate.log");
    wait_until { -e "$logs/meterd.log" } 10,
        'meterd has made the new file';
}
send_twice('log-' . ++$sent);

my @files = sort glob "$logs/meterd.log*";
my $lines = sub { join '', map { slurp($_) } @files };
wait_until { @files = sort glob "$logs/meterd.log*";
    $lines->() =~ /"log-$sent"/ } 10, 'the last line is written';
is_deeply [map { s{.*/}{}r } @files],
    ['meterd.log', 'meterd.log.1', map {"meterd.log.$_.gz"} 2 .. TURNS],
    'the old files, all but one compressed';
my @objects = map { eval { $json->decode($_) } } split /\n/, $lines->();
is scalar(@objects), scalar(split /\n/, $lines->()),
    'every line is one JSON object';
my %times;
$times{ $_->{eventId} }++ for grep { defined $_->{eventId} } @objects;
is_deeply \%times, { map { ("log-$_" => 1) } 1 .. $sent },
    "$sent lines of $sent duplicates, each once";
like slurp("$logs/meterd.log.@{[TURNS]}.gz"), qr/"message":"starting"/,
    'the oldest has the start';
is sprintf('%o', (stat "$logs/meterd.log")[2] & 07777), '640',
    'nobody else may read it';
is $stack->log('meterd'), '', 'nothing went to stderr';
is_deeply [split /\n/, slurp("$place/asked")],
    [('kill --signal=USR1 --kill-who=main meterd.service') x TURNS],
    'meterd, and it alone, was told by systemctl, once a turn';

# --- a file that cannot be had ------------------------------------------

rename $logs, "$place/away" or die $!;
kill 'USR1', $stack->part_pid('meterd');
wait_until { slurp("$place/away/meterd.log") =~ /the log file cannot be opened/ }
    10, 'meterd says so in the old one';
send_twice('log-away');
wait_until { slurp("$place/away/meterd.log") =~ /"log-away"/ } 10,
    'and goes on in it';
rename "$place/away", $logs or die $!;
kill 'USR1', $stack->part_pid('meterd');
send_twice('log-back');
wait_until { slurp("$logs/meterd.log") =~ /"log-back"/ } 10, 'and comes back';
like slurp("$logs/meterd.log"), qr/"log-away".*"log-back"/s,
    'a file that cannot be opened again is done without, and then goes on';

$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
like slurp("$logs/meterd.log"), qr/"message":"ended"/, 'and said so';

my ($status, $out, $err) = Edgemeter::Process::capture(
    user    => $account,
    command => [$ENV{METERD} || "$root/build/meterd", 'run', '-c', yaml()]);
is $status >> 8, 1, 'it does not start without its log file';
like $err, qr{the log file cannot be opened.*/none/meterd\.log}, 'and says why';

sub yaml {
    my $path = "$place/none.yaml";
    Edgemeter::Place::replace_file($path, 0644, undef, <<"YAML");
database: postgresql://meterd\@/none?host=$place
adminDatabase: postgresql://meter_owner\@/none?host=$place
listen: unix:$place/none.sock
stateDir: $place
log: { path: $place/none/meterd.log }
YAML
    return $path;
}

done_testing;
