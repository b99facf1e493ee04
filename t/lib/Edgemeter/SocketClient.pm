package Edgemeter::SocketClient;

# SocketClient.pm - speaks to meterd's socket without nginx.
#
#   my $client = Edgemeter::SocketClient->new($path) or die $!;
#   my $answer = $client->request(method => 'GET', path => '/healthz');
#   $answer->{status}; $answer->{body}; $answer->{json};
#
# send and receive may be called apart, for pipelined and broken requests.
# The codec is the one of FakeAggregator.pm.

use strict;
use warnings;

use IO::Select;
use IO::Socket::UNIX;
use JSON::PP ();
use Edgemeter::FakeAggregator;

use constant SECONDS => 30;

my %METHOD = (GET => 1, HEAD => 2, POST => 3, PUT => 4, PATCH => 5,
    DELETE => 6, OTHER => 7);
my $CRITICAL = 0x8000;

sub new {
    my ($class, $path) = @_;
    my $socket = IO::Socket::UNIX->new(Peer => $path) or return;
    return bless { socket => $socket, bytes => '' }, $class;
}

# Head and body of one request as bytes.
sub encode {
    my (%r) = @_;
    my $body = $r{body} // '';
    my $field = \&Edgemeter::FakeAggregator::field;
    my $payload
        = $field->(1 | $CRITICAL, pack 'C', $METHOD{ $r{method} // 'GET' })
        . $field->(2 | $CRITICAL, $r{path})
        . $field->(3 | $CRITICAL, pack 'Q<', $r{body_size} // length $body);
    $payload .= $field->(4, $r{args}) if defined $r{args};
    $payload .= $field->(5, "Bearer $r{token}") if defined $r{token};
    $payload .= $field->(6, $r{type}) if defined $r{type};
    $payload .= $field->(7, $r{encoding}) if defined $r{encoding};
    $payload .= $field->(9, $r{key}) if defined $r{key};
    return Edgemeter::FakeAggregator::frame(12, $payload,
        seq => $r{number} // 0) . $body;
}

sub send {
    my ($self, $bytes) = @_;
    local $SIG{PIPE} = 'IGNORE';
    my $at = 0;
    while ($at < length $bytes) {
        my $n = syswrite $self->{socket}, $bytes, 65536, $at;
        return 0 unless defined $n;
        $at += $n;
    }
    return 1;
}

# One whole frame and, for a RESPONSE, its body; undef when the other side
# closed or said nothing in time.
sub receive {
    my ($self, $seconds) = @_;
    my $head = $self->take(40, $seconds) // return;
    my $payload = $self->take(unpack('x8 V', $head), $seconds) // return;
    my ($type, $fields) = Edgemeter::FakeAggregator::decode_frame(
        $head . $payload);
    return { type => $type, payload => $fields } if $type != 13;

    my $answer = decode_response($fields);
    $answer->{body} = $self->take($answer->{body_size}, $seconds) // return;
    $answer->{json} = eval { JSON::PP->new->utf8->decode($answer->{body}) };
    return $answer;
}

# The fields of a RESPONSE, without its body.
sub decode_response {
    my ($fields) = @_;
    my %answer = (type => 13, headers => []);
    my %name = (3 => 'content_type', 5 => 'allow');
    while (length $fields) {
        my ($tag, $size) = unpack 'vV', $fields;
        my $value = substr $fields, 6, $size;
        $fields = substr $fields, 6 + $size;
        my $number = $tag & ~$CRITICAL;
        if    ($number == 1) { $answer{status}    = unpack 'v',  $value }
        elsif ($number == 2) { $answer{body_size} = unpack 'Q<', $value }
        elsif ($number == 4) { $answer{retry}     = unpack 'V',  $value }
        elsif ($name{$number}) { $answer{ $name{$number} } = $value }
    }
    return \%answer;
}

sub take {
    my ($self, $size, $seconds) = @_;
    my $select = IO::Select->new($self->{socket});
    while (length $self->{bytes} < $size) {
        $select->can_read($seconds // SECONDS) or return;
        my $n = sysread $self->{socket}, $self->{bytes}, 65536,
            length $self->{bytes};
        return unless $n;
    }
    return substr $self->{bytes}, 0, $size, '';
}

sub request {
    my ($self, %r) = @_;
    $self->send(encode(%r)) or return;
    return $self->receive;
}

# True when the other side closed without another byte.
sub closed {
    my ($self, $seconds) = @_;
    return 0 if length $self->{bytes};
    IO::Select->new($self->{socket})->can_read($seconds // SECONDS)
        or return 0;
    my $n = sysread $self->{socket}, my $bytes, 1;
    return !$n;
}

sub close { return CORE::close($_[0]{socket}) }

1;
