package Edgemeter::SeriesModel;

# SeriesModel.pm - what series must hold, by another program: one event after
# the other, no buffer, no flush, no rollup.
#
#   my $model = Edgemeter::SeriesModel->new(\@series);
#   $model->rules;                       # the section `series` as YAML
#   $model->add($tenant, $event, $place);
#   my $expected = $model->rows('1m');   # { key => columns }
#   my $stored   = stored_rows($stack, '1m');
#
# A series: { name, kind, on => [types], value, dimensions => [names],
# policy, buckets => [texts], entity, state }. An event: { type, ts_us,
# quantity, attributes => { name => JSON text } }. Its place, where it stands
# in the ledger: { recorded_us, writer, seq }. Events may be added in any
# order; their places say which one was first.
#
# Amounts are billionths: small ones in native integers, others beside them.

use strict;
use warnings;
use Exporter 'import';
use Math::BigInt;
use POSIX ();

our @EXPORT_OK = qw(stored_rows stored_floors);

our @LEVELS = qw(5s 1m 1h 1d 7d);
my %SIZE_US = (
    '5s' => 5_000_000,
    '1m' => 60_000_000,
    '1h' => 3_600_000_000,
    '1d' => 86_400_000_000,
    '7d' => 604_800_000_000,
);
my $MONDAY_US = 4 * $SIZE_US{'1d'};
my $NANO      = 1_000_000_000;
my $SMALL     = 1_000_000_000_000;    # so many nanos can be added for long

sub new {
    my ($class, $series) = @_;
    return bless { series => $series, cell => {}, moves => [] }, $class;
}

sub rules {
    my ($self) = @_;
    my $list = sub { '[' . join(', ', @{ $_[0] }) . ']' };
    return "series:\n" . join '', map {
        my $one = $_;
        "  - { name: $one->{name}, kind: $one->{kind}, on: "
            . $list->($one->{on})
            . join('', map {", $_: $one->{$_}"}
                grep { defined $one->{$_} } qw(value policy entity state))
            . join('', map { ", $_: " . $list->($one->{$_}) }
                grep { $one->{$_} } qw(buckets dimensions))
            . " }\n";
    } @{ $self->{series} };
}

# --- numbers ------------------------------------------------------------

# Decimal text to billionths, native or big.
sub nano {
    my ($text) = @_;
    my ($sign, $whole, $part) = $text =~ /^(-?)(\d+)(?:\.(\d{1,9}))?$/
        or die "no decimal: $text\n";
    my $digits = $whole . substr(($part // '') . '0' x 9, 0, 9);
    $digits =~ s/^0+(?=\d)//;
    return "$sign$digits" + 0 if length $digits <= 15;
    return Math::BigInt->new("$sign$digits");
}

sub plain {
    my ($units) = @_;
    my $text = "$units";
    my $sign = $text =~ s/^-// ? '-' : '';
    $text = '0' x (10 - length $text) . $text if length $text < 10;
    substr $text, -9, 0, '.';
    $text =~ s/\.?0+$//;
    return $text eq '0' ? $text : "$sign$text";
}

sub more {
    my ($sum, $value) = @_;
    if (ref $value || abs $value > $SMALL) {
        $sum->[1] = ($sum->[1] // Math::BigInt->new(0)) + $value;
    }
    else {
        $sum->[0] += $value;
    }
    return;
}

sub total {
    my ($sum) = @_;
    return plain(defined $sum->[1] ? $sum->[1] + $sum->[0] : $sum->[0]);
}

# --- events -------------------------------------------------------------

sub bucket {
    my ($level, $ts_us) = @_;
    my $origin = $level eq '7d' ? $MONDAY_US : 0;
    my $size   = $SIZE_US{$level};
    return $ts_us - ($ts_us - $origin) % $size;    # % of perl rounds down
}

sub add {
    my ($self, $tenant, $event, $place) = @_;
    for my $series (@{ $self->{series} }) {
        next if !grep { $_ eq $event->{type} } @{ $series->{on} };
        my $attributes = $event->{attributes};
        my $set = '{' . join(',', map { qq("$_":) . ($attributes->{$_} // 'null') }
                sort @{ $series->{dimensions} // [] }) . '}';
        my $key = join "\t", $tenant, $series->{name}, $set;
        if ($series->{kind} eq 'state') {
            my ($entity, $state) = @$attributes{ @$series{qw(entity state)} };
            next if !given($entity) || !given($state);
            push @{ $self->{moves} },
                [$key, "$tenant\t$series->{name}\t$entity", $state,
                $event->{ts_us}, $place];
            next;
        }
        my $value = ($series->{value} // 'quantity') eq 'quantity'
            ? $event->{quantity} : $attributes->{ $series->{value} };
        next if !given($value);
        $value =~ s/^"(.*)"$/$1/;
        $self->fold($key, $series, $event->{ts_us}, nano($value), $place);
    }
    return;
}

sub given { return defined $_[0] && $_[0] ne 'null' }

sub later {
    my ($ts_us, $place, $cell) = @_;
    my $last = $cell->{place} // return 1;
    return ($ts_us <=> $cell->{last_us}
            || $place->{recorded_us} <=> $last->{recorded_us}
            || $place->{writer} cmp $last->{writer}
            || $place->{seq} <=> $last->{seq}) > 0;
}

sub fold {
    my ($self, $key, $series, $ts_us, $value, $place) = @_;
    for my $level (@LEVELS) {
        my $cell = $self->cell($level, $key, $ts_us);
        $cell->{count}++;
        more($cell->{sum}, $value);
        if ($series->{kind} eq 'gauge') {
            $cell->{min} = $value
                if !defined $cell->{min} || $value < $cell->{min};
            $cell->{max} = $value
                if !defined $cell->{max} || $value > $cell->{max};
            @$cell{qw(last last_us place)} = ($value, $ts_us, $place)
                if later($ts_us, $place, $cell);
        }
        elsif ($series->{kind} eq 'histogram') {
            my ($bound) = grep { $value <= nano($_) } @{ $series->{buckets} };
            $cell->{tally}{ $bound // 'inf' }++;
        }
    }
    return;
}

sub cell {
    my ($self, $level, $key, $ts_us) = @_;
    return $self->{cell}{$level}{$key}{ bucket($level, $ts_us) }
        //= { count => 0, sum => [0] };
}

# What each entity was before is known once all are there.
sub settle {
    my ($self) = @_;
    my %state;
    for my $move (sort { order($a->[4], $b->[4]) } splice @{ $self->{moves} }) {
        my ($key, $entity, $to, $ts_us) = @$move;
        my $label = '[' . ($state{$entity} // 'null') . ",$to]";
        $state{$entity} = $to;
        for my $level (@LEVELS) {
            my $cell = $self->cell($level, $key, $ts_us);
            $cell->{count}++;
            $cell->{tally}{$label}++;
            $cell->{is_state} = 1;
        }
    }
    return;
}

sub order {
    my ($left, $right) = @_;
    return $left->{recorded_us} <=> $right->{recorded_us}
        || $left->{writer} cmp $right->{writer}
        || $left->{seq} <=> $right->{seq};
}

# --- rows ---------------------------------------------------------------

# Key: tenant, series, dimensions, bucket. Columns as stored_rows has them.
sub rows {
    my ($self, $level) = @_;
    $self->settle;
    my %row;
    while (my ($key, $buckets) = each %{ $self->{cell}{$level} }) {
        for my $at (keys %$buckets) {
            $row{"$key\t$at"} = columns($buckets->{$at});
        }
    }
    return \%row;
}

sub columns {
    my ($cell) = @_;
    my @labels = sort keys %{ $cell->{tally} // {} };
    return join "\t", $cell->{count},
        $cell->{is_state} ? '' : total($cell->{sum}),
        (map { defined $cell->{$_} ? plain($cell->{$_}) : '' }
            qw(min max last)),
        $cell->{last_us} // '',
        ($cell->{place} ? @{ $cell->{place} }{qw(recorded_us writer seq)}
            : ('', '', '')),
        join(' ', @labels), join(' ', map { $cell->{tally}{$_} } @labels);
}

# Everything in a level's table, with the dimensions of its keys. The sum of
# a state series has no meaning.
sub stored_rows {
    my ($stack, $level) = @_;
    my %row;
    for my $line ($stack->query(<<"SQL")) {
SELECT s.tenant, s.series, coalesce(k.dimensions, 'no key'),
    (extract(epoch FROM s.bucket) * 1000000)::bigint,
    s.count, CASE WHEN s.labels[1] LIKE '[%' THEN NULL
        ELSE trim_scale(s.sum) END,
    trim_scale(s.min), trim_scale(s.max), trim_scale(s.last),
    (extract(epoch FROM s.last_at) * 1000000)::bigint,
    (extract(epoch FROM s.last_recorded_at) * 1000000)::bigint,
    s.last_writer, s.last_seq,
    array_to_string(s.labels, ' '), array_to_string(s.counts, ' ')
FROM meter.series_$level AS s
LEFT JOIN meter.series_key AS k
    USING (tenant, series, version, dimension_key)
SQL
        my @field = split /\t/, $line, -1;
        my $key = join "\t", @field[0 .. 3];
        die "series_$level has a bucket twice: $key\n" if exists $row{$key};
        $row{$key} = join "\t", @field[4 .. $#field];
    }
    return \%row;
}

# From where on each level is kept, in microseconds.
sub stored_floors {
    my ($stack) = @_;
    return { map { split /\t/ } $stack->query(q{
        SELECT substr(parent, 8),
            (extract(epoch FROM floor::timestamp) * 1000000)::bigint
        FROM meter.partition_floor WHERE parent LIKE 'series%'}) };
}

1;
