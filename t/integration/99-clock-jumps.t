#!/usr/bin/perl

# 99-clock-jumps.t - meterd's wall clock jumps by hours, days and years, ahead
# and back, while events come and series are flushed: nothing stops, nothing
# runs out, every event is in the bucket of its own time, and retention does
# not believe such a clock. The database's clock is right all the time.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Fcntl qw(SEEK_SET);
use File::Temp ();
use Test::More;
use Edgemeter::SeriesHistory;
use Edgemeter::SeriesModel qw(stored_floors);
use Edgemeter::Stack;
use Edgemeter::Wait qw(poll_until);

use constant { HOUR => 3600, DAY => 86_400, YEAR => 31_557_600 };

my $scratch = File::Temp->newdir('em-clock-XXXXXX', TMPDIR => 1);
chmod 0755, "$scratch";
my $library = "$scratch/shift_clock.so";
my $source  = Edgemeter::Stack::root() . '/t/lib/shift_clock.c';
system('cc', '-shared', '-fPIC', '-O1', '-o', $library, $source) == 0
    or plan skip_all => 'there is no C compiler';
chmod 0755, $library;

my $control = "$scratch/ahead";
open my $file, '+>', $control or die "$control: $!\n";
chmod 0644, $control;
jump(0);

sub jump {
    my ($seconds) = @_;
    sysseek $file, 0, SEEK_SET or die $!;
    syswrite($file, pack 'q', $seconds) == 8 or die $!;
    return;
}

# A sanitizer wants to be loaded first.
my %env     = (LD_PRELOAD => $library, SHIFT_CLOCK => $control);
my $seed    = $ENV{HISTORY_SEED} // 99;
my $history = Edgemeter::SeriesHistory->start(seed => $seed, env => \%env,
    meterd => Edgemeter::Stack::plain_meterd(), clients => 2);
my $stack = $history->stack;

# What was there at the jump is flushed and rolled up, and more has come.
sub moves_on {
    my %last = map { split /\t/ } $stack->query(
        'SELECT writer, last FROM meter.writer_seq');
    my ($mark) = $stack->query(
        'SELECT coalesce(max(id), 0) FROM meter.series_dirty');
    return poll_until {
        my %upto = map { split /\t/ } $stack->query(
            'SELECT writer, upto FROM meter.writer_flush');
        my ($left) = $stack->query(
            "SELECT count(*) FROM meter.series_dirty WHERE id <= $mark");
        $left == 0 && !grep { $upto{$_} <= $last{$_} } keys %last;
    } 30;
}

my $floors = stored_floors($stack);
for my $ahead (HOUR, -(DAY), 10 * YEAR, -40 * YEAR, 0) {
    jump($ahead);
    ok moves_on(), "$ahead s ahead: events come, flushes and rollups go on";
}

# Retention by hand, with a clock of ten years from now.
jump(10 * YEAR);
my ($status, $out, $err) = Edgemeter::Process::capture(
    command => [$stack->{program}, 'retention', $stack->config_arguments],
    user    => $stack->account,
    env     => \%env,
);
isnt $status, 0, 'retention does not trust the clock';
like $err, qr/clock/, 'and says so' or diag $out;
is_deeply stored_floors($stack), $floors, 'nothing was given up';
jump(0);

$history->stop;
is $history->{failed} // 0, 0, 'all clients ended well';
ok $history->node($_)->process->alive, "$_ is still the same process"
    for qw(a b);
is $history->{deaths}, 0, 'none died';
$history->quiesce;
$history->verify;
is $stack->query('SELECT count(*) FROM meter.writer
    WHERE retired_at IS NOT NULL'), 0, 'nobody was taken for dead';
done_testing;
