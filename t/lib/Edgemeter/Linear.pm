package Edgemeter::Linear;

# Linear.pm - is there an order of these calls, one after the other, in which
# every answer is right and no call comes before one that had ended when it
# began? (Wing and Gong, with a memory of places that lead nowhere.)
#
#   is_linear(\@calls, $state, sub { my ($state, $call) = @_; ... })
#
# A call has began, ended and whatever the step needs; one without an answer
# has ended undef, and may have happened at any time, or never. The step gives
# the next state as a text, or undef when the answer is wrong.

use strict;
use warnings;
use Exporter 'import';

our @EXPORT_OK = qw(is_linear);

sub is_linear {
    my ($calls, $state, $step) = @_;
    my @calls = sort { $a->{began} <=> $b->{began} } @$calls;
    return search(\@calls, 0, $state, $step, {});
}

# done: a bit for each call that is already in the order.
sub search {
    my ($calls, $done, $state, $step, $dead) = @_;
    my $first_end;
    my $is_open = 0;
    for my $i (0 .. $#$calls) {
        next if $done & 1 << $i || !defined $calls->[$i]{ended};
        $is_open = 1;
        $first_end = $calls->[$i]{ended}
            if !defined $first_end || $calls->[$i]{ended} < $first_end;
    }
    return 1 if !$is_open;
    return 0 if $dead->{"$done $state"};
    for my $i (0 .. $#$calls) {
        next if $done & 1 << $i || $calls->[$i]{began} > $first_end;
        my $next = $step->($state, $calls->[$i]) // next;
        return 1 if search($calls, $done | 1 << $i, $next, $step, $dead);
    }
    $dead->{"$done $state"} = 1;
    return 0;
}

1;
