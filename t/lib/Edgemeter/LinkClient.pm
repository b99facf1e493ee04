package Edgemeter::LinkClient;

# LinkClient.pm - a ring that speaks to meterd's socket without nginx.
#
#   my $ring = Edgemeter::LinkClient->session;         # 16 random bytes
#   my $link = Edgemeter::LinkClient->new($path, session => $ring);
#   my $ack  = $link->hello(head => 4);                # HELLO_ACK or what came
#   $link->data(1, event(tenant => 'acme', ...), ...); # numbered from 1 on
#   my $result = $link->wait_for('RESULT');
#
# Messages come back as hashes with their name in {type}. A second reading of
# docs/protocol.md: bodies are made and read here, frames by
# FakeAggregator.pm, which knows nothing of the C code either.

use strict;
use warnings;

use Exporter 'import';
use IO::Select;
use IO::Socket::UNIX;
use Edgemeter::FakeAggregator;
use Edgemeter::Wait qw(now);

our @EXPORT_OK = qw(event delta dupnote lossnote record minted_id);

use constant {
    SECONDS     => 30,
    CRITICAL    => 0x8000,
    HEADER_SIZE => 40,
};

our %TYPE = (
    HELLO => 1, HELLO_ACK => 2, DATA => 3, RESULT => 4, CREDIT => 5,
    NACK => 6, PING => 7, PONG => 8, DRAIN => 9, BYE => 10, PUSH => 11,
    REQUEST => 12, RESPONSE => 13,
);
my %NAME = reverse %TYPE;

my %KIND = (event => 1, delta => 2, dupnote => 3, lossnote => 4);
my @CODES = qw(accepted duplicate conflict rejected);
my @NACKS = qw(? gap fenced version retry_after);

# number => name and form; a form alone is a number's pack letter
my %FIELDS = (
    HELLO_ACK => {
        1 => [version => 'C'],       2 => [last_seq => 'Q<'],
        3 => [seq_limit => 'Q<'],    4 => [db_epoch => 'Q<'],
        5 => [config_version => 'Q<'], 6 => [server_time => 'q<'],
        7 => [instance => 'text'],   8 => [verdicts => 'totals'],
    },
    RESULT => {
        1 => [durable_upto => 'Q<'], 2 => [first_seq => 'Q<'],
        3 => [codes => 'codes'],
    },
    CREDIT => { 1 => [seq_limit => 'Q<'] },
    NACK   => { 1 => [code => 'nack'], 2 => [value => 'Q<'] },
);

my %READ = (
    text   => sub { $_[0] },
    totals => sub { [unpack 'Q<4', $_[0]] },
    codes  => sub { [map { $CODES[$_] // 'none' } unpack 'C*', $_[0]] },
    nack   => sub { $NACKS[unpack 'C', $_[0]] },
);

# --- records ------------------------------------------------------------

sub field { return Edgemeter::FakeAggregator::field(@_) }

sub required { return field($_[0] | CRITICAL, $_[1]) }

# The body of an EVENT; ts in microseconds, attributes as a hash.
sub event_body {
    my (%e) = @_;
    my $body = required(1, $e{tenant} // 'acme')
        . required(2, $e{type} // 'api.request')
        . required(3, pack 'q<', $e{ts} // 1_788_264_000_000_000);
    my $number = 4;
    for my $name (qw(event_id customer resource quantity)) {
        $body .= field($number, $e{$name}) if defined $e{$name};
        $number++;
    }
    $body .= field(8, pack 'q<', $e{count}) if defined $e{count};
    $body .= field(9, pack 'V', $e{flags} // 1);
    my $attributes = $e{attributes} // { route => '/r' };
    for my $name (sort keys %$attributes) {
        $body .= field(10,
            pack('V', length $name) . $name . $attributes->{$name});
    }
    return $body . ($e{more} // '');
}

# [kind, body], for `data`.
sub event   { return ['event',   event_body(@_)] }
sub delta   { return ['delta',   event_body(@_)] }
sub dupnote { return ['dupnote', event_body(@_)] }

sub lossnote {
    my (%l) = @_;
    return ['lossnote',
        required(1, pack 'Q<', $l{count})
            . field(2, pack 'q<', $l{first} // 1_788_264_000_000_000)
            . field(3, pack 'q<', $l{last}  // 1_788_264_001_000_000)
            . field(4, pack 'V',  $l{reasons} // 1)];
}

# A whole record as it stands in a ring.
sub record {
    my ($seq, $kind, $body) = @_;
    my $size = (24 + length($body) + 7) & ~7;
    my $rest = pack('Q< C x3 V', $seq, $KIND{$kind} // $kind, length $body)
        . $body . "\0" x ($size - 24 - length $body);
    my $crc = Edgemeter::FakeAggregator::crc32c(pack('V', $size) . $rest);
    return pack('VV', $size, $crc) . $rest;
}

# What the ledger calls a record without a client's id.
sub minted_id {
    my ($session, $seq, $ts) = @_;
    return sprintf 'edge-%s-%d-%d', unpack('H*', $session), $seq,
        $ts // 1_788_264_000_000_000;
}

# --- the connection -----------------------------------------------------

sub session {
    open my $random, '<:raw', '/dev/urandom' or die $!;
    read $random, my $session, 16;
    return $session;
}

sub uuid {
    my ($session) = @_;
    return join '-', unpack 'H8 H4 H4 H4 H12', $session;
}

# Nothing when nobody listens.
sub new {
    my ($class, $path, %arg) = @_;
    my $socket = IO::Socket::UNIX->new(Peer => $path) or return;
    return bless {
        socket  => $socket,
        session => $arg{session} // session(),
        bytes   => '',
    }, $class;
}

sub tag { return unpack 'Q<', $_[0]{session} }

# One frame with this ring's tag; %change overrides header fields.
sub send {
    my ($self, $type, $payload, %change) = @_;
    return $self->send_bytes(Edgemeter::FakeAggregator::frame(
        $TYPE{$type} // $type, $payload // '', flags => 0,
        tag => $self->tag, %change));
}

sub send_bytes {
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

sub hello_payload {
    my ($self, %h) = @_;
    my $payload = required(1, pack 'C', $h{min} // 1)
        . required(2, pack 'C',  $h{max} // 1)
        . required(3, $self->{session})
        . required(4, pack 'Q<', $h{head}  // 1)
        . required(5, pack 'Q<', $h{acked} // 0)
        . field(7, pack 'V', $$)
        . field(8, $h{node} // 'test');
    $payload .= field(6,  pack 'Q<', $h{db_epoch}) if defined $h{db_epoch};
    $payload .= field(10, pack 'Q<', $h{oldest})   if defined $h{oldest};
    return $payload . ($h{more} // '');
}

sub send_hello {
    my ($self, %h) = @_;
    return $self->send('HELLO', $self->hello_payload(%h));
}

# Says hello; gives back what came first.
sub hello {
    my ($self, %h) = @_;
    my $seconds = delete $h{seconds};
    $self->send_hello(%h) or return;
    return $self->receive($seconds);
}

# Records as [kind, body], numbered from $first on.
sub data {
    my ($self, $first, @records) = @_;
    my $seq = $first;
    return $self->send('DATA',
        join('', map { record($seq++, @$_) } @records),
        seq => $first, count => scalar @records);
}

# The next message; nothing at the end, or when none came in time.
sub receive {
    my ($self, $seconds) = @_;
    my $deadline = now() + ($seconds // SECONDS);
    my $head     = $self->take(HEADER_SIZE, $deadline) // return;
    my $payload  = $self->take(unpack('x8 V', $head), $deadline) // return;
    my ($type, $body, $frame)
        = Edgemeter::FakeAggregator::decode_frame($head . $payload);
    my $name = $NAME{$type} // $type;
    die "$name with the tag of another ring\n"
        if $frame->{tag} != $self->tag;
    my $message = { type => $name, seq => $frame->{seq},
        count => $frame->{count}, version => $frame->{version} };
    my $known = $FIELDS{$name} or return $message;
    while (length $body) {
        my ($tag, $size) = unpack 'vV', $body;
        my $value = substr $body, 6, $size;
        $body = substr $body, 6 + $size;
        my $field = $known->{ $tag & ~CRITICAL }
            or die "$name: field $tag\n";
        my ($field_name, $form) = @$field;
        $message->{$field_name} = $READ{$form}
            ? $READ{$form}->($value)
            : unpack $form, $value;
    }
    return $message;
}

# The next message of a type; others, a test that cares about them reads.
sub wait_for {
    my ($self, $type, $seconds) = @_;
    my $deadline = now() + ($seconds // SECONDS);
    while ((my $left = $deadline - now()) > 0) {
        my $message = $self->receive($left) or return;
        return $message if $message->{type} eq $type;
    }
    return;
}

# Codes of everything up to a number, by number.
sub codes_upto {
    my ($self, $upto, $seconds) = @_;
    my (%code, $durable);
    while (($durable // 0) < $upto) {
        my $result = $self->wait_for('RESULT', $seconds) or return;
        $durable = $result->{durable_upto};
        my $seq = $result->{first_seq};
        $code{ $seq++ } = $_ for @{ $result->{codes} // [] };
    }
    return \%code;
}

sub take {
    my ($self, $size, $deadline) = @_;
    my $select = IO::Select->new($self->{socket});
    while (length $self->{bytes} < $size) {
        my $left = $deadline - now();
        return if $left <= 0 || !$select->can_read($left);
        my $n = sysread $self->{socket}, $self->{bytes}, 65536,
            length $self->{bytes};
        return unless $n;
    }
    return substr $self->{bytes}, 0, $size, '';
}

# True when the other side ends the connection without another message.
sub closed {
    my ($self, $seconds) = @_;
    return 0 if length $self->{bytes};
    IO::Select->new($self->{socket})->can_read($seconds // SECONDS)
        or return 0;
    my $n = sysread $self->{socket}, $self->{bytes}, 1;
    return !$n;
}

sub close { return CORE::close($_[0]{socket}) }

1;
