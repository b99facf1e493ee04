#!/usr/bin/perl

# 15-peers.t - who may speak on the socket.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use POSIX ();
use Test::More;
use Edgemeter::Place;
use Edgemeter::SocketClient;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

plan skip_all => 'only root can become another user' if $> != 0;
plan skip_all => 'there is no user nobody' unless defined getpwnam 'nobody';

my $stack  = Edgemeter::Stack->for_test->start;
my $http   = $stack->http;
my $socket = $stack->socket;

sub metric {
    my ($name) = @_;
    return $http->get('/metrics')->{body} =~ /^$name (\d+)$/m ? $1 : undef;
}

# What a user gets who asks on the socket: a status, "closed" or "denied".
sub ask_as {
    my ($user) = @_;
    my ($uid, $gid) = (getpwnam $user)[2, 3];
    pipe my $in, my $out or die $!;
    my $pid = fork // die $!;
    if ($pid == 0) {
        $) = "$gid $gid";
        POSIX::setgid($gid);
        POSIX::setuid($uid);
        my $client = Edgemeter::SocketClient->new($socket);
        my $answer = $client && $client->request(path => '/healthz');
        syswrite $out,
            !$client ? 'denied' : $answer ? $answer->{status} : 'closed';
        POSIX::_exit(0);
    }
    close $out;
    my $text = do { local $/; <$in> };
    waitpid $pid, 0;
    return $text;
}

is sprintf('%04o', (stat $socket)[2] & 07777), '0660', 'the socket is 0660';
is ask_as('nobody'), 'denied', 'a stranger cannot even connect';
is ask_as($stack->account->name), 200, 'the own user may';
is ask_as('root'), 200, 'root may';

# Suppose someone opened the file to all: the kernel still says who it is.
chmod 0666, $socket;
for (my $path = $socket; $path =~ s{/[^/]+$}{} && length $path;) {
    chmod 0755, $path if (stat $path)[2] & 07777 and $path =~ /em-/;
}
my $before = metric('edgemeter_peers_refused_total');
is ask_as('nobody'), 'closed', 'then the connection is closed';
is metric('edgemeter_peers_refused_total'), $before + 1, 'counted';
my ($uid) = (getpwnam 'nobody')[2];
like $stack->log('meterd'), qr/"foreign user refused","uid":$uid,"pid":\d+/,
    'and logged with the uid';
is ask_as($stack->account->name), 200, 'others are not affected';

ask_as('nobody') for 1 .. 20;
is metric('edgemeter_peers_refused_total'), $before + 21, 'all are counted';
my $lines = () = $stack->log('meterd') =~ /foreign user refused/g;
cmp_ok $lines, '<', 10, "but the log is not filled ($lines lines)";

# Named in the configuration and reloaded: welcome.
my $yaml = $stack->place->path('meterd.yaml');
open my $file, '>>', $yaml or die "$yaml: $!";
print {$file} "limits: { peers: [nobody, nosuchuser] }\n";
close $file;
kill 'HUP', $stack->part_pid('meterd');
wait_until { metric('edgemeter_config_reloads_total') } 10, 'reloaded';
is ask_as('nobody'), 200, 'a user named in limits.peers may';
like $stack->log('meterd'), qr/unknown user","user":"nosuchuser"/,
    'a name nobody has is reported';

done_testing;
