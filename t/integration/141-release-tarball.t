#!/usr/bin/perl

# 141-release-tarball.t - `make dist`, and a build from what it makes.
#
# The tarball has what git tracks and the same bytes each time. Unpacked where
# there is no git it builds, checks, installs and packs itself again.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use Digest::SHA ();
use File::Temp ();
use Test::More;
use Edgemeter::Nginx;
use Edgemeter::Process;
use Edgemeter::Stack;

my $ROOT = Edgemeter::Stack::root();
my $tmp  = File::Temp->newdir('em-dist-XXXXXX', TMPDIR => 1);

# Code that need not be fast is compiled sooner.
my $QUICK = 'CFLAGS=-O0 -g0 -U_FORTIFY_SOURCE -Wno-error';

my ($version) = slurp("$ROOT/shared/meter_version.h")
    =~ /^#define METER_VERSION "(\d+\.\d+\.\d+)"$/m;
my $name = "edgemeter-$version";
my $tree = "$tmp/$name";

sub slurp {
    my ($path) = @_;
    open my $in, '<', $path or die "$path: $!\n";
    local $/;
    return scalar <$in>;
}

sub put {
    my ($path, $mode, $text) = @_;
    open my $out, '>', $path or die "$path: $!\n";
    print {$out} $text;
    close $out;
    chmod $mode, $path;
    return;
}

sub digest { return Digest::SHA->new(256)->addfile($_[0])->hexdigest }

# Runs a command in a directory. Its output; undef and its last words when it
# fails.
sub run {
    my ($title, $directory, %arg) = @_;
    my ($status, $out, $err) = Edgemeter::Process::capture(
        command => ['/bin/sh', '-c', 'cd "$1" && shift && exec "$@"', 'sh',
            $directory, @{ $arg{command} }],
        env => $arg{env});
    return $out if is $status, 0, $title;
    diag join "\n", grep {defined} (split /\n/, "$out\n$err")[-30 .. -1];
    return;
}

sub dist {
    my ($title, $directory, $out, %env) = @_;
    run($title, $directory, command => ["$directory/tools/dist", $out],
        env => \%env);
    return "$out/$name.tar.gz";
}

my $tarball = dist('make dist', $ROOT, "$tmp/first");

subtest 'the tarball' => sub {
    my @members = split /\n/, run('can be read', "$tmp",
        command => ['tar', 'tzf', $tarball]) // '';
    is_deeply [grep { !m{^\Q$name\E/[^/]} } @members], [],
        'all is in one directory';
    my ($status, $files) = Edgemeter::Process::capture(
        command => ['git', '-c', 'core.quotePath=off', '-C', $ROOT, 'ls-files']);
    SKIP: {
        skip 'no git here', 1 if $status != 0 || !-e "$ROOT/.git";
        is_deeply [sort map { s{^\Q$name\E/}{}r } @members],
            [sort split /\n/, $files], 'it has what git tracks, no more';
    }

    my $again = dist('made again, elsewhere', $ROOT, "$tmp/second",
        TZ => 'Asia/Tokyo', LC_ALL => 'C.UTF-8');
    is digest($again), digest($tarball), 'it is the same';
    $again = dist('made for another time', $ROOT, "$tmp/third",
        SOURCE_DATE_EPOCH => 1_000_000_000);
    my ($line) = run('has it', "$tmp", command => ['tar', '--utc', '-tvzf',
        $again, "$name/README.md"]);
    like $line, qr{0/0 .* 2001-09-09 01:46 }, 'which its files have, and no owner';
};

run('unpacked', "$tmp", command => ['tar', 'xzf', $tarball]);

# From here on whoever calls git leaves a trace and fails.
mkdir "$tmp/bin" or die "$tmp/bin: $!\n";
put("$tmp/bin/git", 0755, "#!/bin/sh\necho \"\$*\" >>'$tmp/git-was-called'\nexit 1\n");
$ENV{PATH} = "$tmp/bin:$ENV{PATH}";

subtest 'without git' => sub {
    my $rooted = "$tmp/rooted";
    run('make build', $tree, command => ['make', '-j2', 'build', $QUICK])
        // return;
    run("tools/$_", $tree, command => ["tools/$_"])
        for qw(check-docs check-includes check-source);
    run('make install', $tree, command => ['make', 'install',
        "DESTDIR=$rooted", 'PREFIX=/usr', $QUICK]);
    is run('meterd runs', "$tmp", command =>
        ["$rooted/usr/sbin/meterd", '--version']),
        "meterd $version\n", 'meterd knows its version';
    ok -s "$rooted/usr/share/man/man8/meterd.8", 'the manual page is there';

    put("$tmp/nginx.conf", 0644, <<"CONF");
load_module $rooted/usr/lib/nginx/modules/ngx_http_meter_module.so;
pid $tmp/nginx.pid;
events { }
http {
    access_log off;
    meter_aggregator unix:$tmp/meterd.sock;
    server { listen 127.0.0.1:1; location / { meter_api; } }
}
CONF
    run('nginx takes the module', "$tmp", command =>
        [Edgemeter::Nginx::find_bin(), '-t', '-q', '-e', "$tmp/error.log",
        '-c', "$tmp/nginx.conf"]);

    my $own = dist('make dist', $tree, "$tmp/own");
    is digest($own), digest($tarball), 'the tarball it makes is the same';
    ok !-e "$tmp/git-was-called", 'nobody called git'
        or diag slurp("$tmp/git-was-called");
};

done_testing;
