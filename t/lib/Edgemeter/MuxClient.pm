package Edgemeter::MuxClient;

# MuxClient.pm - a worker with many requests at once on meterd's socket.
#
#   my $mux = Edgemeter::MuxClient->new($path) or die $!;
#   my $number = $mux->start(method => 'GET', path => '/healthz');
#   $mux->answer($number)->{status};         # see SocketClient.pm
#   $mux->told($number);                     # "200 ok"
#   $mux->cancel($number); $mux->close;
#
# start only queues; bytes go out and come in while something is waited for,
# both at once, so that neither side waits for the other. {is_drained}: DRAIN
# came; {is_closed}: the other side has ended it.

use strict;
use warnings;

use IO::Select;
use IO::Socket::UNIX;
use Edgemeter::FakeAggregator;
use Edgemeter::SocketClient;
use Edgemeter::Wait qw(now);

use constant {
    SECONDS     => 30,
    HEADER_SIZE => 40,
    DRAIN       => 9,
    RESPONSE    => 13,
    MUX         => 14,
    CANCEL      => 15,
};

# Nothing when nobody listens, or MUX is not answered.
sub new {
    my ($class, $path) = @_;
    my $self = $class->connect($path) or return;
    $self->put(Edgemeter::FakeAggregator::frame(MUX, ''));
    return $self->wait_for(sub { $self->{is_open} }) ? $self : undef;
}

# Without a word.
sub connect {
    my ($class, $path) = @_;
    my $socket = IO::Socket::UNIX->new(Peer => $path) or return;
    $socket->blocking(0);
    return bless { socket => $socket, in => '', out => '', last => 0,
        flying => {}, answers => {} }, $class;
}

sub put {
    my ($self, $bytes) = @_;
    $self->{out} .= $bytes;
    return;
}

sub start {
    my ($self, %request) = @_;
    my $number = $request{number} //= ++$self->{last};
    $self->{flying}{$number} = 1;
    $self->put(Edgemeter::SocketClient::encode(%request));
    return $number;
}

sub cancel {
    my ($self, $number) = @_;
    $self->{cancelled}{$number} = delete $self->{flying}{$number};
    $self->put(Edgemeter::FakeAggregator::frame(CANCEL, '', seq => $number));
    return;
}

# How many have no answer yet.
sub flying { return scalar keys %{ $_[0]{flying} } }

# --- waiting ------------------------------------------------------------

# What the condition gives; nothing: closed before, or not in time.
sub wait_for {
    my ($self, $condition, $seconds) = @_;
    my $deadline = now() + ($seconds // SECONDS);
    while (1) {
        my $value = $condition->();
        return $value if $value;
        my $left = $deadline - now();
        return if $left <= 0 || $self->{is_closed};
        $self->step($left);
    }
}

# The answer, once.
sub answer {
    my ($self, $number, $seconds) = @_;
    $self->wait_for(sub { $self->{answers}{$number} }, $seconds);
    return delete $self->{answers}{$number};
}

sub told {
    my ($self, $number, $seconds) = @_;
    my $answer = $self->answer($number, $seconds) or return 'none';
    return "$answer->{status} $answer->{body}";
}

sub request {
    my ($self, %request) = @_;
    return $self->told($self->start(%request));
}

# All are answered; nothing is left to send.
sub settle {
    my ($self, $seconds) = @_;
    return $self->wait_for(
        sub { $self->{out} eq '' && !$self->flying }, $seconds);
}

sub sent {
    my ($self, $seconds) = @_;
    return $self->wait_for(sub { $self->{out} eq '' }, $seconds);
}

sub closed {
    my ($self, $seconds) = @_;
    $self->wait_for(sub { $self->{is_closed} }, $seconds);
    return $self->{is_closed};
}

# As much as the socket takes; nothing is read.
sub push_only {
    my ($self) = @_;
    local $SIG{PIPE} = 'IGNORE';
    my $n = syswrite $self->{socket}, $self->{out}, 65536;
    substr $self->{out}, 0, $n, '' if $n;
    return $n // 0;
}

# One round of both directions.
sub step {
    my ($self, $seconds) = @_;
    my $select  = IO::Select->new($self->{socket});
    my $writing = length $self->{out} ? $select : undef;
    my ($readable, $writable)
        = IO::Select->select($select, $writing, undef, $seconds);
    $self->push_only if @{ $writable // [] };
    return if !@{ $readable // [] };
    my $n = sysread $self->{socket}, $self->{in}, 1 << 18, length $self->{in};
    $self->{is_closed} = 1 if defined $n ? $n == 0 : !$!{EAGAIN};
    while ($self->take_frame) { }
    return;
}

# --- frames -------------------------------------------------------------

sub take_frame {
    my ($self) = @_;
    return 0 if length $self->{in} < HEADER_SIZE;
    my $size = HEADER_SIZE + unpack 'x8 V', $self->{in};
    return 0 if length $self->{in} < $size;
    my ($type, $fields, $head)
        = Edgemeter::FakeAggregator::decode_frame(substr $self->{in}, 0, $size);
    if ($type == RESPONSE) {
        my $answer = Edgemeter::SocketClient::decode_response($fields);
        return 0 if length $self->{in} < $size + $answer->{body_size};
        $answer->{body} = substr $self->{in}, $size, $answer->{body_size};
        $size += $answer->{body_size};
        my $number = $head->{seq};
        if (delete $self->{flying}{$number}) {
            $self->{answers}{$number} = $answer;
        }
        elsif (!delete $self->{cancelled}{$number}) {
            die "an answer to $number twice, or to nothing\n";
        }
    }
    elsif ($type == MUX && !$self->{is_open}) { $self->{is_open} = 1 }
    elsif ($type == DRAIN && !$self->{is_drained}) { $self->{is_drained} = 1 }
    else { die "a frame of type $type\n" }
    substr $self->{in}, 0, $size, '';
    return 1;
}

sub close { return CORE::close($_[0]{socket}) }

1;
