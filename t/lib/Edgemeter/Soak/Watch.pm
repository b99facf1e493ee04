package Edgemeter::Soak::Watch;

# Watch.pm - memory and descriptors of meterd, the nginx master and its
# workers over time.
#
#   my $watch = Edgemeter::Soak::Watch->new(stack => $stack);
#   $watch->sample;                            # now and then
#   my @lives = $watch->lives($from, $to, 'meterd', 'worker');
#   $_->{name}, $_->{pid}, $_->{kb}, $_->{descriptors} for @lives;
#
# A life is one process from its start to its end; only those that lasted from
# $from to $to are given. The first quarter of that time is for warming up. Of
# the rest:
#
#   kb           { first, last, growth }: the ends of a straight line through
#                the samples (least squares), and how much it rises
#   descriptors  { first, last, growth }: the most in the first and in the
#                second half, and the difference
#
# Memory is anonymous resident memory (RssAnon): the heap, and nothing of files
# and zones that are mapped and have a size of their own.

use strict;
use warnings;
use List::Util qw(max);
use Edgemeter::Process;
use Edgemeter::Wait qw(now);

use constant EDGE_SECONDS => 3;    # a sample this near to an end is at it
use constant SAMPLES_MIN  => 4;

sub new {
    my ($class, %arg) = @_;
    return bless { life => {}, %arg }, $class;
}

sub sample {
    my ($self) = @_;
    my $stack  = $self->{stack};
    my $now    = now();
    my $master = $stack->part_pid('nginx');
    my $meterd = $stack->part_pid('meterd');
    my %latest;
    for my $process (['meterd', $meterd], ['master', $master],
        map { ['worker', $_] } defined $master ? workers($master) : ())
    {
        my ($name, $pid) = @$process;
        next unless defined $pid;
        my ($kb, $descriptors) = (anonymous_kb($pid), descriptors($pid));
        next unless defined $kb && $descriptors;
        my $life = $self->{life}{"$name $pid"} //= { name => $name,
            pid => $pid, samples => [] };
        push @{ $life->{samples} }, [$now, $kb, $descriptors];
        push @{ $latest{$name} }, [$kb, $descriptors];
    }
    $self->{latest} = \%latest;
    return;
}

# "meterd 12.1 MB 31 fd, master 1.9 MB 14 fd, worker 2.2 MB 19 fd ..."
sub latest {
    my ($self) = @_;
    my $latest = $self->{latest} // {};
    return join ', ', map {
        my $name = $_;
        map { sprintf '%s %.1f MB %d fd', $name, $_->[0] / 1024, $_->[1] }
            @{ $latest->{$name} }
    } grep { $latest->{$_} } qw(meterd master worker);
}

# Workers that take connections: those on their way out say so.
sub workers {
    my ($master) = @_;
    return grep {
        Edgemeter::Process::command_line($_) =~ /worker process\s*$/
    } sort { $a <=> $b } Edgemeter::Process::session_members($master);
}

sub anonymous_kb {
    my ($pid) = @_;
    open my $file, '<', "/proc/$pid/status" or return;
    while (my $line = <$file>) {
        return $1 if $line =~ /^RssAnon:\s+(\d+) kB/;
    }
    return;
}

sub descriptors {
    my ($pid) = @_;
    opendir my $directory, "/proc/$pid/fd" or return;
    return scalar grep {/^\d+$/} readdir $directory;
}

sub lives {
    my ($self, $from, $to, @names) = @_;
    my %wanted = map { $_ => 1 } @names;
    my @lives;
    for my $key (sort keys %{ $self->{life} }) {
        my $life    = $self->{life}{$key};
        my @samples = grep { $_->[0] >= $from && $_->[0] <= $to }
            @{ $life->{samples} };
        next if !$wanted{ $life->{name} } || @samples < SAMPLES_MIN;
        next if $samples[0][0] > $from + EDGE_SECONDS
            || $samples[-1][0] < $to - EDGE_SECONDS;
        my $warm = $samples[0][0] + ($samples[-1][0] - $samples[0][0]) / 4;
        my @rest = grep { $_->[0] >= $warm } @samples;
        push @lives, {
            name        => $life->{name},
            pid         => $life->{pid},
            seconds     => $rest[-1][0] - $rest[0][0],
            kb          => line_through(map { [@$_[0, 1]] } @rest),
            descriptors => peaks(map { $_->[2] } @rest),
        };
    }
    return @lives;
}

sub peaks {
    my @values = @_;
    my $half  = int(@values / 2);
    my $first = max(@values[0 .. $half - 1]);
    my $last  = max(@values[$half .. $#values]);
    return { first => $first, last => $last, growth => $last - $first };
}

# Of points [x, y].
sub line_through {
    my @points = @_;
    my ($x, $y) = (0, 0);
    for my $point (@points) {
        $x += $point->[0] / @points;
        $y += $point->[1] / @points;
    }
    my ($xx, $xy) = (0, 0);
    for my $point (@points) {
        $xx += ($point->[0] - $x)**2;
        $xy += ($point->[0] - $x) * ($point->[1] - $y);
    }
    my $slope = $xx ? $xy / $xx : 0;
    my $first = $y + $slope * ($points[0][0] - $x);
    my $last  = $y + $slope * ($points[-1][0] - $x);
    return { first => $first, last => $last, growth => $last - $first };
}

1;
