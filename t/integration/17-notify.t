#!/usr/bin/perl

# 17-notify.t - what meterd tells systemd, on a socket that stands in for it.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Socket qw(AF_UNIX SOCK_DGRAM pack_sockaddr_un MSG_DONTWAIT);
use Test::More;
use Edgemeter::Stack;
use Edgemeter::Wait qw(now wait_until poll_until);

my (@said, $socket);

sub listen_at {
    my ($name) = @_;
    socket $socket, AF_UNIX, SOCK_DGRAM, 0 or die "socket: $!\n";
    bind $socket, pack_sockaddr_un($name) or die "bind: $!\n";
    return;
}

# All messages so far; each is one datagram of NAME=value lines.
sub said {
    while (defined recv $socket, my $text, 4096, MSG_DONTWAIT) {
        push @said, $text;
    }
    return @said;
}

sub saw { my ($what) = @_; return scalar grep {/$what/} said() }

my $abstract = "em-notify-$$";
listen_at("\0$abstract");
my $stack = Edgemeter::Stack->for_test(
    env => { NOTIFY_SOCKET => "\@$abstract", WATCHDOG_USEC => 400_000 },
)->start;

subtest 'a start with the database there' => sub {
    ok +(poll_until { saw(qr/^READY=1$/m) } 20), 'READY=1';
    my ($ready) = grep { $said[$_] =~ /^READY=1$/m } 0 .. $#said;
    like $said[$ready], qr/^STATUS=taking events$/m, 'and the status';
    like $said[0], qr/\ASTATUS=waiting for PostgreSQL\n?\z/,
        'which was another before';
    is $stack->http->get('/readyz')->{status}, 200, 'it can commit then';
    my $count = saw(qr/^WATCHDOG=1$/m);
    ok +(poll_until { saw(qr/^WATCHDOG=1$/m) >= $count + 3 } 10),
        'WATCHDOG=1 again and again';
    is saw(qr/^READY=1$/m), 1, 'READY=1 once';
};

subtest 'PostgreSQL away and back' => sub {
    @said = ();
    $stack->cluster->stop('immediate');
    ok +(poll_until { saw(qr/^STATUS=PostgreSQL is away/m) } 20), 'said so';
    $stack->start_part('postgres');
    ok +(poll_until { saw(qr/^STATUS=taking events$/m) } 30), 'and so';
    is saw(qr/^READY=1/m), 0, 'it was ready all the time';
};

subtest 'the end' => sub {
    @said = ();
    $stack->stop_part('meterd');
    is $stack->part('meterd')->status, 0, 'ended well';
    is saw(qr/^STOPPING=1$/m), 1, 'STOPPING=1';
};

subtest 'a start without the database' => sub {
    my $path = $stack->place->path('notify');
    listen_at($path);
    $stack->account->own($path);
    @said = ();
    $stack->{env} = { NOTIFY_SOCKET => $path, WATCHDOG_USEC => 400_000,
        WATCHDOG_PID => 1 };
    $stack->cluster->stop('fast');
    $stack->start_part('meterd');
    $stack->wait_meterd;
    ok +(poll_until { saw(qr/^READY=1$/m) } 20),
        'does not keep those waiting that come after it';
    my ($ready) = grep {/^READY=1$/m} @said;
    like $ready, qr/^STATUS=PostgreSQL is away/m, 'and says why';
    ok $stack->alive('meterd'), 'it lives on';
    $stack->start_part('postgres');
    ok +(poll_until { saw(qr/^STATUS=taking events$/m) } 30),
        'and takes events when the database is there';
    is saw(qr/^READY=1$/m), 1, 'READY=1 once';
    is saw(qr/^WATCHDOG=1$/m), 0, 'the watchdog is for another process';
};

$stack->stop;
done_testing;
