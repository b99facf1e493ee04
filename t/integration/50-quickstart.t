# The commands of README.md and docs/quickstart.md, run as they are printed
# against `make run`, and their output compared with what the page shows.
#
# In a ```console block a line with "$ " begins a command, indented lines
# right below continue it, and what follows is its output. Only the port is
# replaced; times of the server are not compared, nor is an output of `...`.
# Commands of make are not run from here: the first is what the test starts.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use File::Temp ();
use JSON::PP ();
use Test::More;
use Edgemeter::Process;
use Edgemeter::Session;
use Edgemeter::Stack;

my $ROOT = Edgemeter::Stack::root();
my $JSON = JSON::PP->new->canonical->allow_nonref;
my $MARK = "\n--- next command ---\n";
my $tmp  = File::Temp->newdir('em-quick-XXXXXX', TMPDIR => 1);
chmod 0755, "$tmp";

# [command, output] pairs of all console blocks.
sub commands_of {
    my ($page) = @_;
    open my $file, '<', "$ROOT/$page" or die "$page: $!\n";
    my $text = do { local $/; <$file> };
    my @commands;
    for my $block ($text =~ /^```console\n(.*?)^```$/msg) {
        for my $line (split /^/, $block) {
            if ($line =~ s/^\$ //) {
                push @commands, [$line, ''];
            }
            elsif (!@commands) {
                die "$page: output before the first command: $line";
            }
            else {
                my $goes_on = $line =~ /^\s/ && $commands[-1][1] eq '';
                $commands[-1][ $goes_on ? 0 : 1 ] .= $line;
            }
        }
    }
    return @commands;
}

# Where the page says to wait a moment: until nothing is in flight.
sub wait_drained_shell {
    my ($port) = @_;
    return "for i in {1..300}; do curl -s http://127.0.0.1:$port/metrics"
        . " | grep -q '^edgemeter_edge_in_flight 0\$' && break;"
        . " sleep 0.1; done\n";
}

# All commands of a page in one shell; the output of each.
sub run_commands {
    my ($port, @commands) = @_;
    my $script = "exec 2>&1\n";
    for my $command (@commands) {
        (my $text = $command->[0]) =~ s/\b8080\b/$port/g;
        $text = "true\n" if $text =~ /^make\b/;
        $text = wait_drained_shell($port) if $text =~ /^sleep\b/;
        $script .= "${text}printf %s '$MARK'\n";
    }
    open my $pipe, '-|', 'bash', '-c', 'cd "$1" && eval "$2"', 'bash', "$tmp",
        $script
        or die "bash: $!\n";
    my $output = do { local $/; <$pipe> };
    close $pipe;
    return split /\Q$MARK\E/, $output, -1;
}

# One form for what means the same.
sub normal {
    my ($text) = @_;
    $text =~ s/("(?:(?:last_)?updated_at|first_seen_at|recorded_at|seen_at)":)"[^"]+Z"/$1"T"/g;
    my $value = eval { $JSON->decode($text) };
    return $JSON->encode($value) if ref $value;
    $text =~ s/\s+\z//;
    return $text;
}

my $port = Edgemeter::Stack::free_port();
my $run  = Edgemeter::Session->start(PORT => $port, RUN_DIR => "$tmp/.run")
    ->wait_up;
for my $name (qw(build examples)) {
    symlink "$ROOT/$name", "$tmp/$name" or die "symlink: $!\n";
}

for my $page ('README.md', 'docs/quickstart.md') {
    subtest $page => sub {
        my @commands = commands_of($page);
        cmp_ok scalar(@commands), '>=', 5, 'shows some commands';
        is $commands[0][0], "make run\n", 'begins with make run';
        my @output = run_commands($port, @commands);
        for my $command (@commands) {
            my ($name) = $command->[0] =~ /^(.{1,60})/;
            my $got = shift @output;
            if ($command->[0] =~ /^make (\S+)/) {
                my ($status) = Edgemeter::Process::capture(
                    command => ['/usr/bin/env', 'make', '-n', '-C', $ROOT, $1]);
                is $status, 0, $name;
            }
            elsif ($command->[1] eq "...\n") {
                like $got, qr/\S/, $name;
            }
            else {
                is normal($got), normal($command->[1]), $name;
            }
        }
    };
}

$run->interrupt;
is $run->wait_end, 0, 'Ctrl-C stops it';

done_testing;
