#!/usr/bin/perl

# 144-install.t - `make install` and `make uninstall`, and what systemd says
# of the units, of the user and of the directories.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use File::Find ();
use File::Temp ();
use Test::More;
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::Stack;

# Of 100, as `systemd-analyze security` counts; without ProtectSystem= each
# would be above it.
my %EXPOSURE_MAX
    = ('meterd.service' => 12, 'meterd-reconcile.service' => 12);

my $root  = Edgemeter::Stack::root();
my $place = File::Temp::tempdir('em-inst-XXXXXX', TMPDIR => 1, CLEANUP => 1);

sub run {
    my (@command) = @_;
    my ($status, $out, $err)
        = Edgemeter::Process::capture(command => \@command);
    return ($status >> 8, $out . $err);
}

sub slurp {
    my ($path) = @_;
    open my $in, '<', $path or die "$path: $!";
    local $/;
    return scalar <$in>;
}

# "640 etc/edgemeter/meterd.yaml" of every file below.
sub tree {
    my ($top) = @_;
    my @files;
    File::Find::find({ no_chdir => 1, wanted => sub {
        push @files, sprintf '%o %s', (lstat)[2] & 07777, s{^\Q$top\E/}{}r
            unless -d;
    } }, $top);
    return sort { (split ' ', $a)[1] cmp (split ' ', $b)[1] } @files;
}

# --- into DESTDIR -------------------------------------------------------

my @expected = (
    '600 etc/edgemeter/meterd.yaml',
    '644 etc/logrotate.d/edgemeter',
    '644 usr/lib/nginx/modules/ngx_http_meter_module.so',
    (map {"644 usr/local/lib/$_"} qw(
        systemd/system/meterd-reconcile.service
        systemd/system/meterd-reconcile.timer
        systemd/system/meterd.service
        systemd/system/nginx.service.d/edgemeter.conf
        sysusers.d/edgemeter.conf tmpfiles.d/edgemeter.conf)),
    '755 usr/local/sbin/meterd',
    '644 usr/local/share/edgemeter/bootstrap.sql',
    (map {"644 usr/local/share/edgemeter/examples/$_"}
        grep { !m{^(?:default|logrotate|monitoring|systemd)/} }
        map {(split)[1]} tree("$root/examples")),
    (map {"644 usr/local/share/edgemeter/monitoring/$_"} qw(
        edgemeter.json edgemeter.rules.yml edgemeter.test.yml)),
    (map {m{([^/]+\.(\d))$} ? "644 usr/local/share/man/man$2/$1" : ()}
        glob "$root/docs/man/*.[1-8]"),
);
@expected = sort { (split ' ', $a)[1] cmp (split ' ', $b)[1] } @expected;

my $dest = "$place/dest";
my @make = ('make', '-s', '-C', $root, '--no-print-directory');
my ($status, $out) = run(@make, 'install-files', "DESTDIR=$dest");
is $status, 0, 'installed' or diag $out;
is_deeply [tree($dest)], \@expected, 'every file, with its mode';
unlike join('', map { slurp($_) } glob "$dest/etc/edgemeter/* "
        . "$dest/usr/local/lib/systemd/system/*.service"),
    qr/\@[A-Z]+\@/, 'every place is filled in';

my $config = "$dest/etc/edgemeter/meterd.yaml";
($status, $out) = run("$dest/usr/local/sbin/meterd", 'check', '-c', $config);
is $status, 0, 'the configuration is valid' or diag $out;

Edgemeter::Place::replace_file($config, 0640, undef, "# mine\n");
run(@make, 'install-files', "DESTDIR=$dest");
is slurp($config), "# mine\n", 'a second time: what is configured stays';

Edgemeter::Place::replace_file("$dest/usr/local/share/edgemeter/mine", 0644,
    undef, '');
($status, $out) = run(@make, 'uninstall', "DESTDIR=$dest");
is $status, 0, 'uninstalled' or diag $out;
is_deeply [tree($dest)],
    ['640 etc/edgemeter/meterd.yaml', '644 usr/local/share/edgemeter/mine'],
    'nothing is left but what is not ours';
ok !-d "$dest/usr/local/share/edgemeter/examples", 'and no empty directory';

# --- units --------------------------------------------------------------

($status, $out) = run(@make, 'install-files', "PREFIX=$place/usr",
    "SYSCONFDIR=$place/etc", "MODULEDIR=$place/modules");
is $status, 0, 'installed into another prefix' or diag $out;
my $units = "$place/usr/lib/systemd/system";
($status, $out) = run('systemd-analyze', 'verify', '--man=no',
    glob "$units/*.service $units/*.timer");
is $status, 0, 'systemd takes the units';
is $out, '', 'without a word';
for my $unit (sort keys %EXPOSURE_MAX) {
    ($status, $out) = run('systemd-analyze', 'security', '--offline=true',
        "--threshold=$EXPOSURE_MAX{$unit}", "$units/$unit");
    is $status, 0, "$unit is not more exposed than it has to be"
        or diag $out;
}
($status, $out) = run('systemd-analyze', 'calendar',
    slurp("$units/meterd-reconcile.timer") =~ /^OnCalendar=(.*)/m);
is $status, 0, 'the timer has a time' or diag $out;

# A database that is away must not have systemd end meterd again and again.
my %setting = map { $_ => slurp("$units/meterd.service") =~ /^$_=(.*)/m }
    qw(Type NotifyAccess TimeoutStartSec StartLimitIntervalSec);
is_deeply \%setting, { Type => 'notify', NotifyAccess => 'main',
    TimeoutStartSec => 'infinity', StartLimitIntervalSec => 0 },
    'meterd says when it is ready, and may take its time';

# What the unit lets meterd write to is where the configuration writes.
my $unit = slurp("$units/meterd.service");
my $yaml = slurp("$place/etc/edgemeter/meterd.yaml");
for my $pair ([Runtime => '/run', 'listen: unix:'],
    [State => '/var/lib', 'stateDir: '], [State => '/var/lib', 'outbox: '],
    [Logs => '/var/log', 'path: ']) {
    my ($kind, $where, $key) = @$pair;
    my ($name) = $unit =~ /^${kind}Directory=(.*)/m;
    like $yaml, qr{\Q$key$where/$name\E\b}, "$key$where/$name is its own";
}

# --- user and directories -----------------------------------------------

SKIP: {
    skip 'only root gives files away', 7 if $> != 0;
    my $system = "$place/system";
    mkdir $_ or die "$_: $!" for $system, "$system/etc";
    my @lib = map {"$place/usr/lib/$_/edgemeter.conf"} qw(sysusers.d tmpfiles.d);
    ($status, $out) = run('systemd-sysusers', "--root=$system", $lib[0]);
    is $status, 0, 'systemd-sysusers makes the user' or diag $out;
    like slurp("$system/etc/passwd"),
        qr{^edgemeter:x:\d+:\d+:[^:]*:/nonexistent:/usr/sbin/nologin$}m,
        'who cannot log in';
    like slurp("$system/etc/group"), qr/^edgemeter:x:\d+:www-data$/m,
        'nginx is in the group';

    my ($uid) = slurp("$system/etc/passwd") =~ /^edgemeter:x:(\d+)/m;
    my ($gid) = slurp("$system/etc/group")  =~ /^edgemeter:x:(\d+)/m;
    for my $time ('once', 'twice, as at each boot') {
        ($status, $out) = run('systemd-tmpfiles', '--create',
            "--root=$system", $lib[1]);
        is $status, 0, "systemd-tmpfiles makes the directories $time"
            or diag $out;
    }
    for my $pair ([edgemeter => '750'], ['edgemeter/outbox' => '2770']) {
        my ($name, $mode) = @$pair;
        my @stat = stat "$system/var/lib/$name" or die "$name: $!";
        is_deeply [sprintf('%o', $stat[2] & 07777), @stat[4, 5]],
            [$mode, $uid, $gid], "$name has mode $mode and belongs to meterd";
    }
}

done_testing;
