package Bench::Machine;

# Machine.pm - what a bench asks about the machine it runs on.

use strict;
use warnings;
use Exporter 'import';
use Edgemeter::Nginx;
use Edgemeter::Process;
use Edgemeter::Stack;

our @EXPORT_OK = qw(cores pinned program slurp file_system library_path
    missing_packages);

# The cores this process may use.
sub cores {
    my ($list) = slurp('/proc/self/status') =~ /^Cpus_allowed_list:\s*(\S+)/m;
    return map { /^(\d+)-(\d+)$/ ? $1 .. $2 : $_ } split /,/, $list // '0';
}

# A command on the core with this index, where there is more than one.
sub pinned {
    my ($index, @command) = @_;
    my @cores = cores();
    return @command if @cores < 2;
    return (program('taskset'), '-c', $cores[$index], @command);
}

sub program {
    my ($name) = @_;
    my ($found) = grep { -x } map {"$_/$name"}
        split(/:/, $ENV{PATH} // ''), qw(/usr/bin /usr/sbin);
    return $found // die "$name is not installed\n";
}

sub slurp {
    my ($path) = @_;
    open my $file, '<', $path or return '';
    local $/;
    return <$file> // '';
}

# tmpfs, ext2/ext3, xfs ...
sub file_system {
    my ($path) = @_;
    my (undef, $out) = Edgemeter::Process::capture(
        command => [program('stat'), '-f', '-c', '%T', $path]);
    chomp $out;
    return $out;
}

# Where the packages of nginx put their modules.
sub library_path {
    my (undef, undef, $text) = Edgemeter::Process::capture(
        command => [Edgemeter::Nginx::find_bin(), '-V']);
    return $text =~ /--modules-path=(\S+)/ ? $1 : '/usr/lib/nginx/modules';
}

# Installs a set of tools/deps where that is possible; why it is not, or
# nothing when it is there.
sub missing_packages {
    my ($set) = @_;
    my ($status, undef, $errors) = Edgemeter::Process::capture(
        command => [Edgemeter::Stack::root() . '/tools/deps', $set]);
    return if $status == 0;
    return (split /\n/, $errors)[-1] // "tools/deps $set failed";
}

1;
