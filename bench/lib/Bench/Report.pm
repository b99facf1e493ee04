package Bench::Report;

# Report.pm - the tables of bench/edge.
#
#   results: variant name -> [one hash per round: rate, base (ratio of
#            rates), base_cpu (ratio of CPU time), cpu, busy, handler, p99,
#            p999]
#   goals:   [text, variant, what, must, aim], see bench/edge
#   exact:   runs, answered, counted; wrong: what did not agree
#
#   exit Bench::Report->new(...)->print;   # how many goals were missed

use strict;
use warnings;
use Bench::Table qw(median quartiles print_table thousands);

# Beyond this, the difference of two equal servers is no small one.
use constant NOISE => 0.05;

sub new {
    my ($class, %arg) = @_;
    return bless {%arg}, $class;
}

sub print {
    my ($self) = @_;
    print "$_\n" for @{ $self->{left_out} };
    print_table(
        ['variant', 'req/s', '/ base', 'quartiles', 'by CPU', 'us/req',
            'busy', 'handler', 'p99', 'p99.9'],
        map { $self->variant_row($_) } @{ $self->{chosen} });
    my @rows = map { $self->goal_row($_) } @{ $self->{goals} };
    if (@rows) {
        print "\n";
        print_table(['goal', 'median', 'quartiles', 'must', 'aim', ''], @rows);
    }
    print "\n";
    my $wrong  = $self->print_exactness;
    my $missed = grep { $_->[5] eq 'MISSED' } @rows;
    $self->print_noise;
    print "$self->{foot}\n", <<'TEXT';
base: plain nginx with as many workers; by CPU: its us/req over the variant's
us/req: time of the workers, user and kernel; busy: share of their cores
handler: us in our handlers, mean of one request in 64; p99, p99.9: ms
TEXT
    return $missed + $wrong > 99 ? 99 : $missed + $wrong;
}

sub variant_row {
    my ($self, $variant) = @_;
    my $runs  = $self->{results}{ $variant->{name} };
    my $field = sub {
        my ($name, $format) = @_;
        my @values = grep {defined} map { $_->{$name} } @$runs;
        return @values ? sprintf $format, median(@values) : '';
    };
    return [
        $variant->{text}, thousands(median(map { $_->{rate} } @$runs)),
        $field->('base', '%.3f'),
        $variant->{base} ? range('%.3f', map { $_->{base} } @$runs) : '',
        $field->('base_cpu', '%.3f'), $field->('cpu', '%.2f'),
        $field->('busy', '%.2f'), $field->('handler', '%.2f'),
        $field->('p99', '%.2f'), $field->('p999', '%.2f')
    ];
}

# Nothing where there is nothing to say.
sub goal_row {
    my ($self, $goal) = @_;
    my ($text, $name, $what, $must, $aim) = @$goal;
    my @values = $self->goal_values($name, $what);
    if (!@values) {
        return if !defined $must || $self->{partial};
        return [$text, '', '', $must, $aim, 'not measured'];
    }
    my $median = median(@values);
    my $is_met = !defined $must
        || ($what eq 'handler' ? $median <= $must : $median >= $must);
    my $mark = !defined $must || !$self->{judges} ? ''
        : $is_met ? 'ok' : 'MISSED';
    return [$text, sprintf('%.2f', $median), range('%.2f', @values),
        $must, $aim, $mark];
}

# Two variants are compared round by round, each by its own base.
sub goal_values {
    my ($self, $name, $what) = @_;
    my $runs = $self->{results}{$name} // [];
    return grep {defined} map { $_->{$what} } @$runs
        if $what eq 'base' || $what eq 'handler';
    my $others = $self->{results}{$what} // return;
    return map { $runs->[$_]{base} / $others->[$_]{base} } 0 .. $#$runs;
}

sub range {
    my ($format, @values) = @_;
    my ($low, undef, $high) = quartiles(@values);
    return sprintf "$format..$format", $low, $high;
}

# An answered request is counted; one under way at the end may be.
sub print_exactness {
    my ($self) = @_;
    my $exact = $self->{exact};
    return 0 unless $exact->{runs};
    my @wrong = @{ $exact->{wrong} // [] };
    my $most  = $exact->{answered} + $self->{connections} * $exact->{runs};
    printf "exactness: %d metered runs, %s answered <= %s counted <= %s: %s\n",
        $exact->{runs}, thousands($exact->{answered}),
        thousands($exact->{counted}), thousands($most),
        @wrong ? 'WRONG' : 'ok, each of them';
    print "    $_\n" for @wrong;
    my @trouble = map {"$_ $exact->{trouble}{$_}"}
        grep { $exact->{trouble}{$_} } sort keys %{ $exact->{trouble} };
    print "    not as planned: @trouble\n" if @trouble;
    return scalar @wrong;
}

sub print_noise {
    my ($self) = @_;
    for my $name (qw(again again-2)) {
        my @values = $self->goal_values($name, 'base') or next;
        my $off = median(@values) - 1;
        printf "noise: the control '%s' is off by %+.1f %%; smaller"
            . " differences than that say nothing\n", $name, 100 * $off
            if abs $off > NOISE;
    }
    return;
}

1;
