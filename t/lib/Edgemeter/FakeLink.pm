package Edgemeter::FakeLink;

# FakeLink.pm - the fake aggregator's end of one ring's connection.
#
#   ring -> HELLO, DATA -> [link] -> ledger -> HELLO_ACK, RESULT -> ring
#
# By default it commits what comes, as meterd does: in order, once, fencing
# older connections of the session. A record may ask for something else in
# an attribute named `fake`, WORD or WORD:ARGUMENT; it gets it once, when it
# comes again it is taken as any other:
#
#   duplicate conflict rejected   that verdict
#   close mute garbage half       nothing is committed; the connection ends,
#                                 is silent, talks nonsense, ends in a frame
#   gap retry:MS fenced           nothing is committed; NACK
#   keep WORD                     committed first, then WORD, no RESULT:
#                                 keep:close, keep:mute, keep:garbage ...
#   crc tag critical field type   committed; the RESULT is bad in that way
#   toofar                        committed; the RESULT is of the future
#   skip more bytes nocodes ping  committed; a good RESULT, told differently
#   drain bye                     committed, RESULT; then DRAIN or BYE
#   hello:WORD[:ARGUMENT]         committed, RESULT, closed; the session's
#                                 next HELLO meets WORD
#
# Words for HELLO (also from the test: $ledger->tell(hello => [...])):
#
#   close mute garbage half tag version retry:MS fenced unknown noversion
#   rewind:N     the database has lost the last N records it called durable
#   rollback:N   the database is N records ahead of the ring's file
#   epoch:N      another database

use strict;
use warnings;

use IO::Select;
use Time::HiRes qw(sleep time);

use constant {
    HELLO => 1, HELLO_ACK => 2, DATA => 3, RESULT => 4, CREDIT => 5,
    NACK  => 6, PING      => 7, PONG => 8, DRAIN  => 9, BYE    => 10,
    UNKNOWN   => 77,
    IS_CRITICAL => 1,
    SECONDS   => 30,
    UNLIMITED => 1 << 40,
};

sub new {
    my ($class, %arg) = @_;
    return bless { held => [], limit => 0, %arg }, $class;
}

# From the HELLO frame to the end of the connection.
sub run {
    my ($self, $payload, $head) = @_;

    die "HELLO in version $head->{version}\n" if $head->{version} != 1;
    my $hello = $self->{hello} = Edgemeter::FakeCodec::decode_hello($payload);
    die "HELLO with the tag of another session\n"
        if $head->{tag} != $hello->{tag};
    $self->note('hello', map { $_ => $hello->{$_} }
        grep { defined $hello->{$_} }
        qw(head acked oldest db_epoch pid node build));

    my $go = $self->greet;
    while ($go) {
        my $busy = @{ $self->{held} };
        if (!IO::Select->new($self->{peer})->can_read($busy ? 0.01 : SECONDS)) {
            $go = $self->release;
            next;
        }
        my ($type, $body, $frame)
            = Edgemeter::FakeAggregator::take_frame($self->{peer}) or last;
        die "frame of type $type with another tag\n"
            if $frame->{tag} != $hello->{tag};
        $go = $self->take($type, $body, $frame);
    }
    $self->note('closed');
    return;
}

sub take {
    my ($self, $type, $body, $head) = @_;

    if ($type == DATA) {
        my $records = Edgemeter::FakeCodec::decode_records($body,
            $head->{seq}, $head->{count});
        $self->note('error', error => 'DATA beyond the credit')
            if $head->{seq} + $head->{count} - 1 > $self->{limit};
        push @{ $self->{held} }, $records if @$records;
        return $self->release;
    }
    return $self->send(PONG, '', seq => $head->{seq}) if $type == PING;
    if ($type == PONG) {
        $self->note('pong', number => $head->{seq});
        return 1;
    }
    if ($type == DRAIN || $type == BYE) {
        $self->note($type == DRAIN ? 'drain' : 'bye');
        return $type == DRAIN;
    }
    die "frame type $type\n";
}

sub note {
    my ($self, $kind, %more) = @_;
    $self->{ledger}->append({
        kind => $kind, session => $self->{hello}{id},
        connection => $self->{number}, %more,
    });
    return;
}

sub send {
    my ($self, $type, $payload, %change) = @_;
    return Edgemeter::FakeAggregator::give($self->{peer},
        Edgemeter::FakeAggregator::frame($type, $payload, flags => 0,
            tag => $self->{hello}{tag}, %change));
}

# ---- HELLO ----------------------------------------------------------------

sub greet {
    my ($self) = @_;

    my $hello = $self->{hello};
    my ($state, $word, $gone) = $self->{ledger}->change(sub {
        my ($state) = @_;
        my $session = Edgemeter::FakeLedger::session($state, $hello->{id});
        $self->{generation} = ++$session->{generation};
        my $word = shift @{ $session->{hello} || [] }
            // shift @{ $state->{hello} };
        rewrite($state, $hello, $word) if defined $word;
        return ($state, $word, $self->give_up($session));
    });
    $self->note('gone', count => $gone) if $gone;
    if (defined $word) {
        $self->note('word', word => $word);
        my $go = $self->act('greet', $word);
        return $go if defined $go;
    }
    if ($hello->{version_min} > $state->{version}) {
        $self->send(NACK, Edgemeter::FakeCodec::encode_nack('version'));
        return 0;
    }
    return $self->acknowledge($state);
}

# Records that the ring has no more are not waited for; their number.
sub give_up {
    my ($self, $session) = @_;

    my $gone = ($self->{hello}{oldest} // 0) - 1 - $session->{last};
    return 0 if $gone <= 0;
    $session->{last} += $gone;
    return $gone;
}

# Words that change what the database holds.
sub rewrite {
    my ($state, $hello, $word) = @_;

    my ($name, $count) = split /:/, $word;
    my $session = Edgemeter::FakeLedger::session($state, $hello->{id});
    Edgemeter::FakeLedger::forget($state, $hello->{id},
        $hello->{acked} - $count) if $name eq 'rewind';
    $session->{last} = $hello->{head} - 1 + $count if $name eq 'rollback';
    $state->{epoch} = $count if $name eq 'epoch';
    return;
}

sub acknowledge {
    my ($self, $state, %change) = @_;

    my $session = $state->{sessions}{ $self->{hello}{id} };
    $self->{limit} = limit($state, $session);
    return $self->send(HELLO_ACK, Edgemeter::FakeCodec::encode_hello_ack(
        version => 1, last_seq => $session->{last},
        seq_limit => $self->{limit}, db_epoch => $state->{epoch},
        server_time_us => int(time * 1e6), instance => 'fake',
        verdicts => Edgemeter::FakeLedger::verdicts($session), %change));
}

sub limit {
    my ($state, $session) = @_;
    return $state->{credit} ? $session->{last} + $state->{credit} : UNLIMITED;
}

sub greet_version {
    my ($self) = @_;
    $self->send(NACK, Edgemeter::FakeCodec::encode_nack('version'));
    return 0;
}

sub greet_noversion {
    my ($self) = @_;
    $self->acknowledge($self->{ledger}->peek, version => 9);
    return $self->wait_for_end;
}

sub greet_unknown {
    my ($self) = @_;
    $self->send(UNKNOWN, 'from a later version');
    return $self->acknowledge($self->{ledger}->peek);
}

sub greet_retry {
    my ($self, $ms) = @_;
    $self->send(NACK, Edgemeter::FakeCodec::encode_nack('retry', $ms));
    return $self->wait_for_end;
}

sub greet_fenced {
    my ($self) = @_;
    $self->send(NACK, Edgemeter::FakeCodec::encode_nack('fenced'));
    return 0;
}

sub greet_tag {
    my ($self) = @_;
    local $self->{hello}{tag} = 12345;
    $self->acknowledge($self->{ledger}->peek);
    return $self->wait_for_end;
}

sub greet_rewind   { return undef }
sub greet_rollback { return undef }
sub greet_epoch    { return undef }

# ---- DATA -----------------------------------------------------------------

# Frames that wait are taken, unless the ledger is told to hold.
sub release {
    my ($self) = @_;

    while (@{ $self->{held} }) {
        return 1 if $self->{ledger}->peek->{hold};
        $self->data(shift @{ $self->{held} }) or return 0;
    }
    return 1;
}

sub data {
    my ($self, $records) = @_;

    my $word = $self->word_of($records) // 'plain';
    my ($name, $argument) = split /:/, $word, 2;
    $self->note('word', word => $word) if $name ne 'plain';

    my $go = $self->act('instead', $word);
    return $go if defined $go;

    my $result = $self->commit($records) // return 0;
    return 1 if !ref $result;
    if ($name eq 'keep') {
        return $self->act('instead', $argument)
            // die "no fake=keep:$argument\n";
    }
    my $answer = $self->can("result_$name") || \&result_plain;
    return $answer->($self, $result, $argument);
}

# The first word in these records that was not obeyed yet.
sub word_of {
    my ($self, $records) = @_;

    my @asked = map {
        my $record = $_;
        map { [$record->{seq}, $_->[1]] }
            grep { $_->[0] eq 'fake' && length $_->[1] }
            @{ $record->{attributes} // [] };
    } @$records;
    return undef if !@asked;
    return $self->{ledger}->change(sub {
        my ($state) = @_;
        for (@asked) {
            my ($seq, $word) = @$_;
            next if $state->{done}{"$self->{hello}{id} $seq"}++;
            return $word;
        }
        return undef;
    });
}

sub act {
    my ($self, $when, $word) = @_;

    my ($name, $argument) = split /:/, $word, 2;
    my $action = $self->can("${when}_$name") || $self->can("any_$name");
    return $action ? $action->($self, $argument) : undef;
}

# Into the ledger, as one transaction. Undef: fenced; 0: out of order.
sub commit {
    my ($self, $records) = @_;

    my $id = $self->{hello}{id};
    my $first = $records->[0]{seq};
    my ($nack, $result) = $self->{ledger}->change(sub {
        my ($state) = @_;
        my $session = Edgemeter::FakeLedger::session($state, $id);
        return ['fenced']
            if $session->{generation} != $self->{generation};
        return ['gap', $session->{last} + 1]
            if $first != $session->{last} + 1;

        my @lines = map { $self->book($state, $session, $_) } @$records;
        $self->{ledger}->append(@lines);
        $session->{last} += @$records;
        return (undef, {
            durable_upto => $session->{last}, first_seq => $first,
            codes => [map { $Edgemeter::FakeCodec::CODE{ $_->{verdict} } }
                grep { $_->{verdict} } @lines],
            limit => limit($state, $session),
        });
    });
    return $result if !$nack;
    $self->send(NACK, Edgemeter::FakeCodec::encode_nack(@$nack));
    return $nack->[0] eq 'fenced' ? undef : 0;
}

# One record as lines of the log.
sub book {
    my ($self, $state, $session, $record) = @_;

    my %line = (%$record, session => $self->{hello}{id});
    my $bytes = delete $line{bytes};
    my $used = Edgemeter::FakeLedger::note_bytes($session, $line{seq},
        $bytes);
    my @errors = $used ne 'other' ? () : {
        kind => 'error', session => $line{session},
        error => "number $line{seq} was used for other bytes before",
    };
    $line{again} = 1 if $used eq 'again';

    my ($wanted) = map { $_->[1] } grep {
        $_->[0] eq 'fake' && exists $Edgemeter::FakeCodec::CODE{ $_->[1] }
    } @{ $record->{attributes} // [] };
    $line{verdict} = $line{kind} eq 'lossnote' ? 'none'
        : $wanted // Edgemeter::FakeLedger::verdict($state, $line{session},
            \%line);
    my $code = $Edgemeter::FakeCodec::CODE{ $line{verdict} };
    Edgemeter::FakeLedger::note_verdict($session, $line{seq}, $code,
        $line{count});
    return (@errors, \%line);
}

# ---- RESULT, in all shapes -------------------------------------------------

sub result {
    my ($self, $result, %change) = @_;
    return $self->send(RESULT,
        Edgemeter::FakeCodec::encode_result(%$result),
        seq => $result->{first_seq}, count => scalar @{ $result->{codes} },
        %change);
}

sub result_plain {
    my ($self, $result) = @_;
    $self->result($result);
    return $self->credit($result->{limit});
}

# Told only when there is more of it.
sub credit {
    my ($self, $limit) = @_;
    return 1 if $limit <= $self->{limit};
    $self->{limit} = $limit;
    return $self->send(CREDIT, Edgemeter::FakeCodec::encode_credit($limit));
}

sub result_nocodes {
    my ($self, $result) = @_;
    $self->send(RESULT, Edgemeter::FakeCodec::encode_result(
        durable_upto => $result->{durable_upto}));
    return $self->credit($result->{limit});
}

# Unknown, and may be skipped: a frame, a field, a flag.
sub result_skip {
    my ($self, $result) = @_;
    $self->send(UNKNOWN, 'from a later version');
    return $self->result_plain($result);
}

sub result_more {
    my ($self, $result) = @_;
    return $self->result_plain({
        %$result, more => Edgemeter::FakeCodec::field(60, 'new'),
    });
}

sub result_bytes {
    my ($self, $result) = @_;

    my $bytes = Edgemeter::FakeAggregator::frame(RESULT,
        Edgemeter::FakeCodec::encode_result(%$result), flags => 0,
        tag => $self->{hello}{tag}, seq => $result->{first_seq},
        count => scalar @{ $result->{codes} });
    for my $byte (split //, $bytes) {
        Edgemeter::FakeAggregator::give($self->{peer}, $byte);
        sleep 0.001;
    }
    return $self->credit($result->{limit});
}

sub result_ping {
    my ($self, $result) = @_;
    $self->send(PING, '', seq => 4711);
    return $self->result_plain($result);
}

# Bad ones: the ring must close and ask again.

sub result_crc {
    my ($self, $result) = @_;
    $self->result($result, crc => 1);
    return $self->wait_for_end;
}

sub result_tag {
    my ($self, $result) = @_;
    $self->result($result, tag => 12345);
    return $self->wait_for_end;
}

sub result_critical {
    my ($self, $result) = @_;
    $self->send(UNKNOWN, 'must be known', flags => IS_CRITICAL);
    return $self->wait_for_end;
}

sub result_field {
    my ($self, $result) = @_;
    $self->result({ %$result, more => Edgemeter::FakeCodec::field(
        60 | Edgemeter::FakeCodec::CRITICAL(), 'must be known') });
    return $self->wait_for_end;
}

sub result_type {
    my ($self) = @_;
    $self->send(DATA, '', flags => IS_CRITICAL);
    return $self->wait_for_end;
}

sub result_toofar {
    my ($self, $result) = @_;
    $self->result({ %$result,
        durable_upto => $result->{durable_upto} + 1000 });
    return $self->wait_for_end;
}

# Good ones that end the connection.

# A frame on its way may still come, but soon there must be none.
sub result_drain {
    my ($self, $result) = @_;

    $self->send(DRAIN, '');
    $self->result($result);
    my $told = time;
    while (time < $told + 0.5) {
        $self->note('drained') if !$self->{drained} && time > $told + 0.1
            && ++$self->{drained};
        IO::Select->new($self->{peer})->can_read(0.02) or next;
        my ($type, undef, $head)
            = Edgemeter::FakeAggregator::take_frame($self->{peer}) or return 0;
        $self->note('error', error => 'DATA behind DRAIN')
            if $type == DATA && $self->{drained};
        $self->send(PONG, '', seq => $head->{seq}) if $type == PING;
    }
    $self->send(BYE, '');
    return 0;
}

sub result_bye {
    my ($self, $result) = @_;
    $self->result_plain($result);
    $self->send(BYE, '');
    return 0;
}

sub result_hello {
    my ($self, $result, $word) = @_;
    $self->{ledger}->change(sub {
        my ($state) = @_;
        push @{ $state->{sessions}{ $self->{hello}{id} }{hello} }, $word;
    });
    $self->result_plain($result);
    return 0;
}

# ---- instead of any answer --------------------------------------------------

sub any_close { return 0 }

sub any_mute { return $_[0]->wait_for_end }

sub any_garbage {
    my ($self) = @_;
    Edgemeter::FakeAggregator::give($self->{peer},
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" x 4);
    return $self->wait_for_end;
}

sub any_half {
    my ($self) = @_;
    Edgemeter::FakeAggregator::give($self->{peer},
        substr Edgemeter::FakeAggregator::frame(HELLO_ACK, 'x' x 30), 0, 50);
    return 0;
}

sub instead_gap {
    my ($self) = @_;
    my $state = $self->{ledger}->peek;
    my $last = $state->{sessions}{ $self->{hello}{id} }{last};
    return $self->send(NACK,
        Edgemeter::FakeCodec::encode_nack('gap', $last + 1));
}

sub instead_retry {
    my ($self, $ms) = @_;
    $self->send(NACK, Edgemeter::FakeCodec::encode_nack('retry', $ms));
    return $self->wait_for_end;
}

sub instead_fenced {
    my ($self) = @_;
    $self->send(NACK, Edgemeter::FakeCodec::encode_nack('fenced'));
    return $self->wait_for_end;
}

# The other side must close; what it still sends is read and dropped.
sub wait_for_end {
    my ($self) = @_;

    my $deadline = time + SECONDS;
    while (time < $deadline) {
        IO::Select->new($self->{peer})->can_read($deadline - time) or last;
        my $n = sysread $self->{peer}, my $bytes, 65536;
        return 0 if !$n;
    }
    $self->note('error', error => 'the link was not closed');
    return 0;
}

1;
