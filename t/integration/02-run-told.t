#!/usr/bin/perl

# 02-run-told.t - `make run` with files and a database of one's own: what it
# says fits them, what it writes is private, what is missing has a sentence,
# and a process that does not stay up is waited for longer each time.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use File::Find ();
use File::Temp ();
use Test::More;
use Edgemeter::Account;
use Edgemeter::Cluster;
use Edgemeter::Database;
use Edgemeter::Place;
use Edgemeter::Session;
use Edgemeter::Stack;
use Edgemeter::Supervisor;
use Edgemeter::Wait qw(poll_until);

my $ROOT    = Edgemeter::Stack::root();
my $ACCOUNT = Edgemeter::Account->service;
my $tmp     = File::Temp::tempdir('em-XXXXXX', TMPDIR => 1, CLEANUP => 1);
chmod 0755, $tmp;

sub spew {
    my ($name, $mode, $text) = @_;
    Edgemeter::Place::replace_file("$tmp/$name", $mode, undef, $text);
    return "$tmp/$name";
}

sub mode { return sprintf '%o', (stat $_[0])[2] & 07777 }

# --- a server of one's own ----------------------------------------------

mkdir "$tmp/$_" for qw(server server/s);
$ACCOUNT->own("$tmp/server", "$tmp/server/s");
my $cluster = Edgemeter::Cluster->new(
    data          => "$tmp/server/data",
    sockets       => "$tmp/server/s",
    log           => "$tmp/server/log",
    account       => $ACCOUNT,
    unsafe_initdb => 1,
)->start;
$cluster->query(q{
    ALTER ROLE postgres PASSWORD 'a b/c';
    CREATE ROLE plain LOGIN PASSWORD 'p';
    CREATE ROLE maker LOGIN CREATEROLE PASSWORD 'p';
}, database => 'postgres');
$cluster->stop('fast');
$cluster->{hba} = "local all all scram-sha-256\n";
$cluster->start;

# What is said of a URL; undef: the database could be prepared.
sub told {
    my ($url) = @_;
    my $database = Edgemeter::Database->new(
        url       => $url,
        bootstrap => "$ROOT/sql/bootstrap.sql",
        account   => $ACCOUNT,
        secrets   => "$tmp/secret",
    );
    return eval { $database->bootstrap; 1 } ? undef : $@;
}

subtest 'DATABASE_URL: what is missing is said in one sentence' => sub {
    mkdir "$tmp/nowhere";
    my $nobody = $cluster->url('plain:p', 'usage') =~ s{server%2Fs}{nowhere}r;
    my @case = (
        ['no server', $nobody, qr/^no PostgreSQL server answers at \S+: \S/],
        ['a wrong password', $cluster->url('plain:q', 'usage'),
            qr/^the server does not let "plain" in: .*password authentication/],
        ['no such role', $cluster->url('absent:p', 'usage'),
            qr/^the server does not let "absent" in: .*"absent"/],
        ['no right to make roles', $cluster->url('plain:p', 'usage'),
            qr/^the role "plain" may not make roles: .*CREATEROLE/],
        ['no right to make the database', $cluster->url('maker:p', 'usage'),
            qr/^there is no database "usage", and the role "maker" may not make it: .*CREATEDB/],
    );
    for my $case (@case) {
        my ($name, $url, $sentence) = @$case;
        my $told = told($url);
        like $told, qr/^DATABASE_URL: [^\n]+\n\z/, "$name: one line";
        like $told =~ s/^DATABASE_URL: //r, $sentence, 'which says what';
    }
    is $cluster->query(q{SELECT count(*) FROM pg_roles WHERE rolname LIKE 'meter%'},
        database => 'postgres', role => 'postgres:a%20b%2Fc'), 0,
        'nothing was made';

    my $run = Edgemeter::Session->start(
        PORT         => Edgemeter::Stack::free_port(),
        RUN_DIR      => "$tmp/refused",
        DATABASE_URL => $cluster->url('plain:p', 'usage'),
    );
    is $run->wait_end, 1, 'make run ends with 1';
    like $run->output,
        qr/^make run: [^\n]*DATABASE_URL: the role "plain" may not [^\n]*\n\z/m,
        'and that sentence';
};

# --- a run with everything of one's own ---------------------------------

# A meterd that can be told not to stay up.
system 'cp', $ENV{METERD} || "$ROOT/build/meterd", "$tmp/meterd";
my $wrapper = spew('wrapper', 0755, <<"SH");
#!/bin/sh
if [ -e $tmp/broken ]; then
    echo 'there is no room left' >&2
    exit 3
fi
exec $tmp/meterd "\$@"
SH
my $rules = spew('own.yaml', 0600, "events: [ { type: order.made } ]\n");
my $conf  = spew('own.conf', 0600, <<'CONF');
load_module @MODULE@;
daemon off;
pid @RUN_DIR@/nginx.pid;
error_log @RUN_DIR@/logs/nginx-error.log notice;
events { }
http {
    access_log off;
    client_body_temp_path @RUN_DIR@/tmp/body;
    proxy_temp_path @RUN_DIR@/tmp/proxy;
    fastcgi_temp_path @RUN_DIR@/tmp/fastcgi;
    uwsgi_temp_path @RUN_DIR@/tmp/uwsgi;
    scgi_temp_path @RUN_DIR@/tmp/scgi;
    meter_aggregator unix:@RUN_DIR@/meterd.sock;
    server {
        listen 127.0.0.1:@PORT@;
        location = /usage/events { meter_api events; }
        location = /ready { meter_api; }
    }
}
CONF
my $dir = "$tmp/run";
my $run = Edgemeter::Session->start(
    PORT         => Edgemeter::Stack::free_port(),
    RUN_DIR      => $dir,
    METERD       => $wrapper,
    RULES        => $rules,
    NGINX_CONF   => $conf,
    DATABASE_URL => $cluster->url('postgres:a%20b%2Fc', 'usage'),
)->wait_up;
my $url = 'http://127.0.0.1:' . $run->port;

ok 1, 'DATABASE_URL: a database that is missing is made';

subtest 'the banner fits the configuration' => sub {
    my $banner = $run->output;
    like $banner, qr{^\s+nginx +\Q$url\E/ +\Q$conf\E$}m,
        'where nginx is, and whose configuration it has';
    like $banner, qr{^\s+rules +\Q$rules\E$}m, 'the rules';
    like $banner, qr{\Q$dir/tokens/acme\E}, 'the tokens';
    like $banner, qr{\Q$dir/logs/$_.log\E}, "the log $_"
        for qw(meterd nginx-error);
    unlike $banner, qr{curl|\Q$url\E/\w}, 'no path that may not be there';
    unlike $banner, qr{postgres\.log|nginx-access}, 'no log that may not be';
};

subtest 'what may hold a secret is for its owner alone' => sub {
    my $owner = sub { (stat $_[0])[4] };
    my $state = readlink("$dir/state") // $dir;
    for my $name (qw(meterd.yaml nginx.conf)) {
        is mode("$state/$name"), 600, "$name: 0600";
        is $owner->("$state/$name"), $ACCOUNT->uid, 'of who reads it';
    }
    for my $name (qw(env tokens/acme tokens/globex)) {
        is mode("$dir/$name"), 600, "$name: 0600";
        is $owner->("$dir/$name"), $>, 'of who has started it';
    }
    my (@open, @secret);
    push @secret, $run->token($_) for qw(acme globex);
    push @secret, 'a%20b%2Fc', 'a b/c',
        slurp("$state/meterd.yaml") =~ m{//\w+:([0-9a-f]{64})\@}g;
    File::Find::find({ no_chdir => 1, wanted => sub {
        return unless -f $_ && (stat _)[2] & 0077;
        my $text = slurp($_);
        push @open, $_ if grep { index($text, $_) >= 0 } @secret;
    } }, $dir, $state);
    is_deeply \@open, [], 'and no file that others can read has one';
    is mode("$state/lib/own.yaml"), 600, 'a copy of private rules is private'
        if $ACCOUNT->differs;
};

subtest 'a process that does not stay up' => sub {
    is_deeply [map { Edgemeter::Supervisor::wait_after($_) } 1 .. 9],
        [0, 0, 1, 2, 4, 8, 16, 30, 30], 'is waited for longer each time';
    for my $time (1 .. 3) {
        my $pid = $run->env->{METERD_PID};
        kill 'KILL', $pid;
        ok +(poll_until { ($run->env->{METERD_PID} || $pid) != $pid } 20),
            "kill -9, $time in a row: it runs again";
    }
    unlike $run->output, qr/in a row|again in/, 'and was never waited for';
    spew('broken', 0644, '');
    kill 'KILL', $run->env->{METERD_PID};
    ok +(poll_until { $run->output =~ /4 times in a row/ } 20),
        'it dies four times';
    my $output = $run->output;
    like $output, qr/^meterd \(pid \d+\) was killed by signal 9; starting it again$/m,
        'the first time it is started again at once';
    like $output, qr/^meterd \(pid \d+\) ended with status 3, 3 times in a row; starting it again in 1 s$/m,
        'later it says how often, and when';
    like $output, qr{^  \Q$dir\E/logs/meterd\.log ends: there is no room left$}m,
        'and why';
    unlink "$tmp/broken";
    ok +(poll_until { ($run->env->{METERD_PID} || 0)
            && $run->http->get('/ready')->{status} != 502 } 20),
        'and is back when it can be';
    like $run->output, qr/^meterd runs again, pid \d+$/m, 'which is said';
};

$run->interrupt;
is $run->wait_end, 0, 'stops';
$cluster->stop('fast');
done_testing;

sub slurp {
    my ($path) = @_;
    open my $file, '<:raw', $path or return '';
    local $/;
    return <$file> // '';
}
