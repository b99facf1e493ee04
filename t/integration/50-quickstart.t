# The commands of README.md and docs/quickstart.md, run as they are printed
# against `make run`, and their output compared with what the page shows.
#
# How a page says what is a command and what is its output: Page.pm. Only the
# port is replaced; times of the server are not compared, nor is an output of
# `...`. Commands of make are not run from here: the first is what the test
# starts.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use File::Temp ();
use Test::More;
use Edgemeter::Page qw(normal);
use Edgemeter::Process;
use Edgemeter::Session;
use Edgemeter::Stack;

my $ROOT = Edgemeter::Stack::root();
my $port = Edgemeter::Stack::free_port();
my $tmp  = File::Temp->newdir('em-quick-XXXXXX', TMPDIR => 1);
chmod 0755, "$tmp";

# Where the page says to wait: until nothing is in flight, or until the series
# have all that was committed.
my %wait = (
    1 => "curl -s http://127.0.0.1:$port/metrics"
        . " | grep -q '^edgemeter_edge_in_flight 0\$'",
    6 => '(. .run/env; psql -qAtX "$DATABASE_URL" -c "SELECT bool_and(upto = last)'
        . ' AND NOT EXISTS (SELECT FROM meter.series_dirty)'
        . ' FROM meter.writer_flush JOIN meter.writer_seq USING (writer)"'
        . ') | grep -q t',
);

sub change {
    my ($step) = @_;
    (my $text = $step->{command}) =~ s/\b8080\b/$port/g;
    return "true\n" if $text =~ /^make\b/;
    return $text unless $text =~ /^sleep (\d+)/;
    die "no condition for: $text" unless $wait{$1};
    return "for i in {1..300}; do $wait{$1} && break; sleep 0.1; done\n";
}

my $run = Edgemeter::Session->start(PORT => $port, RUN_DIR => "$tmp/.run")
    ->wait_up;
for my $name (qw(build examples)) {
    symlink "$ROOT/$name", "$tmp/$name" or die "symlink: $!\n";
}

for my $page ('README.md', 'docs/quickstart.md') {
    subtest $page => sub {
        my @steps = grep { $_->{command} }
            Edgemeter::Page->new($page)->steps;
        cmp_ok scalar(@steps), '>=', 5, 'shows some commands';
        is $steps[0]{command}, "make run\n", 'begins with make run';
        my @output = Edgemeter::Page::run_steps($tmp, \&change, @steps);
        for my $step (@steps) {
            my ($name) = $step->{command} =~ /^(.{1,60})/;
            my $got = shift @output;
            if ($step->{command} =~ /^make (\S+)/) {
                my ($status) = Edgemeter::Process::capture(
                    command => ['/usr/bin/env', 'make', '-n', '-C', $ROOT, $1]);
                is $status, 0, $name;
            }
            elsif ($step->{output} eq "...\n") {
                like $got, qr/\S/, $name;
            }
            else {
                is normal($got), normal($step->{output}), $name;
            }
        }
    };
}

$run->interrupt;
is $run->wait_end, 0, 'Ctrl-C stops it';

done_testing;
