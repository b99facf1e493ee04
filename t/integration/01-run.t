# `make run` as a person uses it: start, look, kill, Ctrl-C, start again.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use File::Temp ();
use POSIX ();
use Test::More;
use Edgemeter::Account;
use Edgemeter::Process;
use Edgemeter::Session;
use Edgemeter::Stack;
use Edgemeter::Supervisor;
use Edgemeter::Wait qw(now poll_until wait_until);

my $ROOT    = Edgemeter::Stack::root();
my $ACCOUNT = Edgemeter::Account->service;
my $tmp     = File::Temp->newdir('em-run-XXXXXX', TMPDIR => 1);
chmod 0755, "$tmp";

# The restart limit is the product's; a sanitizer build starts slower.
my $LIMIT = ($ENV{METERD} // '') =~ /asan/ ? 3 : 1;

sub event {
    my ($id) = @_;
    return {
        event_id   => $id,
        type       => 'api.request',
        ts         => '2026-01-01T00:00:00Z',
        attributes => { route => '/hello' }
    };
}

sub accepted { return $_[0]{status} == 200 && $_[0]{json}{accepted} == 1 }

sub slurp {
    my ($path) = @_;
    open my $file, '<', $path or return '';
    local $/;
    return <$file> // '';
}

# After kill -9: seconds until env names another, live process.
sub restart_seconds {
    my ($run, $name) = @_;
    my $old = $run->env->{$name};
    my $at  = now();
    kill 'KILL', $old;
    my $new = poll_until {
        my $pid = $run->env->{$name} || 0;
        $pid != $old && Edgemeter::Process::pid_alive($pid) && $pid;
    } 30;
    return $new ? now() - $at : 99;
}

# Reads a file as fast as it can until it is ended by `reader_end`, which
# gives back how often it was there, and how often it was missing or not
# whole.
sub reader_start {
    my ($path) = @_;
    pipe my $from, my $to or die $!;
    my $pid = fork // die $!;
    return { pid => $pid, from => $from } if $pid;
    my ($read, $bad, $is_over) = (0, 0, 0);
    local $SIG{TERM} = sub { $is_over = 1 };
    until ($is_over) {
        slurp($path) =~ /\A(?:\w+=.*\n){5}NGINX_PID=\d*\n\z/a
            ? $read++ : $bad++;
    }
    syswrite $to, "$read $bad";
    POSIX::_exit(0);
}

sub reader_end {
    my ($reader) = @_;
    kill 'TERM', $reader->{pid};
    waitpid $reader->{pid}, 0;
    sysread $reader->{from}, my $counts, 100;
    return split ' ', $counts // '';
}

sub all_gone {
    my ($env) = @_;
    return !grep { Edgemeter::Process::pid_alive($env->{$_}) }
        qw(POSTGRES_PID METERD_PID NGINX_PID);
}

subtest 'make run from start to Ctrl-C' => sub {
    my $port = Edgemeter::Stack::free_port();
    my $dir  = "$tmp/first";
    my $run  = Edgemeter::Session->start(
        command => ['make', 'run', "PORT=$port", "RUN_DIR=$dir"],
        PORT    => $port,
        RUN_DIR => $dir,
    )->wait_up(120);
    my $env = $run->env;

    is $run->http->get('/healthz')->{status}, 200, '/healthz';
    like $run->output, qr{http://127\.0\.0\.1:$port/v1/}, 'prints the URL';
    like $run->output, qr{curl .*\$\(cat $dir/tokens/acme\)}s, 'and a curl';
    like $run->output, qr{$dir/logs/meterd\.log}, 'and where the logs are';
    ok -s "$dir/logs/$_.log", "$_.log is written" for qw(postgres nginx-error);

    is $env->{PORT}, $port, 'env: PORT';
    is $env->{SOCKET}, "$dir/meterd.sock", 'env: SOCKET';
    ok -S $env->{SOCKET}, 'which is a socket';
    is sprintf('%o', (stat _)[2] & 07777), 660, 'with mode 0660';
    is qx{psql -XAtq '$env->{DATABASE_URL}' -c 'SELECT rolsuper FROM pg_roles WHERE rolname = current_user'},
        "t\n", 'env: DATABASE_URL is the superuser';
    for my $name (qw(POSTGRES_PID METERD_PID NGINX_PID)) {
        my $pid = $env->{$name};
        my (undef, undef, $session) = Edgemeter::Process::stat_of($pid);
        is $session, $pid, "$name leads a session of its own";
        is +(stat "/proc/$pid")[4], $ACCOUNT->uid, 'and is unprivileged';
    }

    # The service user may not enter the checkout; it then gets copies.
    my @given = map { $ACCOUNT->may(sub { -r $_ }) ? $_ : "$dir/lib/" . s{.*/}{}r }
        $ENV{METERD} || "$ROOT/build/meterd", "$ROOT/examples/meterd.yaml";
    is slurp("/proc/$env->{METERD_PID}/cmdline") =~ tr/\0/ /r,
        "$given[0] -c $given[1] -c $dir/meterd.yaml ",
        'meterd gets the rules, then its own file';
    unlike slurp("/proc/$env->{METERD_PID}/environ"), qr/DATABASE_URL|PGPASS/,
        'and no superuser URL';
    my $yaml = slurp("$dir/meterd.yaml");
    like $yaml, qr/^$_: /m, "meterd.yaml holds $_"
        for qw(database adminDatabase listen node stateDir outbox);
    unlike $yaml, qr/postgres\@/, 'and no superuser';

    for my $tenant (qw(acme globex)) {
        like $run->token($tenant), qr/^em_\w+_[\w-]+$/, "token of $tenant";
        is sprintf('%o', (stat "$dir/tokens/$tenant")[2] & 07777), 600,
            'for its owner only';
    }
    isnt $run->token('acme'), $run->token('globex'), 'one for each';
    ok accepted($run->http('acme')->post('/v1/events', event('run-1'))),
        'an event is accepted';

    $run->interrupt;
    $run->wait_end;
    like $run->output, qr/^stopped$/m, 'Ctrl-C stops it';
    ok all_gone($env), 'all three are gone';
    like slurp("$dir/logs/postgres.log"), qr/database system is shut down/,
        'PostgreSQL in good order';
};

subtest 'a second run finds its data, kill -9 is survived' => sub {
    my $port   = Edgemeter::Stack::free_port();
    my $dir    = "$tmp/first";
    my $before = slurp("$dir/tokens/acme");
    my $run    = Edgemeter::Session->start(PORT => $port, RUN_DIR => $dir)
        ->wait_up;

    is slurp("$dir/tokens/acme"), $before, 'the token is the same';
    is $run->http('acme')->post('/v1/events', event('run-1'))
        ->{json}{duplicates}, 1, 'the event is known';

    my $other = Edgemeter::Session->start(
        PORT    => Edgemeter::Stack::free_port(),
        RUN_DIR => $dir
    );
    is $other->wait_end, 1, 'another run on the same directory fails';
    like $other->output, qr/another run is using \Q$dir\E/, 'and says why';

    my $busy = Edgemeter::Session->start(
        PORT    => $port,
        RUN_DIR => "$tmp/busy"
    );
    is $busy->wait_end, 1, 'a run on the same port fails';
    like $busy->output, qr/port $port is in use/, 'and says why';
    ok !-e "$tmp/busy/data", 'before anything starts';

    my $reader = reader_start("$dir/env");
    open my $opened, '<', "$dir/env" or die $!;
    my $first = slurp("$dir/env");
    cmp_ok restart_seconds($run, 'METERD_PID'), '<', $LIMIT,
        'meterd is back within a second';
    ok +(poll_until { $run->healthy } 10), 'and healthy';
    restart_seconds($run, 'METERD_PID') for 1 .. 2;
    my ($read, $bad) = reader_end($reader);
    cmp_ok $read, '>', 100, 'env was read many times meanwhile';
    is $bad, 0, 'and was never missing or half written';
    is join('', <$opened>), $first, 'who has it open sees none of that';
    ok +(poll_until { $run->healthy } 10), 'healthy again';
    cmp_ok restart_seconds($run, 'NGINX_PID'), '<', $LIMIT,
        'nginx is back within a second';
    ok +(poll_until { $run->healthy } 5), 'and healthy';
    cmp_ok restart_seconds($run, 'POSTGRES_PID'), '<', 20,
        'PostgreSQL is back';
    ok +(poll_until {
        $run->http('acme')->post('/v1/events', event('run-2'))->{status} == 200
    } 30), 'and events are taken again';
    is $run->http('acme')->post('/v1/events', event('run-1'))
        ->{json}{duplicates}, 1, 'nothing was lost';

    my $env = $run->env;
    $run->interrupt;
    is $run->wait_end, 0, 'a stop in good order is a success';
    ok all_gone($env), 'all three are gone';
};

subtest 'two side by side, one of them on the other\'s database' => sub {
    my ($a, $b) = map {
        Edgemeter::Session->start(
            PORT    => Edgemeter::Stack::free_port(),
            RUN_DIR => "$tmp/side-$_"
            )
    } 1 .. 2;
    $_->wait_up for $a, $b;
    ok accepted($_->http('acme')->post('/v1/events', event('side'))),
        'each has a registry of its own'
        for $a, $b;
    isnt $a->token('acme'), $b->token('acme'), 'and tokens of its own';

    my $c = Edgemeter::Session->start(
        PORT         => Edgemeter::Stack::free_port(),
        RUN_DIR      => "$tmp/side-3",
        DATABASE_URL => $a->env->{DATABASE_URL},
    )->wait_up;
    is $c->env->{POSTGRES_PID}, '', 'DATABASE_URL: no cluster of its own';
    ok !-e "$tmp/side-3/data", 'at all';
    is $c->http('acme')->post('/v1/events', event('side'))->{json}{duplicates},
        1, 'it sees the other\'s events';
    unlike slurp('/proc/' . $c->env->{METERD_PID} . '/environ'),
        qr/DATABASE_URL/, 'meterd does not see DATABASE_URL';

    for my $run ($c, $b, $a) {
        $run->interrupt;
        is $run->wait_end, 0, 'stops';
    }
};

subtest 'a server that wants passwords' => sub {
    my $dir = "$tmp/scram";
    mkdir $dir;
    mkdir "$dir/s";
    $ACCOUNT->own($dir, "$dir/s");
    my $cluster = Edgemeter::Cluster->new(
        data          => "$dir/data",
        sockets       => "$dir/s",
        log           => "$dir/log",
        account       => $ACCOUNT,
        unsafe_initdb => 1,
    )->start;
    $cluster->query(q{ALTER ROLE postgres PASSWORD 'a b/c'; CREATE DATABASE usage},
        database => 'postgres');
    $cluster->stop('fast');
    $cluster->{hba} = "local all all scram-sha-256\n";
    $cluster->start;

    my $url = $cluster->url('postgres:a%20b%2Fc', 'usage');
    my $run = Edgemeter::Session->start(
        PORT         => Edgemeter::Stack::free_port(),
        RUN_DIR      => "$tmp/scram-run",
        DATABASE_URL => $url,
    )->wait_up;
    ok accepted($run->http('acme')->post('/v1/events', event('scram'))),
        'roles with passwords work';
    my $yaml = slurp("$tmp/scram-run/meterd.yaml");
    like $yaml, qr{^database: 'postgresql://meterd:[0-9a-f]{64}\@}m,
        'the roles have passwords of their own';
    unlike $yaml, qr/a%20b/, 'not the superuser\'s';
    is +(stat "$tmp/scram-run/meterd.yaml")[2] & 0007, 0,
        'which others cannot read';
    $run->interrupt;
    is $run->wait_end, 0, 'stops';
    $cluster->stop('fast');
};

subtest 'a path too long for a socket' => sub {
    my $dir = "$tmp/" . join '/', ('a-rather-long-name') x 6;
    my $run = Edgemeter::Session->start(
        PORT    => Edgemeter::Stack::free_port(),
        RUN_DIR => $dir
    )->wait_up;
    ok -l "$dir/$_", "$_ is a link" for qw(meterd.sock outbox data logs);
    ok -S $run->env->{SOCKET}, 'the socket is there';
    ok accepted($run->http('acme')->post('/v1/events', event('long'))),
        'and works';
    my $state = readlink "$dir/state";
    $run->interrupt;
    is $run->wait_end, 0, 'stops';
    File::Path::remove_tree($state);
};

subtest 'a path with spaces' => sub {
    my $dir = "$tmp/my runs";
    my $run = Edgemeter::Session->start(
        PORT    => Edgemeter::Stack::free_port(),
        RUN_DIR => $dir
    )->wait_up;
    my $state = readlink "$dir/state";
    is $run->env->{SOCKET}, "$state/meterd.sock",
        'nginx and shells get a path without';
    ok -S "$dir/meterd.sock", 'a link is where it was asked for';
    ok accepted($run->http('acme')->post('/v1/events', event('space'))),
        'an event is accepted';
    $run->interrupt;
    is $run->wait_end, 0, 'stops';
    File::Path::remove_tree($state);
};

subtest 'env is for shells too' => sub {
    my $url = q{postgresql://u:it's@/d?host=/tmp/x&port=5433};
    is Edgemeter::Supervisor::shell_word($_), $_, "as it is: $_"
        for '', '8080', '/tmp/run/meterd.sock', 'postgresql://u@%2Ftmp/d';
    my $word = Edgemeter::Supervisor::shell_word($url);
    Edgemeter::Place::replace_file("$tmp/env", 0600, undef, "A=$word\nB=\n");
    is qx(. $tmp/env; printf %s "\$A"), $url, 'an ampersand is quoted';
    is_deeply Edgemeter::Stack::read_env("$tmp/env"), { A => $url, B => '' },
        'and is read back';
};

subtest 'a checkout that other users cannot enter' => sub {
    plan skip_all => 'everything runs as one user' unless $ACCOUNT->differs;
    my $home = "$tmp/private";
    mkdir $home, 0700;
    mkdir "$home/checkout";
    mkdir "$home/checkout/build";
    my $meterd = $ENV{METERD} || "$ROOT/build/meterd";
    system 'cp', '-r', "$ROOT/tools", "$ROOT/examples", "$ROOT/sql",
        "$home/checkout";
    system 'cp', $meterd, "$ROOT/build/ngx_http_meter_module.so",
        "$home/checkout/build";

    my @start = (
        command   => ['tools/run'],
        directory => "$home/checkout",
        METERD    => "$home/checkout/build/meterd",
        PORT      => Edgemeter::Stack::free_port(),
    );
    my $run = Edgemeter::Session->start(@start)->wait_up;
    ok -l "$home/checkout/.run/data", 'state lives elsewhere';
    my $state = readlink "$home/checkout/.run/state";
    is +(stat $state)[2] & 0077, 0, 'in a private directory';
    is +(stat $state)[4], $ACCOUNT->uid, 'of the service user';
    ok -S $run->env->{SOCKET}, 'the socket is there';
    ok accepted($run->http('acme')->post('/v1/events', event('private'))),
        'an event is accepted';
    $run->interrupt;
    is $run->wait_end, 0, 'stops';

    $run = Edgemeter::Session->start(@start)->wait_up;
    is readlink "$home/checkout/.run/state", $state, 'the same place';
    is $run->http('acme')->post('/v1/events', event('private'))
        ->{json}{duplicates}, 1, 'a second run finds its data';

    my $rules = "$home/checkout/examples/meterd.yaml";
    my $text  = slurp($rules) =~ s/^events:$/events:\n  - { type: new.type }/mr;
    Edgemeter::Place::replace_file($rules, 0600, undef, $text);
    wait_until { slurp("$state/lib/meterd.yaml") eq $text } 5,
        'the copy of the rules follows';
    kill 'HUP', $run->env->{METERD_PID};
    my %new = (%{ event('new') }, type => 'new.type');
    ok +(poll_until {
        accepted($run->http('acme')->post('/v1/events', \%new))
    } 5), 'edited rules take effect on SIGHUP';
    $run->interrupt;
    is $run->wait_end, 0, 'stops';

    File::Path::remove_tree("$home/checkout/.run");
    $run = Edgemeter::Session->start(@start)->wait_up;
    ok accepted($run->http('acme')->post('/v1/events', event('private'))),
        'removing the run directory starts afresh';
    $run->interrupt;
    is $run->wait_end, 0, 'stops';
    File::Path::remove_tree($state, "$state.old");
};

subtest 'a run that was killed itself' => sub {
    my $dir   = "$tmp/killed";
    my @start = (PORT => Edgemeter::Stack::free_port(), RUN_DIR => $dir);
    my $run   = Edgemeter::Session->start(@start)->wait_up;
    my $env   = $run->env;
    kill 'KILL', $run->pid;
    $run->wait_end;
    ok !all_gone($env), 'leaves its children';
    $run = Edgemeter::Session->start(@start)->wait_up;
    ok all_gone($env), 'the next run stops them';
    isnt $run->env->{METERD_PID}, $env->{METERD_PID}, 'and starts its own';

    $env = $run->env;
    kill 'KILL', $run->pid, @$env{qw(NGINX_PID METERD_PID POSTGRES_PID)};
    $run->wait_end;
    wait_until { all_gone($env) } 10, 'all are dead';
    my @workers = Edgemeter::Process::session_members($env->{NGINX_PID});
    ok @workers > 0, 'workers outlive their master and keep the port';
    $run = Edgemeter::Session->start(@start)->wait_up;
    is +(grep { Edgemeter::Process::pid_alive($_) } @workers), 0,
        'the next run ends them';
    $run->interrupt;
    is $run->wait_end, 0, 'stops';
};

subtest 'errors are told with their cause' => sub {
    my $rules = "$tmp/bad.yaml";
    open my $file, '>', $rules or die;
    print {$file} "events: [ { typ: x } ]\n";
    close $file;
    my $run = Edgemeter::Session->start(
        PORT    => Edgemeter::Stack::free_port(),
        RUN_DIR => "$tmp/bad",
        RULES   => $rules
    );
    is $run->wait_end, 1, 'bad rules: fails';
    like $run->output, qr/bad\.yaml:1:\d+/, 'and shows the place';
    ok !Edgemeter::Process::pid_alive($run->env->{POSTGRES_PID} || 0),
        'nothing stays behind';

    my $conf = "$tmp/bad.conf";
    open $file, '>', $conf or die;
    print {$file} "daemon off; pid \@RUN_DIR\@/nginx.pid; nonsense;\n";
    close $file;
    $run = Edgemeter::Session->start(
        PORT       => Edgemeter::Stack::free_port(),
        RUN_DIR    => "$tmp/bad-conf",
        NGINX_CONF => $conf
    );
    is $run->wait_end, 1, 'bad nginx configuration: fails';
    like $run->output, qr/unknown directive "nonsense"/, 'and shows the log';

    $run = Edgemeter::Session->start(PORT => 'x', RUN_DIR => "$tmp/bad-port");
    is $run->wait_end, 1, 'no port number: fails';
};

subtest 'NGINX_CONF with a daemon of its own' => sub {
    my $conf = "$tmp/daemon.conf";
    my $text = slurp("$ROOT/examples/nginx.conf");
    $text =~ s/daemon off;/daemon on;/;
    open my $file, '>', $conf or die;
    print {$file} $text;
    close $file;
    my $run = Edgemeter::Session->start(
        PORT       => Edgemeter::Stack::free_port(),
        RUN_DIR    => "$tmp/daemon",
        NGINX_CONF => $conf
    )->wait_up;
    is $run->env->{NGINX_PID}, slurp("$tmp/daemon/nginx.pid") + 0,
        'the master is known';
    cmp_ok restart_seconds($run, 'NGINX_PID'), '<', $LIMIT + 1,
        'and started again';
    ok +(poll_until { $run->healthy } 5), 'and healthy';
    my $env = $run->env;
    $run->interrupt;
    is $run->wait_end, 0, 'stops';
    ok all_gone($env), 'all three are gone';
};

done_testing;
