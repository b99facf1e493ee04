#!/usr/bin/perl

# 93-buckets.t - buckets in C and in SQL begin at the same instants: a million
# of them, from year 1 to 9999.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use Test::More;
use Edgemeter::Stack;

my $build = ($ENV{METERD} // '') =~ m{build-asan/} ? 'build-asan' : 'build';
my $stack = Edgemeter::Stack->for_test->start_schema;
my $file  = $stack->place->path('tmp') . '/buckets';

is system(Edgemeter::Stack::root() . "/$build/integration/bucket_client",
    $file), 0, 'instants are made';
chmod 0644, $file;

my @rows = $stack->query(<<"SQL");
CREATE UNLOGGED TABLE public.bucket (
    at timestamptz,
    b0 timestamptz, b1 timestamptz, b2 timestamptz,
    b3 timestamptz, b4 timestamptz
);
\\copy public.bucket FROM '$file' WITH (FORMAT binary)
SELECT
    count(*), count(*) FILTER (WHERE at < '1970-01-01Z'),
    min(extract(year FROM at AT TIME ZONE 'UTC')),
    max(extract(year FROM at AT TIME ZONE 'UTC'))
FROM public.bucket;
SELECT
    count(*) FILTER (WHERE b0 <> meter.series_bucket(0::smallint, at)),
    count(*) FILTER (WHERE b1 <> meter.series_bucket(1::smallint, at)),
    count(*) FILTER (WHERE b2 <> meter.series_bucket(2::smallint, at)),
    count(*) FILTER (WHERE b3 <> meter.series_bucket(3::smallint, at)),
    count(*) FILTER (WHERE b4 <> meter.series_bucket(4::smallint, at)),
    count(*) FILTER (WHERE b4 <> date_trunc('week', at, 'UTC'))
FROM public.bucket;
SQL
my ($count, $early, $first, $last) = split /\t/, $rows[0];
is $count, 1_000_000, 'a million';
cmp_ok $early, '>', 300_000, 'many before 1970';
is "$first $last", '1 9999', 'from the first year to the last';
is $rows[1], join("\t", (0) x 6), 'every level agrees, and weeks are ISO weeks';

$stack->stop;
done_testing;
