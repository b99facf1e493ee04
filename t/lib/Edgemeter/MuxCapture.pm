package Edgemeter::MuxCapture;

# MuxCapture.pm - Capture.pm for tests of the mux: clients, the fake's log.
#
#   our $edge = Edgemeter::MuxCapture->start;
#
# Code in `client` may call, beside Capture's, what is in lend below. A path
# that begins with ? is a counter's, with these arguments.

use strict;
use warnings;

use File::Basename qw(dirname);
use File::Spec;

BEGIN {
    require(dirname(File::Spec->rel2abs(__FILE__)) . '/Capture.pm');
    our @ISA = ('Edgemeter::Capture');
}

use constant PATH => '/api/counters/acme/hits/increment';

sub lend {
    my ($self) = @_;

    $self->SUPER::lend;
    no strict 'refs';
    *{'main::begin'} = \&begin;
    *{'main::ask'} = \&ask_counter;
    *{'main::way'} = sub { ask_counter('POST', shift // '?do=way')->{body} };
    *{'main::open_mux'} = \&open_mux;
    *{'main::fake_log'} = sub { $self->fake_log(@_) };
    *{'main::wait_log'} = sub { $self->wait_log(@_) };
    *{'main::wait_error'} = sub { $self->wait_error(@_) };
    *{'main::errors'} = sub { $self->errors(@_) };
    *{'main::open_gate'} = sub { $self->ledger->open_gate(@_) };
    *{'main::worker'} = sub { join ' ', Edgemeter::Capture::children(
        Edgemeter::Capture::master()) };
    return;
}

sub run {
    my ($self, @more) = @_;
    $self->{fake_mark} = length $self->fake->log_text;
    return $self->SUPER::run(@more);
}

# ---- requests -------------------------------------------------------------

# A client whose request is sent.
sub begin {
    my ($method, $path, $body, @headers) = @_;

    $path = PATH . $path if $path =~ /^\?/;
    $body //= $method =~ /^P/ ? '{}' : undef;
    push @headers, 'Content-Length: ' . length $body
        if defined $body && !grep { /^Transfer-Encoding:/ } @headers;
    my $client = main::client();
    $client->send(Edgemeter::HttpClient::text($method, $path,
        'Connection: close', @headers) . ($body // ''));
    return $client;
}

sub ask_counter {
    my ($method, @more) = @_;
    return begin($method, @more)->receive($method);
}

# Requests until one of them goes on the mux.
sub open_mux {
    my ($path) = @_;
    Edgemeter::Capture::wait_until('mux',
        sub { main::way($path) eq "mux\n" });
    return;
}

# ---- logs -----------------------------------------------------------------

# What the fake noted since the block began.
sub fake_log {
    my ($self) = @_;
    return substr $self->fake->log_text, $self->{fake_mark};
}

# Once the fake noted it; what the pattern caught.
sub wait_log {
    my ($self, $pattern, $count) = @_;

    my @found;
    Edgemeter::Capture::wait_until("$pattern in the fake's log", sub {
        @found = $self->fake_log =~ /$pattern/mg;
        return @found >= ($count // 1);
    });
    return $found[0];
}

# Lines of the error log since the block began; of level error and above.
sub errors {
    my ($self) = @_;
    return join '', grep { / \[(error|crit|alert|emerg)\] / }
        Edgemeter::Capture::lines_since($self->{log}, $self->{log_mark});
}

sub wait_error {
    my ($self, $pattern) = @_;
    Edgemeter::Capture::wait_until("$pattern in the error log",
        sub { $self->errors =~ /$pattern/ });
    return;
}

1;
