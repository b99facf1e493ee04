package Edgemeter::CounterModel;

# CounterModel.pm - the counters API as one person with a sheet of paper would
# do it: one operation after the other, nothing at the same time.
#
#   my $model = Edgemeter::CounterModel->new;
#   my ($status, $body) = $model->write($operation);
#   my ($status, $body) = $model->get($tenant, $name, $duration, $at);
#   my $rows = $model->rows;     # { "tenant name duration start" => "..." }
#
# An operation: { kind => increment | decrement | set, endpoint, tenant, name,
# duration, at, amount (of set: target), expires, key }; times in seconds.

use strict;
use warnings;
use Exporter 'import';
use POSIX qw(floor);

our @EXPORT_OK = qw($NEGATIVE $OVERFLOW $KEY_TAKEN $MISSING numbers apply);

my $MAX = 9223372036854775807;

our $NEGATIVE = '{"error":"Operation failed due to constraint violation'
    . ' (e.g., counter cannot be negative)"}';
our $OVERFLOW
    = '{"error":"Operation resulted in an overflow (exceeded BIGINT capacity)"}';
our $KEY_TAKEN
    = '{"error":"The Idempotency-Key was used with another request"}';
our $MISSING = q({"error":"Counter doesn't exist for the specified bucket"});

sub new { return bless { bucket => {}, key => {} }, $_[0] }

sub numbers {
    my ($bucket) = @_;
    my ($added, $subbed) = @$bucket{qw(added subbed)};
    return sprintf '{"net":"%d","added":"%d","subbed":"%d"}',
        $added - $subbed, $added, $subbed;
}

sub start_of {
    my ($at, $duration) = @_;
    return 0 if !$duration;
    return floor($at / $duration) * $duration;
}

sub place {
    my ($tenant, $name, $duration, $at) = @_;
    return "$tenant $name $duration " . start_of($at, $duration);
}

sub is_live {
    my ($bucket) = @_;
    return $bucket && (!defined $bucket->{expires}
        || $bucket->{expires} > time);
}

# What becomes of a bucket (undef: none): (new one, or undef; sentence).
sub apply {
    my ($bucket, $kind, $amount, $expires) = @_;
    my %new = is_live($bucket) ? %$bucket : (added => 0, subbed => 0);
    my $net = $new{added} - $new{subbed};
    my ($more, $less) = $kind eq 'increment' ? ($amount, 0)
        : $kind eq 'decrement' ? (0, $amount)
        : $amount > $net       ? ($amount - $net, 0)
        :                        (0, $net - $amount);
    return (undef, $NEGATIVE) if $less > $net;
    return (undef, $OVERFLOW)
        if $more > $MAX - $new{added} || $less > $MAX - $new{subbed};
    $new{added}  += $more;
    $new{subbed} += $less;
    $new{expires} = $expires
        if $kind ne 'decrement' && defined $expires
        && $expires > ($new{expires} // 0);
    return \%new;
}

sub write {
    my ($self, $o) = @_;
    my $asked = join ' ', map { $_ // '-' } @$o{qw(endpoint name duration at
        amount)}, $o->{kind} eq 'decrement' ? '' : $o->{expires};
    my $known = defined $o->{key} ? $self->{key}{"$o->{tenant} $o->{key}"}
        : undef;
    if ($known) {
        return (409, $KEY_TAKEN) if $known->[0] ne $asked;
        return @$known[1, 2];
    }
    my $place = place(@$o{qw(tenant name duration at)});
    my ($new, $error) = apply($self->{bucket}{$place},
        @$o{qw(kind amount expires)});
    $self->{bucket}{$place} = $new if $new;
    my @told = !$error ? (200, numbers($new))
        : ($error eq $NEGATIVE ? 409 : 400, $error);
    $self->{key}{"$o->{tenant} $o->{key}"} = [$asked, @told]
        if defined $o->{key};
    return @told;
}

sub get {
    my ($self, @where) = @_;
    my $bucket = $self->{bucket}{ place(@where) };
    return is_live($bucket) ? (200, numbers($bucket)) : (404, $MISSING);
}

sub sum {
    my ($self, $tenant, $name, $duration, $first, $last) = @_;
    my %sum = (added => 0, subbed => 0);
    for my $place (keys %{ $self->{bucket} }) {
        my ($t, $n, $d, $start) = split / /, $place;
        my $bucket = $self->{bucket}{$place};
        next if "$t $n $d" ne "$tenant $name $duration" || !is_live($bucket)
            || $start < start_of($first, $duration)
            || $start > start_of($last,  $duration);
        $sum{$_} += $bucket->{$_} for qw(added subbed);
    }
    return (200, numbers(\%sum));
}

# As stored: those that have expired may be gone.
sub rows {
    my ($self) = @_;
    my %rows;
    for my $place (keys %{ $self->{bucket} }) {
        my $bucket = $self->{bucket}{$place};
        $rows{$place} = {
            text => join(' ', @$bucket{qw(added subbed)},
                $bucket->{expires} // '-'),
            is_live => is_live($bucket),
        };
    }
    return \%rows;
}

1;
