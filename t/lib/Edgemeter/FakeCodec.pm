package Edgemeter::FakeCodec;

# FakeCodec.pm - messages and records of capture, as docs/protocol.md has it.
#
#   DATA payload -> decode_records -> one hash a record
#   names        -> encode_hello_ack, encode_result, ... -> payload
#
# A second reading of that page which knows nothing of the C one. Decoders
# die with a sentence; FakeAggregator.pm has the frames around these.

use strict;
use warnings;

use constant {
    CRITICAL           => 0x8000,
    RECORD_HEADER_SIZE => 24,
    RECORD_SIZE_MAX    => 4096,
    CODE_NONE          => 0xff,
};

our @VERDICTS = qw(accepted duplicate conflict rejected);
our %CODE = (map({ $VERDICTS[$_] => $_ } 0 .. $#VERDICTS), none => CODE_NONE);
our %NACK = (gap => 1, fenced => 2, version => 3, retry => 4);

my @KINDS = qw(pad event delta dupnote lossnote);
my @FLAGS = qw(captured recovered truncated server_time derived minted
    negative);
my @REASONS = qw(full torn reboot);

# number => name, template of its value (none: bytes), `!` required
my %HELLO = (
    1 => ['version_min', 'C', '!'], 2 => ['version_max', 'C', '!'],
    3 => ['session', undef, '!'], 4 => ['head', 'Q<', '!'],
    5 => ['acked', 'Q<', '!'], 6 => ['db_epoch', 'Q<'], 7 => ['pid', 'V'],
    8 => ['node'], 9 => ['build'], 10 => ['oldest', 'Q<'],
);

my %EVENT = (
    1 => ['tenant', undef, '!'], 2 => ['type', undef, '!'],
    3 => ['ts', 'q<', '!'], 4 => ['event_id'], 5 => ['customer'],
    6 => ['resource'], 7 => ['quantity'], 8 => ['count', 'q<'],
    9 => ['flags', 'V'], 10 => ['attribute'],
);

my %LOSS = (
    1 => ['count', 'Q<', '!'], 2 => ['first', 'q<'], 3 => ['last', 'q<'],
    4 => ['reasons', 'V'],
);

my %SIZE = (C => 1, V => 4, 'Q<' => 8, 'q<' => 8);

# ---- fields ---------------------------------------------------------------

sub field { return pack('vV', $_[0], length $_[1]) . $_[1] }

sub decode_fields {
    my ($payload, $known) = @_;

    my %message;
    while (length $payload) {
        length $payload >= 6 or die "a field's header is cut\n";
        my ($tag, $size) = unpack 'vV', $payload;
        my $value = substr $payload, 6, $size;
        die "field $tag is cut\n" if length $value != $size;
        $payload = substr $payload, 6 + $size;

        my $number = $tag & ~CRITICAL;
        my $field = $known->{$number};
        if (!$field) {
            die "unknown critical field $number\n" if $tag & CRITICAL;
            next;
        }
        my ($name, $template, $required) = @$field;
        die "$name is not marked critical\n"
            if $required && !($tag & CRITICAL);
        if ($template) {
            die "$name has $size bytes\n" if $size != $SIZE{$template};
            $value = unpack $template, $value;
        }
        if ($name eq 'attribute') {
            push @{ $message{attributes} }, pair($value);
            next;
        }
        die "field $name twice\n" if exists $message{$name};
        $message{$name} = $value;
    }
    for my $field (values %$known) {
        die "no $field->[0]\n" if $field->[2] && !exists $message{$field->[0]};
    }
    return \%message;
}

sub pair {
    my ($value) = @_;

    my $length = unpack 'V', $value;
    die "a pair's name is cut\n"
        if !defined $length || length $value < 4 + $length;
    return [substr($value, 4, $length), substr $value, 4 + $length];
}

sub bits {
    my ($value, @names) = @_;
    return [map { $names[$_] // "bit$_" } grep { $value & 1 << $_ } 0 .. 31];
}

# ---- messages -------------------------------------------------------------

sub decode_hello {
    my $hello = decode_fields($_[0], \%HELLO);

    die "a session of another size\n" if length $hello->{session} != 16;
    die "versions $hello->{version_min}..$hello->{version_max}\n"
        if $hello->{version_min} < 1
        || $hello->{version_max} < $hello->{version_min};
    die "acked $hello->{acked} is not below head $hello->{head}\n"
        if $hello->{acked} >= $hello->{head};
    $hello->{id} = unpack 'H*', $hello->{session};
    $hello->{tag} = unpack 'Q<', $hello->{session};
    return $hello;
}

sub encode_hello_ack {
    my (%m) = @_;

    my $payload = field(1 | CRITICAL, pack 'C', $m{version})
        . field(2 | CRITICAL, pack 'Q<', $m{last_seq})
        . field(3 | CRITICAL, pack 'Q<', $m{seq_limit})
        . field(4, pack 'Q<', $m{db_epoch})
        . field(6, pack 'q<', $m{server_time_us})
        . field(7, $m{instance});
    $payload .= field(8, pack 'Q<4', @{ $m{verdicts} }) if $m{verdicts};
    return $payload;
}

sub encode_result {
    my (%m) = @_;

    my $payload = field(1 | CRITICAL, pack 'Q<', $m{durable_upto});
    $payload .= field(2, pack 'Q<', $m{first_seq})
        . field(3, pack 'C*', @{ $m{codes} }) if $m{codes};
    return $payload . ($m{more} // '');
}

sub encode_credit { return field(1 | CRITICAL, pack 'Q<', $_[0]) }

sub encode_nack {
    my ($name, $value) = @_;

    my $payload = field(1 | CRITICAL, pack 'C', $NACK{$name});
    $payload .= field(2, pack 'Q<', $value) if defined $value;
    return $payload;
}

# ---- records --------------------------------------------------------------

# All records of a DATA frame, in order.
sub decode_records {
    my ($payload, $seq, $count) = @_;

    my @records;
    while (length $payload) {
        my $record = decode_record($payload);
        die "record $record->{seq} where $seq belongs\n"
            if $record->{seq} != $seq;
        $payload = substr $payload, length $record->{bytes};
        push @records, $record;
        $seq++;
    }
    die scalar(@records) . " records in a frame of $count\n"
        if @records != $count;
    return \@records;
}

sub decode_record {
    my ($bytes) = @_;

    length $bytes >= RECORD_HEADER_SIZE or die "a record's header is cut\n";
    my ($size, $crc, $seq, $kind, $zero, $body_size)
        = unpack 'V V Q< C a3 V', $bytes;
    die "a record of $size bytes\n"
        if $size % 8 || $size > RECORD_SIZE_MAX
        || $size != (RECORD_HEADER_SIZE + $body_size + 7 & ~7);
    die "record $seq is cut\n" if length $bytes < $size;
    $bytes = substr $bytes, 0, $size;
    die "zero of record $seq\n" if $zero ne "\0\0\0";
    my $sealed = substr($bytes, 0, 4) . substr $bytes, 8;
    die "crc of record $seq\n"
        if Edgemeter::FakeAggregator::crc32c($sealed) != $crc;
    die "padding of record $seq\n"
        if substr($bytes, RECORD_HEADER_SIZE + $body_size) =~ /[^\0]/;

    my $name = $KINDS[$kind] // die "kind $kind of record $seq\n";
    die "a pad in a frame\n" if $name eq 'pad';
    my $body = substr $bytes, RECORD_HEADER_SIZE, $body_size;
    my $record = $name eq 'lossnote' ? decode_loss($body)
        : decode_event($body);
    return { %$record, kind => $name, seq => $seq, bytes => $bytes };
}

sub decode_event {
    my $event = decode_fields($_[0], \%EVENT);

    $event->{count} //= 1;
    die "count $event->{count}\n" if $event->{count} < 1;
    $event->{flags} = bits($event->{flags} // 0, @FLAGS);
    $event->{attributes} //= [];
    return $event;
}

sub decode_loss {
    my $loss = decode_fields($_[0], \%LOSS);

    $loss->{reasons} = bits($loss->{reasons} // 0, @REASONS);
    return $loss;
}

1;
