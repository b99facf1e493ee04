package Bench::Table;

# Table.pm - medians, quartiles and tables of a bench.
#
#   my ($low, $middle, $high) = quartiles(@samples);
#   print_table(['variant', 'req/s'], ['plain', '117,203'], ...);
#
# The first column stands left, all others right. A number is text already.

use strict;
use warnings;
use Exporter 'import';

our @EXPORT_OK = qw(median quartiles print_table thousands);

sub quantile {
    my ($part, @sorted) = @_;
    my $place = $part * $#sorted;
    my $below = int $place;
    return $sorted[$below] if $below == $#sorted;
    my $rest = $place - $below;
    return $sorted[$below] * (1 - $rest) + $sorted[$below + 1] * $rest;
}

sub quartiles {
    my @sorted = sort { $a <=> $b } @_;
    return map { quantile($_, @sorted) } 0.25, 0.5, 0.75;
}

sub median { return (quartiles(@_))[1] }

sub thousands {
    my ($number) = @_;
    my $text = sprintf '%.0f', $number;
    1 while $text =~ s/^(\d+)(\d{3})/$1,$2/;
    return $text;
}

sub print_table {
    my (@rows) = @_;
    my @width;
    for my $row (@rows) {
        for my $column (0 .. $#$row) {
            my $size = length($row->[$column] // '');
            $width[$column] = $size if $size > ($width[$column] // 0);
        }
    }
    my $format = join '  ', "%-$width[0]s",
        map {"%${_}s"} @width[1 .. $#width];
    for my $row (@rows) {
        my $line = sprintf $format, map { $row->[$_] // '' } 0 .. $#width;
        $line =~ s/\s+$//;
        print "$line\n";
    }
    return;
}

1;
