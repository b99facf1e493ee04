package Edgemeter::H2Client;

# H2Client.pm - a small HTTP/2 client with prior knowledge.
#
#   my $client = Edgemeter::H2Client->new($socket_path);
#   my @streams = map { $client->request('GET', $_) } @paths;  # sent at once
#   my $answers = $client->finish(@streams);    # { stream => {code, body} }
#   $client->cancel($stream); $client->close;
#
# Enough for nginx: header names and values go out as literals, of what comes
# back only the status is read. Bodies must fit the first window.

use strict;
use warnings;

use IO::Select;
use IO::Socket::UNIX;

use constant {
    DATA    => 0, HEADERS => 1, RST_STREAM => 3, SETTINGS => 4, PING => 6,
    GOAWAY  => 7,
    END_STREAM => 1, ACK => 1, END_HEADERS => 4,
    CANCEL  => 8,
    SECONDS => 10,
};

# The statuses of HPACK's static table.
my %STATUS = (0x88 => 200, 0x89 => 204, 0x8a => 206, 0x8b => 304,
    0x8c => 400, 0x8d => 404, 0x8e => 500);

sub new {
    my ($class, $path) = @_;

    my $socket = IO::Socket::UNIX->new(Peer => $path)
        or die "cannot connect to $path: $!\n";
    my $self = bless {
        socket => $socket, next => 1, bytes => '', out => '', answers => {},
    }, $class;
    $self->{out} = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" . frame(SETTINGS, 0, 0);
    return $self;
}

sub frame {
    my ($type, $flags, $stream, $payload) = @_;
    $payload //= '';
    return pack('CnCCN', length($payload) >> 16, length($payload) & 0xffff,
        $type, $flags, $stream) . $payload;
}

sub literal {
    my ($name, $value) = @_;
    die "too long for this client\n"
        if length $name > 126 || length $value > 126;
    return pack 'C C/a* C/a*', 0, $name, $value;
}

# Queues a request; it leaves with flush or finish. With is_open its body has
# no end.
sub request {
    my ($self, $method, $path, %arg) = @_;

    my $stream = $self->{next};
    $self->{next} += 2;
    my $headers = join '', literal(':method', $method),
        literal(':scheme', 'http'), literal(':path', $path),
        literal(':authority', 'localhost'),
        map { literal($_, $arg{headers}{$_}) } keys %{ $arg{headers} || {} };
    my $body = $arg{body};
    $self->{out} .= frame(HEADERS,
        END_HEADERS | (defined $body ? 0 : END_STREAM), $stream, $headers);
    if (defined $body) {
        my @pieces = unpack '(a16000)*', $body;
        my $last = pop @pieces // '';
        $self->{out} .= frame(DATA, 0, $stream, $_) for @pieces;
        $self->{out} .= frame(DATA, $arg{is_open} ? 0 : END_STREAM,
            $stream, $last);
    }
    $self->{answers}{$stream} = { code => '', body => '' };
    return $stream;
}

sub cancel {
    my ($self, $stream) = @_;
    $self->{out} .= frame(RST_STREAM, 0, $stream, pack 'N', CANCEL);
    return $self->flush;
}

sub flush {
    my ($self) = @_;
    while (length $self->{out}) {
        my $n = syswrite $self->{socket}, $self->{out}
            or die "the server is gone: $!\n";
        substr $self->{out}, 0, $n, '';
    }
    return;
}

# The answers of these streams, when all have ended.
sub finish {
    my ($self, @streams) = @_;

    $self->flush;
    while (grep { !$self->{answers}{$_}{end} } @streams) {
        $self->take_frame;
        $self->flush;
    }
    return { map { $_ => $self->{answers}{$_} } @streams };
}

sub take_frame {
    my ($self) = @_;

    my ($high, $low, $type, $flags, $stream) = unpack 'CnCCN', $self->take(9);
    my $payload = $self->take($high << 16 | $low);
    my $answer = $self->{answers}{$stream};

    if ($type == SETTINGS) {
        $self->{out} .= frame(SETTINGS, ACK, 0) if !($flags & ACK);
    } elsif ($type == PING) {
        $self->{out} .= frame(PING, ACK, 0, $payload) if !($flags & ACK);
    } elsif ($type == HEADERS) {
        $answer->{code} = status($payload) if $answer->{code} eq '';
    } elsif ($type == DATA) {
        $answer->{body} .= $payload;
    } elsif ($type == RST_STREAM) {
        $answer->{reset} = $answer->{end} = 1;
    } elsif ($type == GOAWAY) {
        die "the server closes\n" if unpack 'x4 N', $payload;
    }
    $answer->{end} = 1
        if ($type == HEADERS || $type == DATA) && $flags & END_STREAM;
    return;
}

# The first field nginx sends, behind changes of the table's size.
sub status {
    my ($block) = @_;
    $block =~ s/^[\x20-\x3f]+//;
    my $byte = unpack 'C', $block;
    return $STATUS{$byte} if $STATUS{$byte};
    return $block =~ /^[\x08\x48]\x03(\d{3})/ ? $1 : 'unknown';
}

sub take {
    my ($self, $size) = @_;

    while (length $self->{bytes} < $size) {
        IO::Select->new($self->{socket})->can_read(SECONDS)
            or die "no answer in time\n";
        sysread $self->{socket}, $self->{bytes}, 65536, length $self->{bytes}
            or die "the server has closed\n";
    }
    return substr $self->{bytes}, 0, $size, '';
}

sub close { return CORE::close($_[0]{socket}) }

1;
