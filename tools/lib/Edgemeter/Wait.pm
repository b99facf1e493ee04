package Edgemeter::Wait;

# Wait.pm - waiting for a condition with a deadline; the only place that
# pauses. Tests and the supervisor never sleep for a guessed time:
#
#   use Edgemeter::Wait qw(wait_until poll_until);
#
#   wait_until { -S $socket } 10, 'meterd listens';      # dies when late
#   ok((poll_until { rows() == 5 } 3), "five rows");     # true or false
#
# The condition is tried at once, then in steps that grow from 2 to 50 ms.
# Both give back what the condition gave, so a value can be waited for.

use strict;
use warnings;
use Exporter 'import';
use Time::HiRes ();
use Carp qw(croak);

our @EXPORT_OK = qw(wait_until poll_until pause now);

sub now { return Time::HiRes::clock_gettime(Time::HiRes::CLOCK_MONOTONIC()) }

# One short step of a loop that watches something. A signal ends it early.
sub pause {
    my ($seconds) = @_;
    select undef, undef, undef, $seconds;
    return;
}

sub poll_until(&$) {
    my ($condition, $seconds) = @_;
    my $deadline = now() + $seconds;
    my $step     = 0.002;

    while (1) {
        my $value = $condition->();
        return $value if $value;
        return $value if now() >= $deadline;
        pause($step);
        $step *= 1.5 if $step < 0.05;
    }
}

sub wait_until(&$$) {
    my ($condition, $seconds, $what) = @_;
    my $value = &poll_until($condition, $seconds);
    return $value if $value;
    croak "waited $seconds s in vain: $what";
}

1;
