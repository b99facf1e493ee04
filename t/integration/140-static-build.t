#!/usr/bin/perl

# 140-static-build.t - an nginx with the module built in, by the addon `config`.
#
# The source is Debian's (tools/nginx-source), or the tree that NGINX_SOURCE
# names. Where it cannot be had, the headers of nginx-dev show as much as they
# can: nginx's configure step, the place of both modules among the filters, the
# objects, and that nginx and libcrypto have whatever these ask for.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use File::Basename qw(basename);
use File::Temp ();
use Test::More;
use Edgemeter::Nginx;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

my $ROOT = Edgemeter::Stack::root();
my $HEADERS = '/usr/share/nginx/src';

# What t/110-once-basic.t asks for beyond nginx's own choice, and without some
# that nobody here asks for; code that need not be fast is compiled sooner.
my @FLAGS = ('--with-cc-opt=-O0 -g0 -fPIC', '--add-module=here',
    (map {"--with-http_${_}_module"} qw(random_index stub_status sub)),
    (map {"--without-http_${_}_module"} qw(browser charset geo grpc memcached
        mirror referer split_clients userid)));

my $tmp = File::Temp->newdir('em-static-XXXXXX', TMPDIR => 1);
chmod 0755, "$tmp";

# nginx splits its paths at spaces, and its tree may be read-only: it is built in
# a directory of links, where all paths are plain.
my ($source, $why) = find_source();
for my $path (glob "$source/*") {
    symlink $path, "$tmp/" . basename($path) or die "symlink: $!\n";
}
symlink $ROOT, "$tmp/here" or die "symlink: $!\n";

sub find_source {
    return $ENV{NGINX_SOURCE} if $ENV{NGINX_SOURCE};
    my $place = "$ROOT/build/nginx-source";
    my ($status, $out, $err) = run("$ROOT/tools/nginx-source", $place);
    return $status == 0 ? $place : ($HEADERS, $err =~ s/\s+\z//r);
}

sub run {
    my (@command) = @_;
    return Edgemeter::Process::capture(command =>
        ['/bin/sh', '-c', 'umask 022; cd "$1" && shift && exec "$@"', 'sh',
        "$tmp", @command]);
}

# Did it work? Its last words are shown when it did not.
sub works {
    my ($name, @command) = @_;
    my ($status, $out, $err) = run(@command);
    return is($status, 0, $name)
        || diag join "\n", grep {defined} (split /\n/, "$out\n$err")[-30 .. -1];
}

sub slurp {
    my ($path) = @_;
    open my $in, '<', $path or die "$path: $!\n";
    local $/;
    return scalar <$in>;
}

# The C files of the module, by the object that each becomes.
sub objects {
    my @files = map { glob "$ROOT/$_/*.c" } qw(ngx_module shared);
    return sort map { s{^\Q$ROOT\E/(.*)\.c$}{objs/addon/$1.o}r } @files;
}

# Symbols of a library or program that have no version: its own, or those
# that no library at link time had.
sub symbols {
    my ($kind, $path) = @_;
    my ($status, $out, $err) = run('nm', '-D', $path);
    die "nm: $err" if $status != 0;
    return $out =~ /^\w* +$kind (\w+)$/mg;
}

# What comes next rests on what has just failed.
sub finish {
    done_testing;
    exit;
}

subtest 'configure' => sub {
    works('takes --add-module', './configure', @FLAGS) or return;

    my ($list) = slurp("$tmp/objs/ngx_modules.c")
        =~ /ngx_module_names\[\] = \{(.*?)\}/s;
    my @names = $list =~ /"(\w+)"/g;
    my %place = map { $names[$_] => $_ } 0 .. $#names;
    is $names[($place{ngx_http_meter_filter_module} // -1) + 1],
        'ngx_http_range_header_filter_module',
        'the filter module runs right behind the range header filter';
    is $names[($place{ngx_http_meter_module} // -1) + 1],
        'ngx_http_copy_filter_module', 'the module is beside the copy filter';
    is grep({/meter/} @names), 2, 'both are there once';

    my %made = map { $_ => 1 }
        slurp("$tmp/objs/Makefile") =~ m{^(objs/addon/\S+\.o):}mg;
    is_deeply [sort keys %made], [objects()], 'every C file is an object';
} or finish();

subtest 'objects' => sub {
    works('compile', 'make', '-j2', '-f', 'objs/Makefile', objects())
        or return;
    works('link', 'cc', '-shared', '-o', 'objs/probe.so', objects(),
        '-lcrypto') or return;
    my %there = map { $_ => 1 } symbols('[A-TX-Z]',
        Edgemeter::Nginx::find_bin());
    is_deeply [grep { !$there{$_} } symbols('U', 'objs/probe.so')], [],
        'nginx has what they ask for';
} or finish();

subtest 'a whole nginx' => sub {
    plan skip_all => $why if defined $why;
    works('is linked', 'make', '-j2', '-f', 'objs/Makefile', 'binary')
        or return;
    my $nginx = "$tmp/objs/nginx";
    works('the cases of t/110-once-basic.t hold', 'env', 'PROVE=perl',
        "TEST_NGINX_BINARY=$nginx", 'TEST_NGINX_LOAD_MODULES=',
        "$ROOT/tools/prove-nginx", 't/110-once-basic.t');

    local $ENV{NGINX} = $nginx;
    my $conf = slurp("$ROOT/examples/nginx.conf");
    $conf =~ s/^load_module.*\n//m or die "no load_module line\n";
    my $stack = Edgemeter::Stack->for_test(nginx_conf => \$conf)->start;
    my $http  = $stack->http;
    for (1 .. 3) {
        is $http->request('GET', '/hello', undef, 'x-api-key' => 'acme-demo')
            ->{status}, 200, 'a metered route answers';
    }
    my $counter = '/v1/counters/http_requests?route=/hello&status=200';
    wait_until {
        ($stack->http('acme')->get($counter)->{json}{value} // '') eq '3'
    } 20, 'three requests are counted';
    pass 'three requests are counted';
    is $stack->query('SELECT count(*) FROM meter.event'), 3, 'and kept, once';
    $stack->stop;
    unlike $stack->log('nginx-error'), qr/\[(?:alert|crit|emerg)\]/,
        'without an alert';
};

done_testing;
