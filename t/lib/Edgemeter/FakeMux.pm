package Edgemeter::FakeMux;

# FakeMux.pm - the fake meterd's end of a mux.
#
#   nginx -> MUX, REQUEST.. CANCEL.. -> [fake] -> MUX, RESPONSE.. DRAIN
#
# A connection that began with MUX. Numbers, sizes and the order of frames
# are checked as meterd does; what a request asks for, `do=WORD`, is done by
# FakeAggregator.pm with its number, save the words below: these have to go on
# reading while they wait. `tag=NAME` names a request in the fake's log.

use strict;
use warnings;

use IO::Select;
use Time::HiRes qw(sleep time);

use constant {
    DRAIN    => 9,
    REQUEST  => 12,
    MUX      => 14,
    CANCEL   => 15,
    CRITICAL => 1,
    BODY_MAX => 4096,
    POLL     => 0.01,
};

sub new {
    my ($class, %arg) = @_;
    return bless { %arg, bytes => '', count => 0, waiting => {} }, $class;
}

sub run {
    my ($self, $payload, $head) = @_;

    die "bad MUX\n" if length $payload || $head->{seq}
        || $head->{flags} != CRITICAL;
    $self->{fake}->note("mux $self->{number} opened");
    $self->give(MUX, 0);

    while ($self->fill) {
        while (my ($type, $fields, $frame) = $self->take_frame) {
            return if !$self->take($type, $fields, $frame);
        }
        last if !$self->release;
    }
    close $self->{peer};
    $self->tell($_, 'closed') for in_order($self->{waiting});
    $self->{fake}->note("mux $self->{number} closed");
    die "cut frame\n" if length $self->{bytes} && !$self->{stalled};
    return;
}

# A request, or one that is taken back; false: the mux ends here.
sub take {
    my ($self, $type, $fields, $frame) = @_;

    my $seq = $frame->{seq};
    if ($type == CANCEL) {
        die "bad CANCEL\n" if length $fields || !$seq
            || $frame->{flags} != CRITICAL;
        my $c = delete $self->{waiting}{$seq};
        if (!$c) {
            $self->{fake}->note("cancelled nobody $seq");
            return 1;
        }
        $self->tell($c, 'cancelled');
        return $c->{word} eq 'late' ? $self->act($c, 'echo') : 1;
    }
    die "frame type $type on a mux\n" if $type != REQUEST;
    die "no number\n" if !$seq;
    die "number $seq is in use\n" if $self->{waiting}{$seq};

    my $request = Edgemeter::FakeAggregator::decode_request($fields);
    my $size = $request->{body_size};
    die "a body of $size bytes\n" if $size > BODY_MAX;
    while (length $self->{bytes} < $size) {
        $self->fill or die "cut body\n";
    }
    my %want = Edgemeter::FakeAggregator::wanted($request);
    my $c = {
        peer => $self->{peer}, request => $request, want => \%want,
        body => substr($self->{bytes}, 0, $size, ''), seq => $seq,
        connection => $self->{number}, count => ++$self->{count},
        way => 'mux', word => $want{do} // 'echo',
    };
    $self->tell($c, 'arrived');
    my $own = $self->can("do_$c->{word}");
    return $own ? $own->($self, $c) : $self->act($c, $c->{word});
}

sub act {
    my ($self, $c, $word) = @_;

    my $action = $self->{fake}->can("do_$word") or die "no do=$word\n";
    return $action->($self->{fake}, $c);
}

sub tell {
    my ($self, $c, $what) = @_;
    $self->{fake}->note("$what $c->{want}{tag} $c->{seq}")
        if defined $c->{want}{tag};
    return;
}

# ---- bytes ----------------------------------------------------------------

# More bytes, or a moment later; false at the end of the connection.
sub fill {
    my ($self) = @_;

    my $select = IO::Select->new($self->{peer});
    my $gates = grep { defined $_->{want}{gate} } values %{ $self->{waiting} };
    return 1 if !$select->can_read($gates ? POLL : undef);
    return sysread $self->{peer}, $self->{bytes}, 65536,
        length $self->{bytes};
}

sub take_frame {
    my ($self) = @_;

    my $head = Edgemeter::FakeAggregator::HEADER_SIZE();
    return if length $self->{bytes} < $head;
    my $size = $head + unpack 'x8 V', $self->{bytes};
    return if length $self->{bytes} < $size;
    return Edgemeter::FakeAggregator::decode_frame(
        substr $self->{bytes}, 0, $size, '');
}

sub give {
    my ($self, $type, $seq, %change) = @_;
    return Edgemeter::FakeAggregator::give($self->{peer},
        Edgemeter::FakeAggregator::frame($type, '', seq => $seq, %change));
}

# ---- requests that wait ---------------------------------------------------

sub in_order {
    my ($waiting) = @_;
    return map { $waiting->{$_} } sort { $a <=> $b } keys %$waiting;
}

# Those behind a gate that is open are answered as it says: reverse, in one
# write (glue), byte by byte (cut); or the mux is closed. False: it is.
sub release {
    my ($self) = @_;

    my %open;
    for my $c (in_order($self->{waiting})) {
        my $gate = $c->{want}{gate} // next;
        $open{$gate} //= {
            how => $self->{fake}->ledger->gate($gate), held => [],
        };
        push @{ $open{$gate}{held} }, $c if $open{$gate}{how};
    }
    for my $gate (values %open) {
        my @held = @{ $gate->{held} } or next;
        return 0 if $gate->{how} eq 'close';
        @held = reverse @held if $gate->{how} =~ /reverse/;
        delete $self->{waiting}{ $_->{seq} } for @held;

        my @answers = map { $self->answer_of($_) } @held;
        @answers = join '', @answers if $gate->{how} =~ /glue/;
        @answers = map { split // } @answers if $gate->{how} =~ /cut/;
        Edgemeter::FakeAggregator::give($self->{peer}, $_) for @answers;
    }
    return 1;
}

sub answer_of {
    my ($self, $c) = @_;

    my $body = "held $c->{want}{n} $c->{seq}"
        . '.' x ($c->{want}{dots} // 0) . "\n";
    return Edgemeter::FakeAggregator::response($c, body_size => length $body,
        type => 'text/plain') . $body;
}

# ---- words of a mux; true: it goes on -----------------------------------

sub wait_on {
    my ($self, $c) = @_;
    $self->{waiting}{ $c->{seq} } = $c;
    return 1;
}

sub do_never { return wait_on(@_) }
sub do_hold  { return wait_on(@_) }

# Answered once it is taken back.
sub do_late { return wait_on(@_) }

# An answer, then DRAIN; with a gate DRAIN first.
sub do_drain {
    my ($self, $c) = @_;
    defined $c->{want}{gate} ? $self->wait_on($c) : $self->act($c, 'way');
    return $self->give(DRAIN, 0);
}

# A frame of some type, then an answer.
sub do_frame {
    my ($self, $c) = @_;
    $self->give($c->{want}{type}, 0, flags => $c->{want}{flags} // CRITICAL);
    return $self->act($c, 'way');
}

# Answers to nobody, then an answer.
sub do_stranger {
    my ($self, $c) = @_;

    for my $seq (0, $c->{seq} + 1_000_000, 2**63) {
        my $body = "not yours\n";
        Edgemeter::FakeAggregator::give($self->{peer},
            Edgemeter::FakeAggregator::response({ seq => $seq },
                body_size => length $body) . $body);
    }
    return $self->act($c, 'way');
}

# An answer whose body nobody has room for.
sub do_huge {
    my ($self, $c) = @_;
    Edgemeter::FakeAggregator::give($self->{peer},
        Edgemeter::FakeAggregator::response($c,
            body_size => $c->{want}{size}));
    return $self->wait_on($c);
}

# Reads no more until a gate is open; then goes on, or closes.
sub do_stall {
    my ($self, $c) = @_;

    $self->{fake}->note("stalled $c->{want}{tag}");
    $self->{stalled} = 1;
    sleep POLL until $self->{fake}->ledger->gate($c->{want}{gate});
    return 0 if $self->{fake}->ledger->gate($c->{want}{gate}) =~ /close/;
    return $self->act($c, 'way');
}

1;
