package Edgemeter::Backend;

# Backend.pm - a web server behind nginx that behaves as its paths say.
#
#   nginx -> GET /cut -> [backend] -> half an answer, closed
#
# A process per connection behind a unix socket, TEST_NGINX_METER_BACKEND.
# Calls are noted: $backend->calls gives the paths in order. Paths:
#
#   /ok  /status/CODE           an answer
#   /who/NAME                   204 with X-Who: NAME
#   /accel/PATH                 X-Accel-Redirect to /PATH
#   /reset                      closed without an answer
#   /cut  /cut-chunk            closed inside the body
#   /silent                     no answer until the other side gives up
#   /chunked                    a body of three chunks
#   /stream/N                   N pieces of 64 kB
#   /gate/NAME                  head and one piece; the rest once the test
#                               opens the gate: $backend->open_gate('NAME')
#   /hold/NAME                  no head before the gate is open
#   /upgrade                    101, then every byte comes back

use strict;
use warnings;

use File::Path qw(remove_tree);
use File::Temp qw(tempdir);
use IO::Select;
use IO::Socket::UNIX;
use POSIX ();
use Time::HiRes qw(sleep time);

use constant SECONDS => 20;

my %REASON = (
    200 => 'OK', 204 => 'No Content', 304 => 'Not Modified',
    400 => 'Bad Request', 401 => 'Unauthorized', 403 => 'Forbidden',
    404 => 'Not Found', 500 => 'Internal Server Error',
    503 => 'Service Unavailable',
);

sub start {
    my ($class) = @_;

    my $dir = tempdir('edgemeter-backend-XXXXXX', TMPDIR => 1);
    chmod 0755, $dir;
    my $self = bless { dir => $dir, owner => $$ }, $class;
    my $path = $ENV{TEST_NGINX_METER_BACKEND} = "$dir/backend.sock";
    my $listener = IO::Socket::UNIX->new(Local => $path, Listen => 128)
        or die "cannot listen on $path: $!\n";
    chmod 0666, $path;

    $self->{pid} = fork // die "fork: $!\n";
    if ($self->{pid} == 0) {
        setpgrp 0, 0;
        $self->serve($listener);
        POSIX::_exit(0);
    }
    close $listener;
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
    return;
}

sub DESTROY {
    local ($?, $!, $@);
    $_[0]->stop;
}

sub calls {
    my ($self) = @_;
    open my $file, '<', "$self->{dir}/calls" or return;
    chomp(my @calls = <$file>);
    return @calls;
}

sub open_gate {
    my ($self, $name) = @_;
    open my $gate, '>', "$self->{dir}/gate-$name" or die "gate: $!\n";
    close $gate;
    return;
}

# ---- the server -----------------------------------------------------------

sub serve {
    my ($self, $listener) = @_;

    local $SIG{CHLD} = 'IGNORE';
    local $SIG{TERM} = 'DEFAULT';
    local $SIG{INT} = 'DEFAULT';
    while (1) {
        my $peer = $listener->accept or next;
        my $pid = fork // next;
        if ($pid == 0) {
            close $listener;
            local $SIG{PIPE} = 'IGNORE';
            eval { $self->answer($peer) };
            POSIX::_exit(0);
        }
        close $peer;
    }
}

sub answer {
    my ($self, $peer) = @_;

    my $head = '';
    while ($head !~ /\r\n\r\n/) {
        sysread $peer, $head, 4096, length $head or return;
    }
    my ($method, $path) = $head =~ m{^(\S+) (/[^ ?]*)} or return;
    $self->note("$method $path");

    my (undef, $word, $argument) = split m{/}, $path, 3;
    $word =~ s/-/_/g;
    my $action = $self->can("do_$word");
    return $action ? $action->($self, $peer, $argument, $method)
        : reply($peer, 404, "no $path\n");
}

sub note {
    my ($self, $line) = @_;
    open my $file, '>>', "$self->{dir}/calls" or return;
    syswrite $file, "$line\n";
    close $file;
    return;
}

sub give {
    my ($peer, $bytes) = @_;
    my $at = 0;
    while ($at < length $bytes) {
        $at += syswrite($peer, $bytes, 65536, $at) // die "gone: $!\n";
    }
    return;
}

sub reply {
    my ($peer, $code, $body, @headers) = @_;

    my $reason = $REASON{$code} // 'Other';
    $body = '' if $code == 204 || $code == 304;
    give($peer, join "\r\n", "HTTP/1.1 $code $reason", 'Connection: close',
        'Content-Type: text/plain', 'Content-Length: ' . length $body,
        @headers, '', $body);
    return;
}

# Until the other side closes.
sub wait_for_end {
    my ($peer) = @_;
    my $deadline = time + SECONDS;
    while (IO::Select->new($peer)->can_read($deadline - time)) {
        sysread $peer, my $bytes, 4096 or last;
    }
    return;
}

# Until the test says so; false when the other side is gone by then.
sub wait_for_gate {
    my ($self, $peer, $name) = @_;

    my $deadline = time + SECONDS;
    while (time < $deadline && !-e "$self->{dir}/gate-$name") {
        IO::Select->new($peer)->can_read(0.01) or next;
        sysread $peer, my $bytes, 4096 or return 0;
    }
    return 1;
}

# ---- paths ----------------------------------------------------------------

sub do_ok { return reply($_[1], 200, "ok\n") }

sub do_status {
    my ($self, $peer, $code) = @_;
    return reply($peer, $code, "status $code\n");
}

sub do_who {
    my ($self, $peer, $name) = @_;
    return reply($peer, 204, '', "X-Who: $name");
}

sub do_accel {
    my ($self, $peer, $path) = @_;
    return reply($peer, 200, "not seen\n", "X-Accel-Redirect: /$path");
}

sub do_reset { return }

sub do_cut {
    my ($self, $peer) = @_;
    give($peer, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
        . ('x' x 100));
    return;
}

sub do_cut_chunk {
    my ($self, $peer) = @_;
    give($peer, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        . "64\r\n" . ('x' x 50));
    return;
}

sub do_silent {
    my ($self, $peer) = @_;
    return wait_for_end($peer);
}

sub do_chunked {
    my ($self, $peer) = @_;
    give($peer, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
        . "Connection: close\r\n\r\n3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n"
        . "0\r\n\r\n");
    return;
}

sub do_stream {
    my ($self, $peer, $count) = @_;
    my $piece = 'z' x 65536;
    give($peer, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: "
        . $count * length($piece) . "\r\n\r\n");
    give($peer, $piece) for 1 .. $count;
    return;
}

sub do_gate {
    my ($self, $peer, $name) = @_;
    give($peer, "HTTP/1.1 200 OK\r\nConnection: close\r\n"
        . "Content-Length: 10\r\n\r\nfirst");
    $self->wait_for_gate($peer, $name) or return;
    give($peer, 'later');
    return;
}

sub do_hold {
    my ($self, $peer, $name) = @_;
    $self->wait_for_gate($peer, $name) or return;
    return reply($peer, 200, "held\n");
}

sub do_upgrade {
    my ($self, $peer) = @_;
    give($peer, "HTTP/1.1 101 Switching Protocols\r\n"
        . "Connection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    while (sysread $peer, my $bytes, 4096) {
        give($peer, $bytes);
    }
    return;
}

1;
