#!/usr/bin/perl

# 32-disk-full.t - the disk of the database is full while events come: no
# event is rejected, none is lost, and when there is room again all goes on.
#
# A database without room for rows answers SQLSTATE 53100; without room for
# its WAL it ends. Both happen here on small memory file systems, which only
# root can mount.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use File::Temp ();
use Test::More;
use Edgemeter::Load;
use Edgemeter::Stack;
use Edgemeter::Verify qw(verify_load);
use Edgemeter::Wait qw(wait_until poll_until);

my $scratch = File::Temp::tempdir('em-disk-XXXXXX', TMPDIR => 1);
chmod 0755, $scratch;
my @mounted;

sub small_disk {
    my ($name, $megabytes) = @_;
    my $path = "$scratch/$name";
    mkdir $path or die "$path: $!";
    system('mount', '-t', 'tmpfs', '-o', "size=${megabytes}m,mode=0700",
        'tmpfs', $path) == 0 or return;
    push @mounted, $path;
    return $path;
}

# After the stack's own end, which must not lose its files.
my $stack;

sub clean_up {
    local ($?, $!, $@);
    $stack->discard if $stack;
    system 'umount', splice @mounted if @mounted;
    rmdir "$scratch/$_" for qw(rows wal);
    rmdir $scratch;
    return;
}
END { clean_up() if defined $scratch && -d $scratch }

if ($> != 0 || system('mount -t tmpfs -o size=1m tmpfs ' . quotemeta($scratch)
        . ' 2>/dev/null && umount ' . quotemeta($scratch)) != 0) {
    plan skip_all => 'a full disk needs a small file system,'
        . ' and this user cannot mount one';
}

$stack = Edgemeter::Stack->for_test(settings => {
    min_wal_size => '32MB', max_wal_size => '64MB', log_checkpoints => 'off'
});
$stack->prepare;
my $account = $stack->account;
my $cluster = $stack->make_cluster;

# WAL and rows on disks of their own, before anything else happens.
my ($rows, $wal) = (small_disk('rows', 96), small_disk('wal', 192));
$account->own($rows, $wal);
$cluster->start;
$cluster->stop('fast');
system('cp', '-a', "$cluster->{data}/pg_wal/.", $wal) == 0 or die;
system('rm', '-r', "$cluster->{data}/pg_wal");
symlink $wal, "$cluster->{data}/pg_wal" or die $!;
$cluster->start;
$cluster->query("CREATE TABLESPACE rows LOCATION '$rows'",
    database => 'postgres');
$cluster->query('CREATE DATABASE edgemeter TABLESPACE rows',
    database => 'postgres');
$stack->start;

# Takes all room that is left; what it wrote goes when it is told to.
sub fill {
    my ($disk) = @_;
    open my $file, '>>', "$disk/ballast" or die $!;
    my $block = 'x' x 65536;
    while (my $n = syswrite $file, $block) { }
    while (my $n = syswrite $file, $block, 512) { }
    close $file;
    return;
}

sub empty {
    my ($disk) = @_;
    unlink "$disk/ballast" or die $!;
    return;
}

sub status { return $stack->http->get($_[0])->{status} }

sub up {
    return $stack->http->get('/metrics')->{body}
        =~ /^edgemeter_database_up (\d)$/m ? $1 : undef;
}

my $load = Edgemeter::Load->new(stack => $stack, clients => 8)->start;

sub answers_come {
    my ($what) = @_;
    my $before = $load->progress;
    ok poll_until(sub { $load->progress > $before + 3000 }, 60), $what;
    return;
}

subtest 'no room for rows' => sub {
    answers_come('answers come');
    fill($rows);
    ok poll_until(sub {
        fill($rows);
        $stack->log('meterd') =~ /"sqlstate":"53100"/
    }, 60), 'the database says that its disk is full';
    ok poll_until(sub { status('/readyz') == 503 }, 10), 'not ready';
    is up(), 0, 'edgemeter_database_up is 0, though connections stand';
    like $stack->log('meterd'), qr/"sqlstate":"53100".*No space left/,
        'the log says why';
    is status('/healthz'), 200, 'but alive';
    unlike $stack->log('meterd'), qr/the database refuses an event/,
        'no event is blamed';
    empty($rows);
    ok poll_until(sub { status('/readyz') == 200 }, 30), 'ready again';
    is up(), 1, 'edgemeter_database_up is 1';
    answers_come('answers come again');
};

subtest 'no room for the WAL' => sub {
    my $meterd = $stack->part_pid('meterd');
    fill($wal);
    ok poll_until(sub {
        fill($wal);
        eval { $cluster->query('SELECT pg_switch_wal()') };
        $stack->log('postgres') =~ /PANIC|could not (?:write|extend).*pg_wal/
    }, 60), 'PostgreSQL cannot write its WAL';
    ok poll_until(sub { status('/readyz') == 503 }, 20), 'not ready';
    empty($wal);
    wait_until {
        $stack->start_part('postgres') unless $stack->alive('postgres');
        status('/readyz') == 200
    } 60, 'ready again';
    is $stack->part_pid('meterd'), $meterd, 'meterd is the same';
    answers_come('answers come again');
};

$load->stop;
verify_load($stack, $load->told);
undef $load;
$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
clean_up();
ok !-d $scratch, 'nothing is left';
done_testing;
