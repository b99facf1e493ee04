package Edgemeter::HttpClient;

# HttpClient.pm - a client that can stop, pipeline and vanish.
#
#   my $client = Edgemeter::HttpClient->new($port_or_socket_path);
#   $client->send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
#   my $answer = $client->receive;   # { code, head, body }, undef: closed
#   $client->close; $client->reset;
#
#   my $answer = $client->get('/path', 'X-Header: value');

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use Socket qw(SOL_SOCKET SO_LINGER SO_RCVBUF);

use constant SECONDS => 10;

sub new {
    my ($class, $where, %arg) = @_;

    my $socket = $where =~ m{^/} ? IO::Socket::UNIX->new(Peer => $where)
        : IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $where);
    die "cannot connect to $where: $!\n" if !$socket;
    setsockopt $socket, SOL_SOCKET, SO_RCVBUF, pack 'i', $arg{buffer}
        if $arg{buffer};
    return bless { socket => $socket, bytes => '' }, $class;
}

sub send {
    my ($self, $bytes) = @_;

    local $SIG{PIPE} = 'IGNORE';
    my $at = 0;
    while ($at < length $bytes) {
        my $n = syswrite $self->{socket}, $bytes, 65536, $at;
        return 0 if !defined $n;
        $at += $n;
    }
    return 1;
}

# A request's text; Connection: close unless asked otherwise.
sub text {
    my ($method, $path, @headers) = @_;

    unshift @headers, 'Host: localhost' if !grep { /^Host:/i } @headers;
    return join "\r\n", "$method $path HTTP/1.1", @headers, '', '';
}

sub request {
    my ($self, $method, $path, @headers) = @_;
    $self->send(text($method, $path, @headers));
    return $self->receive($method);
}

sub get { my $self = shift; return $self->request('GET', @_) }

# ---- answers --------------------------------------------------------------

sub receive {
    my ($self, $method) = @_;

    while ($self->{bytes} !~ /\r\n\r\n/) {
        $self->more or return;
    }
    $self->{bytes} =~ s/^(.*?\r\n)\r\n//s;
    my %answer = (head => $1);
    ($answer{code}) = $answer{head} =~ m{^HTTP/1\.\d (\d+)};
    $answer{body} = $self->body($answer{head}, $answer{code}, $method // '');
    return \%answer;
}

sub body {
    my ($self, $head, $code, $method) = @_;

    return '' if $method eq 'HEAD' || $code =~ /^(1\d\d|204|304)$/;
    if ($head =~ /^Content-Length: (\d+)/mi) {
        return $self->take($1);
    }
    if ($head =~ /^Transfer-Encoding: chunked/mi) {
        return $self->chunks;
    }
    1 while $self->more;
    return $self->take(length $self->{bytes});
}

sub chunks {
    my ($self) = @_;

    my $body = '';
    while (1) {
        while ($self->{bytes} !~ /\r\n/) {
            $self->more or return "$body(cut)";
        }
        $self->{bytes} =~ s/^([0-9a-fA-F]+)\r\n// or return "$body(bad)";
        my $size = hex $1;
        $body .= $self->take($size) if $size;
        $self->take(2);
        return $body if !$size;
    }
}

# So many bytes, or what came before the end.
sub take {
    my ($self, $size) = @_;
    while (length $self->{bytes} < $size) {
        $self->more or last;
    }
    return substr $self->{bytes}, 0, $size, '';
}

sub more {
    my ($self) = @_;

    IO::Select->new($self->{socket})->can_read(SECONDS)
        or die "no answer in time\n";
    my $n = sysread $self->{socket}, $self->{bytes}, 65536,
        length $self->{bytes};
    return $n;
}

# True once the other side has closed.
sub is_closed {
    my ($self) = @_;
    1 while $self->more;
    return 1;
}

sub close { return CORE::close($_[0]{socket}) }

# Gone without a word: the other side gets a reset.
sub reset {
    my ($self) = @_;
    setsockopt $self->{socket}, SOL_SOCKET, SO_LINGER, pack 'ii', 1, 0;
    return $self->close;
}

1;
