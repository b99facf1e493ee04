package Edgemeter::CounterClients;

# CounterClients.pm - many clients of the counters API in one process, each
# with a connection that it keeps and one request at a time on it.
#
#   my %client = (
#       port  => $stack->port,
#       token => $stack->token('acme'),
#       next  => sub { write_request('increment', 'acme', 'n', 0, ...) },
#       told  => sub { my ($request, $answer) = @_; ... },
#   );
#   run_clients(@clients);     # until each next gives undef
#
# next may give a number instead: seconds to wait before it is asked again. A
# request may have a port of its own, and `seconds`, after which the client
# gives up and closes its connection. The answer:
#
#   { status, body, net, added, subbed, began, ended, sent }
#
# status 0: none came; sent: whether the request went out at all. Times are of
# one clock for all clients.

use strict;
use warnings;
use Exporter 'import';
use IO::Socket::INET;
use Socket qw(IPPROTO_TCP TCP_NODELAY);
use Edgemeter::Wait qw(now);

our @EXPORT_OK = qw(run_clients ask_one write_request read_request stamp);

use constant SECONDS => 40;

my %METHOD = (set => 'PUT', get => 'GET', sumRange => 'GET');

# --- requests -----------------------------------------------------------

# More: amount, target, expires (RFC 3339), key; all as they are to be sent.
sub write_request {
    my ($endpoint, $tenant, $name, $duration, $at, %more) = @_;
    my $body = qq({"durationSeconds":$duration,"timestamp":"$at");
    $body .= qq(,"amount":$more{amount})        if defined $more{amount};
    $body .= qq(,"targetValue":"$more{target}") if defined $more{target};
    $body .= qq(,"expiresAt":"$more{expires}")  if defined $more{expires};
    return {
        method => $METHOD{$endpoint} // 'POST',
        path   => "/api/counters/$tenant/$name/$endpoint",
        body   => "$body}",
        key    => $more{key},
    };
}

sub read_request {
    my ($endpoint, $tenant, $name, %query) = @_;
    return {
        method => 'GET',
        path   => "/api/counters/$tenant/$name/$endpoint?" . join('&',
            map {"$_=$query{$_}"} sort keys %query),
    };
}

# Seconds since 1970 as RFC 3339.
sub stamp {
    my ($second) = @_;
    my ($s, $min, $hour, $day, $month, $year) = gmtime $second;
    return sprintf '%04d-%02d-%02dT%02d:%02d:%02dZ', $year + 1900, $month + 1,
        $day, $hour, $min, $s;
}

sub bytes_of {
    my ($request, $token) = @_;
    my $head = "$request->{method} $request->{path} HTTP/1.1\r\n"
        . "Host: localhost\r\nAuthorization: Bearer $token\r\n";
    $head .= "Idempotency-Key: $request->{key}\r\n" if defined $request->{key};
    return "$head\r\n" if !defined $request->{body};
    return $head . "Content-Type: application/json\r\nContent-Length: "
        . length($request->{body}) . "\r\n\r\n$request->{body}";
}

# --- clients ------------------------------------------------------------

# One request on a connection of its own.
sub ask_one {
    my ($port, $token, $request) = @_;
    my ($left, $answer) = ($request);
    run_clients({
        port  => $port,
        token => $token,
        next  => sub { my $one = $left; $left = undef; return $one },
        told  => sub { $answer = $_[1] },
    });
    return $answer;
}

sub run_clients {
    my @clients = @_;
    local $SIG{PIPE} = 'IGNORE';
    $_->{not_before} = 0 for @clients;
    my %left = map { $_ => $_ } @clients;
    while (%left) {
        my $now = now();
        for my $client (values %left) {
            next if $client->{request} || $client->{not_before} > $now;
            my $request = $client->{next}->();
            if (!defined $request) {
                drop($client);
                delete $left{$client};
            }
            elsif (!ref $request) {
                $client->{not_before} = $now + $request;
            }
            else {
                begin($client, $request);
            }
        }
        wait_for(values %left) if %left;
    }
    return;
}

sub begin {
    my ($client, $request) = @_;
    my $port = $request->{port} // $client->{port};
    drop($client) if ($client->{at} // $port) != $port;
    $client->{request} = $request;
    $client->{began}   = now();
    if (!$client->{socket}) {
        my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
            PeerPort => $port, Timeout => 5);
        return finish($client, { status => 0, sent => 0 }) if !$socket;
        setsockopt $socket, IPPROTO_TCP, TCP_NODELAY, 1;
        @$client{qw(socket at bytes)} = ($socket, $port, '');
    }
    $client->{deadline} = $client->{began} + ($request->{seconds} // SECONDS);
    my $bytes = bytes_of($request, $client->{token});
    my $wrote = syswrite $client->{socket}, $bytes;
    lose($client) if ($wrote // 0) != length $bytes;
    return;
}

sub drop {
    my ($client) = @_;
    close $client->{socket} if $client->{socket};
    delete @$client{qw(socket at bytes)};
    return;
}

sub lose {
    my ($client) = @_;
    drop($client);
    return finish($client, { status => 0, sent => 1 });
}

sub finish {
    my ($client, $answer) = @_;
    my $request = delete $client->{request};
    @$answer{qw(began ended)} = ($client->{began}, now());
    @$answer{qw(net added subbed)} = ($1, $2, $3)
        if ($answer->{body} // '')
        =~ /^\{"net":"(\d+)","added":"(\d+)","subbed":"(\d+)"\}$/;
    $client->{told}->($request, $answer);
    return;
}

# Something to read, or the next deadline.
sub wait_for {
    my @clients = @_;
    my ($bits, $until) = ('', now() + 1);
    my %of;
    for my $client (@clients) {
        my $then = $client->{request} ? $client->{deadline}
            : $client->{not_before};
        $until = $then if $then < $until;
        next if !$client->{request};
        my $number = fileno $client->{socket};
        vec($bits, $number, 1) = 1;
        $of{$number} = $client;
    }
    my $seconds = $until - now();
    my $ready = '';
    select $ready = $bits, undef, undef, $seconds > 0 ? $seconds : 0;
    for my $number (keys %of) {
        my $client = $of{$number};
        if (vec $ready, $number, 1) {
            take($client);
        }
        elsif ($client->{deadline} <= now()) {
            lose($client);
        }
    }
    return;
}

sub take {
    my ($client) = @_;
    my $got = sysread $client->{socket}, $client->{bytes}, 65536,
        length $client->{bytes};
    return lose($client) if !$got;
    return if $client->{bytes} !~ /\r\n\r\n/;
    my $head = $-[0];
    my ($size) = $client->{bytes} =~ /^content-length: (\d+)\r$/mi;
    die "an answer without a size: $client->{bytes}\n" if !defined $size;
    return if length $client->{bytes} < $head + 4 + $size;
    my ($status) = $client->{bytes} =~ m{^HTTP/1\.1 (\d+)};
    my $text = substr $client->{bytes}, 0, $head;
    my $body = substr $client->{bytes}, $head + 4, $size;
    $client->{bytes} = substr $client->{bytes}, $head + 4 + $size;
    drop($client) if $text =~ /^connection: close/mi;
    return finish($client,
        { status => $status, body => $body, head => $text, sent => 1 });
}

1;
