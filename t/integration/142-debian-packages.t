#!/usr/bin/perl

# 142-debian-packages.t - the Debian packages: what is in them, what they
# depend on, their scripts, and the module of the package in Debian's nginx.
#
# They are made of what is built. Installing them for good, in a Debian of
# their own, is `make test-packages`.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use File::Path ();
use File::Temp ();
use Test::More;
use Edgemeter::Nginx;
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::Stack;

my $root  = Edgemeter::Stack::root();
my $place = File::Temp::tempdir('em-deb-XXXXXX', TMPDIR => 1, CLEANUP => 1);
chmod 0755, $place;

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

my ($status, $out) = run("$root/tools/build-deb", $place);
is $status, 0, 'they are made' or diag $out;
my ($version) = slurp("$root/debian/changelog") =~ /\((.*?)\)/;
my %file = map { m{/([^/_]+)_[^/]*\.deb$} ? ($1 => $_) : () }
    glob "$place/*.deb";
is_deeply [sort keys %file], [qw(libnginx-mod-http-meter meterd)], 'two';

# --- what is in them ----------------------------------------------------

# "-rw-r--r-- root/root ./usr/..." of files and links.
sub contents {
    my ($package) = @_;
    my ($status, $list) = run('dpkg-deb', '-c', $file{$package});
    die $list if $status;
    return sort map {
        my ($mode, $owner, undef, undef, undef, $path) = split ' ', $_, 6;
        "$mode $owner " . $path =~ s{^\./}{}r;
    } grep {!/^d/} split /\n/, $list;
}

my ($read, $execute) = ('-rw-r--r-- root/root', '-rwxr-xr-x root/root');
is_deeply [contents('libnginx-mod-http-meter')], [sort map {"$read $_"}
    'usr/lib/nginx/modules/ngx_http_meter_module.so',
    'usr/share/nginx/modules-available/mod-http-meter.conf',
    map {"usr/share/doc/libnginx-mod-http-meter/$_"}
        qw(changelog.gz copyright)], 'the files of the module';

my @examples = map { s{^\Q$root/examples/\E}{}r }
    grep { -f && !m{/examples/(?:default|logrotate|monitoring|systemd)/} }
    glob "$root/examples/* $root/examples/*/*";
is_deeply [contents('meterd')], [sort +(map {"$read $_"}
        'etc/edgemeter/meterd.yaml', 'etc/logrotate.d/edgemeter',
        (map {"lib/systemd/system/$_"} qw(meterd-reconcile.service
            meterd-reconcile.timer meterd.service
            nginx.service.d/edgemeter.conf)),
        'usr/lib/sysusers.d/edgemeter.conf',
        'usr/lib/tmpfiles.d/edgemeter.conf',
        'usr/share/edgemeter/bootstrap.sql',
        (map {"usr/share/edgemeter/examples/$_"} @examples),
        (map {"usr/share/edgemeter/monitoring/$_"} qw(edgemeter.json
            edgemeter.rules.yml edgemeter.test.yml)),
        (map {"usr/share/doc/meterd/$_"} qw(changelog.gz copyright)),
        map { m{([^/]+\.(\d))$} ? "usr/share/man/man$2/$1.gz" : () }
            glob "$root/docs/man/*.[1-8]"),
    "$execute usr/sbin/meterd",
    'lrwxrwxrwx root/root usr/share/doc/meterd/examples'
        . ' -> ../../edgemeter/examples'], 'the files of the daemon';

# --- what they say of themselves ----------------------------------------

sub field {
    my ($package, $name) = @_;
    my (undef, $value) = run('dpkg-deb', '-f', $file{$package}, $name);
    chomp $value;
    return $value;
}

is field($_, 'Version'), $version, "$_: the version" for sort keys %file;
my ($abi) = slurp('/usr/share/nginx/src/debian/libnginx-mod.abisubstvars')
    =~ /=(nginx-abi-\S+)/;
like field('libnginx-mod-http-meter', 'Depends'), qr/(?:^|, )\Q$abi\E(?:,|$)/,
    'the module is for this nginx alone';
is field('libnginx-mod-http-meter', 'Breaks'), "meterd (<< $version)",
    'and comes with, or after, its meterd';
like field('meterd', 'Depends'), qr/(?:^|, )\Q$_\E\d/, "meterd needs $_"
    for qw(libpq libssl libuv libyaml-0- zlib);
unlike field('meterd', 'Depends'), qr/nginx|postgresql/,
    'and neither nginx nor a server on its host';

# --- their scripts ------------------------------------------------------

my %scripts = (
    'libnginx-mod-http-meter' => [qw(postinst postrm prerm)],
    'meterd'                  => [qw(postinst postrm prerm)],
);
for my $package (sort keys %file) {
    my $control = "$place/control-$package";
    run('dpkg-deb', '-e', $file{$package}, $control);
    run('dpkg-deb', '-x', $file{$package}, "$place/system");
    my @found = map { s{.*/}{}r } grep {/(?:pre|post)/} sort glob "$control/*";
    is_deeply \@found, $scripts{$package}, "$package: its scripts";
    for my $name (@found) {
        my ($status, $out) = run('sh', '-n', "$control/$name");
        is $status, 0, "$package: $name can be read" or diag $out;
        unlike slurp("$control/$name"), qr/#DEBHELPER#/, 'and is complete';
    }
}
my $control = "$place/control-meterd";
is slurp("$control/conffiles"),
    "/etc/edgemeter/meterd.yaml\n/etc/logrotate.d/edgemeter\n",
    'what is configured is never replaced unasked';
my $postinst = slurp("$control/postinst");
unlike $postinst, qr/deb-systemd-invoke (?:re)?start\b/,
    'nothing is started';
like $postinst, qr/deb-systemd-invoke try-restart [^\n]*'meterd\.service'/,
    'what runs is started again by an upgrade';
unlike slurp("$control/postrm"), qr/^\s*(?:rm -\w*r|dropdb|userdel)/m,
    'a purge takes nothing away as a whole';

# --- a purge, in a system of our own ------------------------------------

sub purge {
    my $script = slurp("$control/postrm");
    $script =~ s/^# Automatically added.*//ms;    # asks for a dpkg around it
    $script =~ s{=/var/}{=$place/purge/var/}g;
    Edgemeter::Place::replace_file("$place/postrm", 0755, undef, $script);
    return run("$place/postrm", 'purge');
}

my $state = "$place/purge/var/lib/edgemeter";
my $logs  = "$place/purge/var/log/edgemeter";
sub touch { Edgemeter::Place::replace_file($_, 0644, undef, 'x') for @_ }
File::Path::make_path("$state/outbox", $logs);
# What nginx leaves in a ring of version 1: drained and nobody's, or not.
sub ring {
    my ($name, $busy) = @_;
    my $page = pack 'a8 L<', 'RETMRRNG', 1;
    $page .= "\0" x (776 - length $page) . pack 'Q', $busy;
    Edgemeter::Place::replace_file("$state/outbox/$name", 0660, undef,
        $page . "\0" x 4096);
    return;
}
# Requests that no ring could take: so many, and how many were told since.
sub losses {
    my ($lost, $moved) = @_;
    my $page = pack 'a8 Q<*', 'EMLOSSS1', $lost, 0, 0, 0, $moved, $moved;
    Edgemeter::Place::replace_file("$state/outbox/losses", 0660, undef,
        $page . "\0" x (4096 - length $page));
    return;
}
losses(7, 6);
ring('ring-2', 1);
ring('ring-3', 0);
touch("$state/outbox/ring-1", "$state/writer-0", "$state/poison",
    "$logs/meterd.log", "$logs/meterd.log.2.gz");
($status, $out) = purge();
is $status, 0, 'purged';
like $out, qr{\Q$state\E/outbox is not empty and stays}, 'the outbox stays';
ok -e "$state/outbox/ring-1" && -e "$state/writer-0", 'with all beside it';
ok -e "$state/outbox/ring-2", 'with a ring that may hold usage';
ok !-e "$state/outbox/ring-3", 'a drained ring goes';
ok -e "$state/outbox/losses", 'losses that were not told stay';
ok !-e $logs, 'the logs go';
unlink "$state/outbox/ring-1", "$state/outbox/ring-2", "$state/outbox/losses";
touch("$state/mine");
($status, $out) = purge();
like $out, qr{\Q$state\E is not empty and stays}, 'what is not ours stays';
ok -e "$state/mine" && !-e "$state/outbox" && !-e "$state/writer-0",
    'and that alone';
unlink "$state/mine";
($status, $out) = purge();
is_deeply [$status, $out, -e $state ? 1 : 0], [0, '', 0], 'then it is gone';
($status, $out) = purge();
is_deeply [$status, $out], [0, ''], 'which can be said twice';
File::Path::make_path("$state/outbox");
ring("ring-$_", 0) for 1 .. 3;
losses(7, 7);
($status, $out) = purge();
is_deeply [$status, $out, -e $state ? 1 : 0], [0, '', 0],
    'usage that was counted is not warned of';

# --- and they work ------------------------------------------------------

my $system = "$place/system";
($status, $out) = run("$system/usr/sbin/meterd", '--version');
is $out, "meterd $version\n", 'meterd and its package have one version';
($status, $out) = run("$system/usr/sbin/meterd", 'check', '-c',
    "$system/etc/edgemeter/meterd.yaml");
is $status, 0, 'the configuration is valid' or diag $out;

my ($load) = slurp("$system/usr/share/nginx/modules-available/mod-http-meter.conf")
    =~ m{^load_module modules/(\S+);$}m;
Edgemeter::Place::replace_file("$place/nginx.conf", 0644, undef, <<"CONF");
load_module $system/usr/lib/nginx/modules/$load;
error_log stderr;
pid $place/nginx.pid;
events { }
http {
    access_log off;
    meter_aggregator unix:$place/meterd.sock;
    meter_outbox $place/outbox 1m;
    server {
        listen unix:$place/nginx.sock;
        location / {
            meter on;
            meter_event http.request;
            meter_tenant acme;
        }
    }
}
CONF
($status, $out) = run(Edgemeter::Nginx::find_bin(), '-t', '-q',
    '-c', "$place/nginx.conf", '-p', $place);
is $status, 0, 'nginx takes the module of the package' or diag $out;

done_testing;
