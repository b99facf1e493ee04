package Edgemeter::FakeAggregator;

# FakeAggregator.pm - a meterd that does as it is told.
#
#   nginx -> REQUEST frame, body -> [fake] -> RESPONSE frame, body
#
# A process per connection behind a unix socket in a directory of its own.
# What it answers is asked for in the request's arguments, `do=WORD`; without
# one it echoes the request as one line of JSON. The codec below is a second
# reading of docs/protocol.md and knows nothing of the C one: frames that
# both understand are right.
#
#   my $fake = Edgemeter::FakeAggregator->start;
#
# sets, for the test blocks, TEST_NGINX_METER_SOCKET (the socket), _OTHER (the
# same by another name), _OLD (a meterd that knows no muxes), _AWAY (no such
# file) and _DEAD (a socket that nobody listens on), and stops with the test. A
# connection that begins with HELLO is a ring's: FakeLink.pm speaks to it,
# $fake->ledger keeps what it brought. One that begins with MUX: FakeMux.pm.
#
#   $fake->ledger->open_gate('name');         # do=hold&gate=name is answered

use strict;
use warnings;

use Digest::MD5 qw(md5_hex);
use File::Basename qw(dirname);
use File::Path qw(remove_tree);
use File::Spec;
use File::Temp qw(tempdir);
use IO::Select;
use IO::Socket::UNIX;
use POSIX ();
use Time::HiRes qw(sleep time);

# By their place: t/lib is not in @INC beside an installed Test::Nginx.
BEGIN {
    require(dirname(File::Spec->rel2abs(__FILE__)) . "/$_.pm")
        for qw(FakeCodec FakeLedger FakeLink FakeMux);
}

use constant {
    MAGIC       => 0x3152544d,
    HEADER_SIZE => 40,
    VERSION     => 1,
    HELLO       => 1,
    REQUEST     => 12,
    RESPONSE    => 13,
    MUX         => 14,
    CRITICAL    => 0x8000,
};

my @METHODS = qw(? GET HEAD POST PUT PATCH DELETE OTHER);

my %REQUEST_FIELDS = (
    1 => 'method', 2 => 'path', 3 => 'body_size', 4 => 'args',
    5 => 'authorization', 6 => 'content_type', 7 => 'content_encoding',
    8 => 'accept', 9 => 'idempotency_key', 10 => 'client_address',
    11 => 'header',
);

my @CRC_TABLE = map {
    my $crc = $_;
    $crc = $crc & 1 ? ($crc >> 1) ^ 0x82f63b78 : $crc >> 1 for 1 .. 8;
    $crc;
} 0 .. 255;

# ---- the codec -----------------------------------------------------------

sub crc32c {
    my $crc = 0xffffffff;
    $crc = $CRC_TABLE[($crc ^ $_) & 0xff] ^ ($crc >> 8)
        for unpack 'C*', $_[0];
    return $crc ^ 0xffffffff;
}

# One sealed frame around a payload; %change overrides header fields.
sub frame {
    my ($type, $payload, %change) = @_;

    my %h = (
        magic => MAGIC, version => VERSION, type => $type, flags => 1,
        size => length $payload, seq => 0, count => 0, zero => 0, tag => 0,
        %change
    );
    my $pack = sub {
        return pack 'VCCvVVQ<VVQ<', @h{qw(magic version type flags size)},
            $_[0], @h{qw(seq count zero tag)};
    };

    return $pack->($h{crc} // crc32c($pack->(0) . $payload)) . $payload;
}

sub field { return pack('vV', $_[0], length $_[1]) . $_[1] }

sub encode_response {
    my %r = (status => 200, type => 'application/json', @_);

    my $payload = field(1 | CRITICAL, pack 'v', $r{status})
        . field(2 | CRITICAL, pack 'Q<', $r{body_size});
    $payload .= field(3, $r{type}) if defined $r{type} && length $r{type};
    $payload .= field(4, pack 'V', $r{retry}) if $r{retry};
    $payload .= field(5, $r{allow}) if defined $r{allow};
    for my $header (@{ $r{headers} || [] }) {
        my ($name, $value) = @$header;
        $payload .= field(6, pack('V', length $name) . $name . $value);
    }
    return $payload;
}

# Type, payload and header of one whole frame; dies saying what is wrong.
sub decode_frame {
    my ($bytes) = @_;

    my ($magic, $version, $type, $flags, $size, $crc, $seq, $count, $zero,
        $tag) = unpack 'VCCvVVQ<VVQ<', $bytes;
    die "bad magic\n" if $magic != MAGIC;
    die "bad version $version\n" if $version != VERSION;
    die "bad zero\n" if $zero != 0;
    die "bad size\n" if length $bytes != HEADER_SIZE + $size;

    my $sealed = $bytes;
    substr($sealed, 12, 4) = "\0\0\0\0";
    die "bad crc\n" if crc32c($sealed) != $crc;

    return ($type, substr($bytes, HEADER_SIZE), {
        version => $version, flags => $flags, seq => $seq, count => $count,
        tag => $tag,
    });
}

# The next whole frame of a connection; nothing at its end.
sub take_frame {
    my ($peer) = @_;

    my $head = take($peer, HEADER_SIZE) // return;
    my $payload = take($peer, unpack 'x8 V', $head) // die "cut frame\n";
    return decode_frame($head . $payload);
}

sub decode_request {
    my ($payload) = @_;

    my %request = (headers => []);
    while (length $payload) {
        my ($tag, $size) = unpack 'vV', $payload;
        my $value = substr $payload, 6, $size;
        die "short field\n" if length $value != $size;
        $payload = substr $payload, 6 + $size;

        my $name = $REQUEST_FIELDS{ $tag & ~CRITICAL } or die "field $tag\n";
        if ($name eq 'header') {
            my $length = unpack 'V', $value;
            push @{ $request{headers} },
                [substr($value, 4, $length), substr($value, 4 + $length)];
            next;
        }
        die "field $name twice\n" if exists $request{$name};
        $value = $METHODS[unpack 'C', $value] if $name eq 'method';
        $value = unpack 'Q<', $value if $name eq 'body_size';
        $request{$name} = $value;
    }
    defined $request{$_} or die "no $_\n" for qw(method path body_size);
    return \%request;
}

# ---- life ----------------------------------------------------------------

sub start {
    my ($class) = @_;

    my $dir = tempdir('edgemeter-fake-XXXXXX', TMPDIR => 1);
    chmod 0755, $dir;
    my $self = bless {
        dir => $dir, path => "$dir/meterd.sock", log => "$dir/log",
        owner => $$,
    }, $class;

    my @listeners = map {
        my $socket = IO::Socket::UNIX->new(Local => $_, Listen => 1024)
            or die "cannot listen on $_: $!\n";
        chmod 0666, $_;
        $socket;
    } $self->{path}, "$dir/old.sock";

    $ENV{TEST_NGINX_METER_SOCKET} = $self->{path};
    $ENV{TEST_NGINX_METER_OLD} = "$dir/old.sock";
    $ENV{TEST_NGINX_METER_AWAY} = "$dir/away.sock";
    $ENV{TEST_NGINX_METER_DEAD} = "$dir/dead.sock";

    # A socket file that nobody listens on any more.
    IO::Socket::UNIX->new(Local => "$dir/dead.sock", Listen => 1)->close;
    chmod 0666, "$dir/dead.sock";

    # The same aggregator for us, another one for nginx.
    $ENV{TEST_NGINX_METER_OTHER} = "$dir/other.sock";
    symlink $self->{path}, "$dir/other.sock" or die "symlink: $!\n";

    $self->{pid} = fork // die "fork: $!\n";
    if ($self->{pid} == 0) {
        setpgrp 0, 0;
        $self->serve(@listeners);
        POSIX::_exit(0);
    }
    close $_ for @listeners;
    return $self;
}

sub stop {
    my ($self) = @_;

    return if $self->{owner} != $$ || !$self->{pid};
    kill 'TERM', -$self->{pid};
    kill 'TERM', $self->{pid};
    waitpid $self->{pid}, 0;
    $self->{pid} = 0;
    remove_tree($self->{dir});
}

sub DESTROY {
    local ($?, $!, $@);
    $_[0]->stop;
}

sub serve {
    my ($self, @listeners) = @_;

    local $SIG{CHLD} = 'IGNORE';
    local $SIG{TERM} = 'DEFAULT';
    local $SIG{INT} = 'DEFAULT';
    my $number = 0;
    my $select = IO::Select->new(@listeners);

    while (1) {
        for my $listener ($select->can_read) {
            my $peer = $listener->accept or next;
            $self->{old} = $listener != $listeners[0];
            $number++;
            my $pid = fork // next;
            if ($pid == 0) {
                close $_ for @listeners;
                local $SIG{PIPE} = 'IGNORE';
                eval { $self->converse($peer, $number); 1 }
                    or $self->complain($number, $@);
                POSIX::_exit(0);
            }
            close $peer;
        }
    }
}

# What a connection did wrong, to whoever reads either log.
sub complain {
    my ($self, $number, $error) = @_;

    chomp $error;
    $self->note("connection $number: $error");
    $self->ledger->append({
        kind => 'error', connection => $number, error => $error,
    }) if $error !~ /^peer is gone/;
    return;
}

sub ledger {
    my ($self) = @_;
    return $self->{ledger} //= Edgemeter::FakeLedger->new($self->{dir});
}

sub note {
    my ($self, $line) = @_;

    chomp $line;
    open my $log, '>>', $self->{log} or return;
    syswrite $log, "$line\n";
}

sub log_text { return slurp($_[0]{log}) }

# ---- one connection ------------------------------------------------------

sub converse {
    my ($self, $peer, $connection) = @_;

    for (my $count = 1; ; $count++) {
        my ($type, $payload, $head) = take_frame($peer) or last;
        if ($type == HELLO && $count == 1) {
            my $link = Edgemeter::FakeLink->new(peer => $peer,
                number => $connection, ledger => $self->ledger);
            return $link->run($payload, $head);
        }
        if ($type == MUX && $count == 1 && !$self->{old}) {
            my $mux = Edgemeter::FakeMux->new(peer => $peer,
                number => $connection, fake => $self);
            return $mux->run($payload, $head);
        }
        if ($type == MUX && $self->{old}) {
            $self->note("mux $connection refused");
            return;
        }
        die "frame type $type\n" if $type != REQUEST;

        my $request = decode_request($payload);
        my $body = take($peer, $request->{body_size}) // die "cut body\n";

        my %want = wanted($request);
        my $word = $want{do} // 'echo';
        my $action = $self->can("do_$word") or die "no do=$word\n";
        my $again = $action->($self, {
            peer => $peer, request => $request, body => $body,
            want => \%want, connection => $connection, count => $count,
            way => 'connection',
        });
        return if !$again;
    }
}

sub wanted {
    my ($request) = @_;

    my %want = map { split /=/, $_, 2 }
        grep { /=/ } split /&/, $request->{args} // '';
    s/%([0-9A-Fa-f]{2})/chr hex $1/ge for values %want;
    return %want;
}

# Exactly size bytes; undef at the end of the connection.
sub take {
    my ($peer, $size) = @_;

    my $bytes = '';
    while (length $bytes < $size) {
        my $n = sysread $peer, $bytes, $size - length $bytes, length $bytes;
        return undef if !$n;
    }
    return $bytes;
}

sub give {
    my ($peer, $bytes) = @_;

    my $at = 0;
    while ($at < length $bytes) {
        my $n = syswrite $peer, $bytes, 65536, $at;
        die "peer is gone: $!\n" if !defined $n;
        $at += $n;
    }
    return 1;
}

# A RESPONSE; on a mux it has the request's number.
sub response {
    my ($c, %head) = @_;
    return frame(RESPONSE, encode_response(%head), seq => $c->{seq} // 0);
}

sub answer {
    my ($c, $body, %head) = @_;
    return give($c->{peer},
        response($c, body_size => length $body, %head) . $body);
}

# Waits until the other side sends something or closes.
sub wait_for_peer {
    my ($c) = @_;
    return IO::Select->new($c->{peer})->can_read(30);
}

# ---- what it can be told to do; true: the connection goes on --------------

sub quote {
    my ($text) = @_;
    $text =~ s/(["\\])/\\$1/g;
    $text =~ s/([\x00-\x1f\x7f-\xff])/sprintf '\\u%04x', ord $1/ge;
    return qq{"$text"};
}

sub do_echo {
    my ($self, $c) = @_;

    my $r = $c->{request};
    my @pairs = map { [$_, quote($r->{$_})] } grep { defined $r->{$_} }
        qw(method path args authorization content_type content_encoding
           accept idempotency_key client_address);
    push @pairs, map { [$_->[0], quote($_->[1])] } @{ $r->{headers} };
    push @pairs, ['body', quote($c->{body})] if length $c->{body};

    return answer($c,
        '{' . join(',', map { "\"$_->[0]\":$_->[1]" } @pairs) . "}\n");
}

sub do_sum {
    my ($self, $c) = @_;
    return answer($c, length($c->{body}) . ' ' . md5_hex($c->{body}) . "\n",
        type => 'text/plain');
}

sub do_where {
    my ($self, $c) = @_;
    return answer($c, "request $c->{count}\n", type => 'text/plain');
}

# On which kind of connection it came.
sub do_way {
    my ($self, $c) = @_;
    return answer($c, "$c->{way}\n", type => 'text/plain');
}

# Answered when a gate is open, unless nginx goes away before.
sub do_hold {
    my ($self, $c) = @_;

    my $select = IO::Select->new($c->{peer});
    while (!$self->ledger->gate($c->{want}{gate})) {
        return 0 if $select->can_read(0.01);
    }
    return answer($c, "alone $c->{want}{n}\n", type => 'text/plain');
}

# The log, once it has a line with `for`; with `take` the line then goes.
sub do_log {
    my ($self, $c) = @_;
    my $deadline = time + 5;
    my $log = '';

    while (time < $deadline) {
        $log = slurp($self->{log});
        last if $log =~ /\Q$c->{want}{for}\E/;
        sleep 0.02;
    }
    if ($c->{want}{take}) {
        (my $rest = $log) =~ s/^\Q$c->{want}{for}\E.*\n//mg;
        open my $file, '>', $self->{log} or die "log: $!\n";
        syswrite $file, $rest;
    }
    return answer($c, $log, type => 'text/plain');
}

sub slurp {
    open my $file, '<', $_[0] or return '';
    local $/;
    return <$file> // '';
}

sub do_answer {
    my ($self, $c) = @_;

    my $w = $c->{want};
    return answer($c, $w->{body} // '',
        status => $w->{status} // 200,
        type => $w->{type} // 'application/json',
        retry => $w->{retry}, allow => $w->{allow},
        headers => [
            map { [split /:/, $_, 2] } split /\|/, $w->{headers} // ''
        ]);
}

sub do_metrics {
    my ($self, $c) = @_;
    return answer($c, "meterd_up 1\n",
        type => 'text/plain; version=0.0.4; charset=utf-8');
}

sub do_big {
    my ($self, $c) = @_;

    my $size = $c->{want}{size};
    give($c->{peer}, response($c, body_size => $size, type => 'text/plain'));
    my $piece = 'x' x 65536;
    while ($size > 0) {
        my $n = $size < 65536 ? $size : 65536;
        give($c->{peer}, substr $piece, 0, $n);
        $size -= $n;
    }
    return 1;
}

sub do_delay {
    my ($self, $c) = @_;

    # Not a sleep: ends at once when nginx gives up.
    IO::Select->new($c->{peer})->can_read($c->{want}{ms} / 1000);
    return answer($c, "late\n", type => 'text/plain');
}

sub do_dribble {
    my ($self, $c) = @_;

    my $body = "drop by drop\n";
    my $bytes = response($c, body_size => length $body, type => 'text/plain')
        . $body;
    for my $byte (split //, $bytes) {
        give($c->{peer}, $byte);
        sleep 0.001;
    }
    return 1;
}

sub do_never {
    my ($self, $c) = @_;

    wait_for_peer($c);
    my $n = sysread $c->{peer}, my $bytes, 1;
    $self->note("$c->{want}{do} " . ($c->{want}{tag} // '-') . ' ended with '
        . ($n ? 'bytes' : 'a closed connection'));
    return 0;
}

# A head and half a body, then nothing more.
sub do_pause {
    my ($self, $c) = @_;
    give($c->{peer}, response($c, body_size => 1000)
        . ('y' x 500));
    return $self->do_never($c);
}

sub do_close { return 0 }

sub do_half {
    my ($self, $c) = @_;
    give($c->{peer}, substr response($c, body_size => 0), 0, 50);
    return 0;
}

sub do_halfbody {
    my ($self, $c) = @_;
    give($c->{peer}, response($c, body_size => 1000)
        . ('y' x 500));
    return 0;
}

sub do_garbage {
    my ($self, $c) = @_;
    give($c->{peer}, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" x 4);
    wait_for_peer($c);
    return 0;
}

sub do_crc {
    my ($self, $c) = @_;
    give($c->{peer},
        frame(RESPONSE, encode_response(body_size => 0), crc => 1));
    wait_for_peer($c);
    return 0;
}

sub do_type {
    my ($self, $c) = @_;
    give($c->{peer}, frame(HELLO, encode_response(body_size => 0)));
    wait_for_peer($c);
    return 0;
}

sub do_malformed {
    my ($self, $c) = @_;
    give($c->{peer}, frame(RESPONSE, 'no fields'));
    wait_for_peer($c);
    return 0;
}

sub do_bighead {
    my ($self, $c) = @_;
    answer($c, '', headers => [map { ["x-$_", 'z' x 1000] } 1 .. 60]);
    wait_for_peer($c);
    return 0;
}

# A whole answer and one byte more, in one piece.
sub do_surplus {
    my ($self, $c) = @_;
    my $body = "enough\n";
    give($c->{peer}, response($c, body_size => length $body,
        type => 'text/plain') . $body . '!');
    wait_for_peer($c);
    return 0;
}

# A whole answer, then closed: nginx sees it while the connection is idle.
sub do_bye {
    my ($self, $c) = @_;
    answer($c, "bye\n", type => 'text/plain');
    close $c->{peer};
    $self->note("bye $c->{want}{tag} closed");
    return 0;
}

# A whole answer, then closed when the next request begins to arrive.
sub do_stale {
    my ($self, $c) = @_;
    answer($c, "stale\n", type => 'text/plain');
    wait_for_peer($c);
    sysread $c->{peer}, my $bytes, 1;
    $self->note("stale $c->{want}{tag} met a request") if length $bytes;
    return 0;
}

1;
