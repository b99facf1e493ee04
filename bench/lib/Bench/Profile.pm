package Bench::Profile;

# Profile.pm - where the time of a process goes, by perf.
#
#   my $profile = Bench::Profile->start($pid, "$directory/perf");
#   ... load ...
#   $profile->stop;
#   $profile->print_top(qr/ngx_http_meter_module/);
#
# Samples are taken without call chains: time that a function of ours spends
# in libc or in the kernel stands in those lines.

use strict;
use warnings;
use Bench::Machine qw(program slurp);
use Bench::Table qw(print_table);
use Edgemeter::Process;

sub start {
    my ($class, $pid, $path) = @_;
    my $self = bless { data => "$path.data", log => "$path.log" }, $class;
    $self->{perf} = Edgemeter::Process->spawn(
        name    => 'perf',
        log     => $self->{log},
        command => [
            program('perf'), 'record', '--freq', 4999, '--output',
            $self->{data}, '--pid', $pid
        ]);
    return $self;
}

sub stop {
    my ($self) = @_;
    $self->{perf}->stop('INT', 30);
    die "perf record failed\n" . slurp($self->{log}) unless -s $self->{data};
    return;
}

# The shares of all files, and of the functions in one of them.
sub print_top {
    my ($self, $file) = @_;
    my @files = grep { $_->[0] >= 0.5 } $self->shares('dso');
    my @functions = grep { $_->[1] =~ $file } $self->shares('dso,symbol');
    splice @functions, 30 if @functions > 30;
    print_table(['file', '%'], map { [@$_[1, 0]] } @files);
    print "\n";
    print_table(['function', '%'], map { [@$_[2, 0]] } @functions);
    return;
}

# [percent, columns ...] in falling order.
sub shares {
    my ($self, $columns) = @_;
    my ($status, $out, $errors) = Edgemeter::Process::capture(
        command => [
            program('perf'), 'report', '--stdio', '--input', $self->{data},
            '--sort', $columns, '--field-separator', ';'
        ]);
    die "perf report failed\n$errors" if $status != 0;
    my @rows;
    for my $line (grep {/^\s*[\d.]+%/} split /\n/, $out) {
        my ($share, @names) = map {s/^\s+|\s+$//gr} split /;/, $line;
        push @rows, [$share =~ s/%//r, map {s/^\[.\] //r} @names];
    }
    return @rows;
}

1;
