#!/usr/bin/perl

# 145-existing-nginx.t - docs/existing-nginx.md, command by command: an nginx
# that runs gets the module, a route of it is metered and read, meterd and
# PostgreSQL are stopped and killed. Every line that is logged meanwhile has
# to be on docs/failure-modes.md.
#
# The page's paths are put below a directory of the test, its ports are free
# ones, its users the one that everything runs as here. Files come from `make
# install`. What a test cannot have for itself has a stand-in on the PATH:
# useradd and usermod, runuser, nginx with its paths, journalctl, and a
# systemctl that does what the installed unit says and then waits until meterd
# is ready, as a person who types the next command does.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use File::Find ();
use File::Path qw(make_path remove_tree);
use File::Temp ();
use Test::More;
use Edgemeter::Account;
use Edgemeter::Cluster;
use Edgemeter::Http;
use Edgemeter::Nginx;
use Edgemeter::Page qw(normal explained);
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until poll_until);

my $ROOT    = Edgemeter::Stack::root();
my $account = Edgemeter::Account->service;
my $user    = $account->name;
my $group   = getgrgid $account->gid;
my $tmp     = File::Temp::tempdir('em-there-XXXXXX', TMPDIR => 1);
my $bin     = "$tmp/bin";
my $pg      = Edgemeter::Cluster::find_bin();
my $parent  = $$;
chmod 0755, $tmp;

my %port = map { $_ => Edgemeter::Stack::free_port() } qw(80 3000 5432 8081);

# What the page says, as it is here.
sub here {
    my ($text) = @_;
    $text =~ s{(?<![\w.])/(etc|usr|var|run)/(?=nginx|local|lib/edgemeter|log|edgemeter|share)}
        {$tmp/$1/}g;
    $text =~ s{127\.0\.0\.1:(80|3000|5432|8081)\b}{127.0.0.1:$port{$1}}g;
    $text =~ s{http://127\.0\.0\.1/}{http://127.0.0.1:$port{80}/}g;
    $text =~ s{\bwww-data\b}{$user}g;
    $text =~ s{-o edgemeter -g edgemeter\b}{-o $user -g $group}g;
    $text =~ s{chown edgemeter:root\b}{chown $user:$group}g;
    return $text;
}

# And back, for what commands print.
sub there {
    my ($text) = @_;
    $text =~ s/\Q$tmp\E//g;
    return $text;
}

sub put {
    my ($path, $mode, $text) = @_;
    open my $file, '>', $path or die "$path: $!\n";
    print {$file} $text;
    close $file or die "$path: $!\n";
    chmod $mode, $path;
    return;
}

sub stand_in {
    my ($name, $text) = @_;
    put("$bin/$name", 0755, "#!/bin/bash\n$text");
    return;
}

sub slurp {
    my ($path) = @_;
    open my $file, '<', $path or return '';
    local $/;
    return <$file> // '';
}

# --- the machine --------------------------------------------------------

make_path(map {"$tmp/$_"} 'bin', 'data', 'etc/edgemeter', 'etc/nginx/conf.d',
    'etc/nginx/modules-enabled', 'etc/nginx/sites-enabled', 'run/edgemeter',
    'usr/share/nginx', 'var/lib/edgemeter', 'var/lib/nginx', 'var/log/nginx');
$account->own(map {"$tmp/$_"} 'data', 'run', 'run/edgemeter',
    'var/lib/edgemeter', 'var/lib/nginx', 'var/log', 'var/log/nginx');

my ($status, $out, $err) = Edgemeter::Process::capture(
    command => ['make', '-s', '-C', $ROOT, 'install', "DESTDIR=$tmp",
        'PREFIX=/usr/local', "MODULEDIR=/usr/share/nginx/modules"],
    env => { PATH => $ENV{PATH} });
is $status, 0, 'make install' or diag $out, $err;
# A build that the caller names goes in its place.
if ($ENV{METERD}) {
    Edgemeter::Process::capture(
        command => ['/bin/cp', $ENV{METERD}, "$tmp/usr/local/sbin/meterd"]);
}
my @units;
File::Find::find({ no_chdir => 1,
    wanted => sub { push @units, $_ if m{/meterd\.service$} } }, $tmp);
my $service = slurp($units[0] // '');
my ($start) = $service =~ /^ExecStart=(.*)$/m;
my @before = $service =~ /^ExecStartPre=(.*)$/mg;
ok $start, 'a unit is installed' or BAIL_OUT('no unit');
like $service, qr/^Restart=always$/m, 'which starts meterd again';

# Debian's nginx.conf, without what has nothing to do with it.
put("$tmp/etc/nginx/nginx.conf", 0644, here(<<'CONF'));
user www-data;
worker_processes auto;
pid /run/nginx.pid;
error_log /var/log/nginx/error.log;
include /etc/nginx/modules-enabled/*.conf;

events {
    worker_connections 768;
}

http {
    default_type application/octet-stream;
    access_log /var/log/nginx/access.log;
    include /etc/nginx/conf.d/*.conf;
    include /etc/nginx/sites-enabled/*;
}
CONF
put("$tmp/etc/nginx/shop.users", 0644, "acme:{PLAIN}secret\n");
put("$tmp/etc/nginx/sites-enabled/app", 0644,
    here(qq(server { listen 127.0.0.1:3000; return 200 "no orders yet\\n"; }\n)));

my $nginx = Edgemeter::Nginx::find_bin();
my @as = $account->differs
    ? ('setpriv', '--reuid', $account->uid, '--regid', $account->gid,
        '--clear-groups')
    : ();
my $drop = "@as";
(my $run = here($start)) =~ s{^\s+}{};
my $prepare = join '', map { "$drop " . here($_) . " >> \$log 2>&1 || exit 1\n" } @before;

stand_in('useradd', "exit 0\n");
stand_in('usermod', "exit 0\n");
stand_in('meterd', qq(exec $drop $tmp/usr/local/sbin/meterd "\$@"\n));
# The user runs on, as a master that is not root; the site's port is not 80.
stand_in('nginx', <<"SH");
$drop $nginx -p $tmp/usr/share/nginx -e $tmp/var/log/nginx/error.log -c $tmp/etc/nginx/nginx.conf "\$@" 2> $tmp/said
status=\$?
grep -v 'the "user" directive' $tmp/said >&2
exit \$status
SH
stand_in('runuser', <<"SH");
[ "\$1" = -u ] && [ "\$3" = -- ] || exit 2
shift 3
export PGHOST=$tmp/data PGPORT=$port{5432} PGUSER=postgres PGDATABASE=postgres
exec $drop "\$@"
SH
stand_in('journalctl', <<"SH");
[ "\$*" = '-u meterd -o cat' ] || exit 2
exec cat $tmp/var/log/meterd.log
SH
stand_in('systemctl', <<"SH");
log=$tmp/var/log/meterd.log pid=$tmp/run/meterd.pid
ready() { grep -c '"subsystem":"meterd","message":"ready"' \$log; }
start_meterd() {
    touch \$log
    before=\$(ready)
    $prepare
    setsid $drop $run < /dev/null >> \$log 2>&1 &
    echo \$! > \$pid
    for i in {1..600}; do [ \$(ready) -gt \$before ] && return; sleep 0.05; done
    echo 'meterd is not ready'
}
children() {
    for stat in /proc/[0-9]*/stat; do
        read -r process _ _ parent _ 2> /dev/null < \$stat
        [ "\$parent" = "\$1" ] && echo \$process
    done
}
gone() {
    for i in {1..600}; do kill -0 "\$1" 2> /dev/null || return 0; sleep 0.05; done
    exit 1
}
case "\$*" in
    'start meterd') start_meterd ;;
    'stop meterd') kill \$(cat \$pid); gone \$(cat \$pid) ;;
    'kill --signal=KILL meterd') kill -9 \$(cat \$pid); gone \$(cat \$pid); start_meterd ;;
    'reload nginx')
        children \$(cat $tmp/run/nginx.pid) > $tmp/old
        nginx -s reload ;;
    'start postgresql') $drop $pg/pg_ctl -s -w -D $tmp/data/main -l $tmp/data/log start < /dev/null > /dev/null 2>&1 ;;
    'stop postgresql') $drop $pg/pg_ctl -s -w -D $tmp/data/main -m fast stop ;;
    *) echo "not known here: \$*"; exit 2 ;;
esac
SH

sub end_all {
    return if $$ != $parent;
    local ($?, $!, $@);
    for my $name (qw(nginx meterd)) {
        my ($pid) = slurp("$tmp/run/$name.pid") =~ /^(\d+)$/m or next;
        Edgemeter::Process->adopt($name, $pid)->stop('TERM', 20);
    }
    system "$bin/systemctl stop postgresql > /dev/null 2>&1"
        if -f "$tmp/data/main/postmaster.pid";
    remove_tree($tmp) unless $ENV{KEEP_RUN_DIR};
    return;
}
END { end_all() }
$SIG{$_} = sub { exit 1 } for qw(INT TERM);

my $cluster = Edgemeter::Cluster->new(
    data          => "$tmp/data/main",
    sockets       => "$tmp/data",
    log           => "$tmp/data/log",
    account       => $account,
    unsafe_initdb => 1,
    settings => { listen_addresses => '127.0.0.1', port => $port{5432} },
    hba => "local all all peer map=edgemeter\n"
        . "host all all 127.0.0.1/32 scram-sha-256\n",
);
$cluster->make;
$cluster->configure;
local $ENV{PATH} = "$bin:$ENV{PATH}";
is system('systemctl start postgresql'), 0, 'PostgreSQL runs';

# --- the page -----------------------------------------------------------

my $page  = Edgemeter::Page->new('docs/existing-nginx.md');
my @steps = $page->steps;
my ($site) = grep { ($_->{file} // '') =~ /sites-enabled/ } @steps;
put(here($site->{file}), 0644, here($site->{content}));
is system('nginx'), 0, 'nginx serves the site, without the module';
my $master = slurp("$tmp/run/nginx.pid");

# Where the page waits: workers of before a reload are gone, meterd is there
# with all its connections and nothing is in flight.
my ($connections) = slurp("$ROOT/docs/capacity.md") =~ /Each meterd holds (\d+) /;
stand_in('settle', <<"SH");
connections() {
    runuser -u postgres -- psql -XAtc \\
        "SELECT count(*) FROM pg_stat_activity WHERE usename LIKE 'meter%'"
}
settled() {
    for old in \$(cat $tmp/old); do
        kill -0 "\$old" 2> /dev/null && return 1
    done
    page=\$(curl -s http://127.0.0.1:$port{8081}/metrics)
    [[ \$page == *\$'\\nedgemeter_aggregator_up 1'* && \$page == *\$'\\nedgemeter_edge_in_flight 0'* ]] || return 1
    [ "\$(connections)" = $connections ]
}
for i in {1..600}; do
    settled && exit 0
    sleep 0.05
done
echo 'nothing has settled'
SH

# Or until nginx has told that meterd is away.
stand_in('told', <<"SH");
for i in {1..600}; do
    grep -q 'is away' $tmp/var/log/nginx/error.log && exit 0
    sleep 0.05
done
SH

sub change {
    my ($step) = @_;
    if ($step->{file}) {
        my $path = here($step->{file});
        return "cat > $path <<'END OF FILE'\n" . here($step->{content})
            . "END OF FILE\n";
    }
    return "settle\n" if $step->{command} =~ /^sleep [12]$/;
    return "told\n" if $step->{command} =~ /^sleep 3$/;
    return here($step->{command});
}

my @output = Edgemeter::Page::run_steps($tmp, \&change, @steps);
for my $step (@steps) {
    my $got = there(shift @output);
    my ($name) = $step->{file} // $step->{command} =~ /^(.{1,70})/;
    is normal($got), normal($step->{output} // ''), "line $step->{line}: $name";
}
is slurp("$tmp/run/nginx.pid"), $master, 'nginx was never restarted';

# --- what was said ------------------------------------------------------

my $failures = Edgemeter::Page->new('docs/failure-modes.md')->text;
my @said = map {/^\d\S+ \S+ (\[(?:notice|warn|error|crit|alert|emerg)\]) \d+#\d+: (?!\*)(.*(?:meter|ring|outbox).*)$/ ? "$1 $2" : ()}
    split /\n/, slurp("$tmp/var/log/nginx/error.log");
push @said, grep {/"level":"(?:warn|error)"/}
    split /\n/, slurp("$tmp/var/log/meterd.log");
my %seen;
@said = grep { !$seen{ s/"time":"[^"]*",//r =~ s/"(?:connection|lane|reason|sqlstate)":"[^"]*"//gr }++ } @said;
cmp_ok scalar(@said), '>=', 4, 'several things were said';
for my $line (@said) {
    ok explained($failures, $line), 'failure modes: ' . substr $line, 0, 120;
}
for my $text (map { $_->{output} } grep { $_->{command} } @steps) {
    next unless $text =~ /("error":"[^"]+")/;
    ok index($failures, $1) >= 0, "failure modes: $1";
}

# One more that costs nothing here: a host that has no name.
subtest 'no such host' => sub {
    my $yaml = slurp("$tmp/etc/edgemeter/meterd.yaml");
    $yaml =~ s/127\.0\.0\.1/nowhere.invalid/g;
    $yaml =~ s/edgemeter\/meterd\.sock/edgemeter\/other.sock/;
    $yaml =~ s{^stateDir: .*}{stateDir: $tmp/data/other}m;
    mkdir "$tmp/data/other";
    $account->own("$tmp/data/other");
    put("$tmp/data/other.yaml", 0644, $yaml);
    my $meterd = Edgemeter::Process->spawn(
        name    => 'meterd',
        log     => "$tmp/data/other/log",
        user    => $account,
        command => ["$tmp/usr/local/sbin/meterd", '-c', "$tmp/data/other.yaml"],
    );
    ok poll_until(sub {
        slurp("$tmp/data/other/log") =~ /"message":"database connection cannot be made; retrying"/
    }, 60), 'it says that it tries again';
    ok $meterd->alive, 'and runs on';
    ok $meterd->stop('TERM', 20), 'and ends when it is told';
};

done_testing;
