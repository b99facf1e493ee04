package Edgemeter::SeriesRows;

# SeriesRows.pm - buckets of series put into the tables by hand.
#
#   my $rows = Edgemeter::SeriesRows->new($stack, 'acme');
#   $rows->bucket('requests', '1m', '2025-03-03 00:00:00+00',
#       { route => '"/a"', status => '200' }, count => 1, sum => 7);
#
# Dimensions are JSON: '"x"' is the text, '5' the number, 'null' none. Texts
# without anything to escape. The version is that of the running rules.

use strict;
use warnings;
use Digest::SHA qw(sha256_hex);

sub new {
    my ($class, $stack, $tenant) = @_;
    my $list = $stack->http($tenant)->get('/v1/series')->{json}{series};
    return bless {
        stack   => $stack,
        tenant  => $tenant,
        version => { map { $_->{metric} => $_->{version} } @$list },
    }, $class;
}

sub version { return $_[0]{version}{ $_[1] } }

# As shared/meter_dims.h has it, in hexadecimal.
sub key {
    my ($self, $dims) = @_;
    my $bytes = "\x01";
    for my $name (sort keys %$dims) {
        my $json = $dims->{$name};
        next if $json eq 'null';
        my ($kind, $value)
            = $json =~ /^"(.*)"$/         ? (1, $1)
            : $json =~ /^(?:true|false)$/ ? (3, $json)
            :                               (2, $json);
        $bytes .= pack 'V/a* C V/a*', $name, $kind, $value;
    }
    return sha256_hex($bytes);
}

sub bucket {
    my ($self, $series, $level, $at, $dims, %column) = @_;
    my $key     = $self->key($dims);
    my $json    = '{' . join(',', map {"\"$_\":$dims->{$_}"} sort keys %$dims)
        . '}';
    my @names   = sort keys %column;
    my $names   = join ', ', @names;
    my $values  = join ', ', map { q{'} . $column{$_} . q{'} } @names;
    my $version = $self->version($series);
    $self->{stack}->query(<<"SQL");
SELECT meter.partition_make('series_$level',
    (timestamptz '$at' AT TIME ZONE 'UTC')::date);
INSERT INTO meter.series_key
    VALUES ('$self->{tenant}', '$series', $version, '\\x$key', '$json')
    ON CONFLICT DO NOTHING;
INSERT INTO meter.series_$level
    (tenant, series, version, dimension_key, bucket, $names)
    VALUES ('$self->{tenant}', '$series', $version, '\\x$key', '$at', $values);
SQL
    return;
}

1;
