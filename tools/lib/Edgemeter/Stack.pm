package Edgemeter::Stack;

# Stack.pm - postgres, meterd and nginx together, for `make run` and for the
# integration and torture tests.
#
#   use lib 'tools/lib';
#   use Edgemeter::Stack;
#
#   my $stack = Edgemeter::Stack->for_test;           # own temp dir, free port
#   $stack->start;                                    # all up, /healthz is 200
#
#   my $http = $stack->http('acme');                  # Http.pm, acme's token
#   my $got  = $http->post('/v1/events', { event_id => 'e1', ... });
#   is $stack->query('SELECT count(*) FROM meter.event'), 1;   # superuser
#
#   $stack->kill_part('meterd');                      # kill -9, gone on return
#   $stack->start_part('meterd');
#   $stack->wait_healthy;
#   $stack->cluster->stop('immediate'); $stack->start_part('postgres');
#
#   $stack->stop;        # in order; also done when $stack goes out of scope
#
# for_test takes what new takes:
#
#   rules       => $file or \$yaml      instead of examples/meterd.yaml
#   nginx_conf  => $file or \$template  instead of examples/nginx.conf
#   settings    => { name => value }    of PostgreSQL
#   yaml        => { limits => '{ queueEvents: 10 }' }   more or other lines
#                                       of meterd.yaml, values as YAML text
#   tenants     => [qw(acme globex)]    who gets a token
#   database_url=> $url                 no cluster of its own
#   env         => { NAME => value }    for meterd; nginx_env for nginx
#   meterd, module                      other builds; also by the environment
#                                       variables METERD and MODULE
#
# The test process is the parent: nothing is started again unless the test
# says so. `make run` adds that (Supervisor.pm). Logs: $stack->log('meterd').
# A sanitizer's report in meterd's log makes the test script fail at its end.
# KEEP_RUN_DIR=1 leaves the directory for a look.

use strict;
use warnings;
use Cwd ();
use File::Basename qw(dirname);
use File::Path qw(remove_tree);
use File::Temp ();
use IO::Socket::INET;
use IO::Socket::UNIX;
use Scalar::Util qw(weaken);
use Edgemeter::Account;
use Edgemeter::Cluster;
use Edgemeter::Database;
use Edgemeter::Http;
use Edgemeter::Nginx;
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::Settings;
use Edgemeter::Wait qw(wait_until poll_until);

our @PARTS = qw(postgres meterd nginx);

use constant HEALTHY_SECONDS => 30;
use constant DRAIN_SECONDS   => 60;

my $SANITIZER = qr/ERROR: \w+Sanitizer|runtime error:/;

# Stacks that were not given up yet, and what sanitizers said in others.
my (%LIVE, @REPORTS);

my $ROOT = Cwd::realpath(dirname(__FILE__) . '/../../..');

# The text of a statement of meterd.
sub statement {
    my ($name) = @_;
    my ($path) = glob "$ROOT/sql/statements/*/$name.sql"
        or die "there is no statement $name\n";
    open my $file, '<', $path or die "$path: $!\n";
    local $/;
    return <$file>;
}

sub root { return $ROOT }

sub new {
    my ($class, %arg) = @_;
    my $self = bless {
        tenants => [qw(acme globex)],
        say     => sub { },
        meterd  => $ENV{METERD} || "$ROOT/build/meterd",
        module  => $ENV{MODULE} || "$ROOT/build/ngx_http_meter_module.so",
        %arg,
        parent => $$,
    }, $class;
    $self->{rules}      ||= "$ROOT/examples/meterd.yaml";
    $self->{nginx_conf} ||= "$ROOT/examples/nginx.conf";
    weaken($LIVE{$self} = $self);
    return $self;
}

sub for_test {
    my ($class, %arg) = @_;
    my $directory = File::Temp::tempdir('em-XXXXXX', TMPDIR => 1);
    chmod 0755, $directory;
    for my $name (qw(rules nginx_conf)) {
        next unless ref $arg{$name};
        my $path = "$directory/$name";
        Edgemeter::Place::replace_file($path, 0644, undef, ${ $arg{$name} });
        $arg{$name} = $path;
    }
    return $class->new(
        run_dir       => "$directory/run",
        port          => free_port(),
        scratch       => $directory,
        unsafe_initdb => 1,
        %arg,
        env           => test_env($arg{env}),
    );
}

# For a meterd of a test. The daily retention would begin minutes after its
# start, in the middle of a test on a slow machine.
sub test_env {
    my ($env) = @_;
    return { METERD_TEST_RETENTION_MS => 3_600_000, %{ $env // {} } };
}

# A port nobody listens on, from below the range the kernel hands out to
# connections, so that none of those takes it before nginx does.
sub free_port {
    for (1 .. 1000) {
        my $port = 10_000 + int rand 20_000;
        return $port if Edgemeter::Nginx::port_free($port);
    }
    die "no free port\n";
}

# --- what tests ask -----------------------------------------------------

sub port    { return $_[0]{port} }
sub place   { return $_[0]{place} }
sub cluster { return $_[0]{cluster} }
sub account { return $_[0]{account} }
sub run_dir { return $_[0]{place} ? $_[0]{place}->run_dir : $_[0]{run_dir} }
sub socket  { return $_[0]{place}->path('meterd.sock') }

# The superuser's URL.
sub database_url { return $_[0]{superuser_url} }

# SQL as superuser; see Cluster::query.
sub query {
    my ($self, $sql) = @_;
    my ($ok, $out, $err) = Edgemeter::Cluster::run_psql(
        url     => $self->{superuser_url},
        account => $self->{cluster} ? $self->{account} : undef,
        sql     => $sql
    );
    die "psql: $err" unless $ok;
    return split /\n/, $out if wantarray;
    chomp $out;
    return $out;
}

sub token {
    my ($self, $tenant) = @_;
    my $path = $self->run_dir . "/tokens/$tenant";
    open my $file, '<', $path or die "$path: $!\n";
    chomp(my $token = <$file>);
    return $token;
}

# A client of this stack; without a tenant it sends no token.
sub http {
    my ($self, $tenant, %arg) = @_;
    return Edgemeter::Http->new(
        port  => $self->{port},
        token => defined $tenant ? $self->token($tenant) : undef,
        %arg
    );
}

# For tests that measure memory or time: a sanitizer's build has figures of
# its own.
sub plain_meterd { return "$ROOT/build/meterd" }

sub log_path { return $_[0]{place}->path('logs', "$_[1].log") }

# The text of a log: postgres, meterd, nginx-error, nginx-access.
sub log {
    my ($self, $name) = @_;
    open my $file, '<', $self->log_path($name) or return '';
    local $/;
    return <$file> // '';
}

# The last lines of a log, for messages.
sub log_tail {
    my ($self, $name, $lines) = @_;
    my @all = split /^/, $self->log($name);
    splice @all, 0, @all - $lines if @all > $lines;
    return join '', map {"    $_"} @all;
}

sub part_pid {
    my ($self, $name) = @_;
    my $part = $self->part($name) or return;
    return $part->pid;
}

# The object behind a part: Cluster, Process or Nginx; all know alive, pid.
sub part {
    my ($self, $name) = @_;
    return $self->{cluster} if $name eq 'postgres';
    return $self->{ $name eq 'nginx' ? 'nginx' : 'daemon' };
}

sub alive {
    my ($self, $name) = @_;
    my $part = $self->part($name);
    return $part && $part->alive ? 1 : 0;
}

# --- starting -----------------------------------------------------------

# Everything, in order; dies with a message and the end of the log that
# explains it, leaving nothing running.
sub start {
    my ($self) = @_;
    $self->prepare;
    eval {
        $self->step($self->{database_url} ? undef : 'postgres', 'PostgreSQL',
            sub { $self->start_database });
        $self->step('meterd', 'the migration', sub { $self->migrate });
        $self->step('meterd', 'the tokens', sub { $self->make_tokens });
        $self->step('meterd', 'meterd', sub {
            $self->start_part('meterd');
            $self->wait_meterd;
        });
        $self->step('nginx-error', 'nginx', sub {
            $self->start_part('nginx');
            $self->wait_healthy;
        });
        1;
    } or do {
        my $why = $@;
        $self->stop;
        die $why;
    };
    return $self;
}

# Only the database with the current schema: for tests of SQL.
sub start_schema {
    my ($self) = @_;
    $self->prepare;
    $self->step('postgres', 'PostgreSQL', sub { $self->start_database });
    $self->step('meterd', 'the migration', sub { $self->migrate });
    return $self;
}

sub step {
    my ($self, $log, $what, $action) = @_;
    die "interrupted\n" if $self->{interrupted} && $self->{interrupted}->();
    return if eval { $action->(); 1 };
    chomp(my $why = $@);
    my $tail = defined $log ? $self->log_tail($log, 15) : '';
    die "$what failed: $why\n"
        . (length $tail ? "The end of " . $self->log_path($log) . ":\n$tail" : '');
}

# Files and checks; starts nothing.
sub prepare {
    my ($self) = @_;
    return if $self->{place};
    $self->{account} = Edgemeter::Account->service;
    my $place = $self->{place}
        = Edgemeter::Place->new($self->{run_dir}, $self->{account});
    $self->stop_leftovers;
    die "port $self->{port} is in use on 127.0.0.1 (choose another PORT)\n"
        unless Edgemeter::Nginx::port_free($self->{port});

    $self->{program} = $place->readable($self->{meterd}, 0755);
    $self->{written} = Edgemeter::Settings->new(
        place      => $place,
        account    => $self->{account},
        port       => $self->{port},
        rules      => $self->{rules},
        nginx_conf => $self->{nginx_conf},
    );
    $self->{written}->write_nginx_conf(
        $place->readable($self->{module}, 0644));
    $self->refresh_rules;
    $self->{nginx} = Edgemeter::Nginx->new(
        conf    => $place->path('nginx.conf'),
        prefix  => $place->state,
        log     => $self->log_path('nginx-error'),
        port    => $self->{port},
        account => $self->{account},
        env     => $self->{nginx_env},
    );
    return;
}

# What a killed supervisor left running, named by its env file, and workers
# of an nginx master that was killed too: they keep the port.
sub stop_leftovers {
    my ($self) = @_;
    my $state = $self->{place}->state;
    my $env   = read_env($self->{place}->run_dir . '/env');
    my %signal = (NGINX_PID => 'QUIT', METERD_PID => 'TERM',
        POSTGRES_PID => 'INT');
    for my $name (qw(NGINX_PID METERD_PID POSTGRES_PID)) {
        my $pid = $env->{$name} or next;
        next
            unless index(Edgemeter::Process::command_line($pid), $state) >= 0;
        $self->{say}->("stopping process $pid of an earlier run");
        Edgemeter::Process->adopt($name, $pid)->stop($signal{$name}, 60);
    }
    Edgemeter::Nginx::end_workers(
        sub { Edgemeter::Process::writing_to($self->log_path('nginx-error')) });
    return;
}

# NAME=value lines, as a shell reads them.
sub read_env {
    my ($path) = @_;
    open my $file, '<', $path or return {};
    my %value;
    while (<$file>) {
        my ($name, $text) = /^(\w+)=(.*)$/ or next;
        $text =~ s/'\\''/'/g if $text =~ s/^'(.*)'$/$1/;
        $value{$name} = $text;
    }
    return \%value;
}

sub start_database {
    my ($self) = @_;
    my $place = $self->{place};
    my %common = (
        bootstrap => "$ROOT/sql/bootstrap.sql",
        account   => $self->{account},
        secrets   => $place->run_dir . '/secret',
    );
    my $database;
    if ($self->{database_url}) {
        $self->{superuser_url} = $self->{database_url};
        $database = Edgemeter::Database->new(
            %common, url => $self->{database_url});
    }
    else {
        my $cluster = $self->make_cluster;
        $self->start_part('postgres');
        $self->{superuser_url} = $cluster->url('postgres', 'edgemeter');
        $database = Edgemeter::Database->new(
            %common,
            url     => $self->{superuser_url},
            connect => $cluster->url('postgres', 'postgres'),
            admin   => $self->{account},
            bin     => $cluster->{bin},
        );
    }
    $database->bootstrap;
    $self->{written}->write_meterd_yaml(
        $database->role_url('meterd'),
        $database->role_url('meter_owner'),
        $self->{yaml});
    return;
}

sub make_cluster {
    my ($self) = @_;
    my $place = $self->{place};
    return $self->{cluster} //= Edgemeter::Cluster->new(
        data          => $place->path('data'),
        sockets       => $place->path('postgres'),
        log           => $self->log_path('postgres'),
        account       => $self->{account},
        settings      => $self->{settings},
        unsafe_initdb => $self->{unsafe_initdb},
    );
}

# The supervisor calls it again and again; see Settings.pm.
sub refresh_rules {
    my ($self) = @_;
    return $self->{written}->refresh_rules;
}

sub config_arguments {
    my ($self) = @_;
    return $self->{written}->arguments;
}

# Runs a subcommand of meterd; gives (status, output, errors).
sub meterd_command {
    my ($self, @words) = @_;
    return Edgemeter::Process::capture(
        command => [$self->{program}, @words],
        user    => $self->{account},
        env     => $self->{env},
    );
}

sub migrate {
    my ($self) = @_;
    my ($status, $out, $err)
        = $self->meterd_command('migrate', $self->config_arguments);
    die "meterd migrate ended with status " . ($status >> 8) . "\n$err$out"
        if $status != 0;
    return;
}

# One token per tenant, kept when the database still knows it.
sub make_tokens {
    my ($self) = @_;
    my $directory = $self->{place}->run_dir . '/tokens';
    my ($status, $known, $err)
        = $self->meterd_command('token', 'list', $self->config_arguments);
    die "meterd token list failed\n$err" if $status != 0;

    for my $tenant (@{ $self->{tenants} }) {
        if (-s "$directory/$tenant") {
            my ($id) = $self->token($tenant) =~ /^em_([^_]+)_/;
            next if defined $id && $known =~ /\b\Q$id\E\b/;
        }
        my ($failed, $out, $why) = $self->meterd_command(
            'token', 'create', $self->config_arguments,
            '--tenant', $tenant, '--scopes', 'ingest,read,write'
        );
        my ($token) = $out =~ /\b(em_[A-Za-z0-9]+_[A-Za-z0-9_-]+)/;
        die "meterd token create failed for $tenant\n$why"
            if $failed || !defined $token;
        Edgemeter::Place::replace_file("$directory/$tenant", 0600, undef,
            "$token\n");
    }
    return;
}

# Starts one part that is not running.
sub start_part {
    my ($self, $name) = @_;
    return if $self->alive($name);
    if ($name eq 'postgres') {
        $self->make_cluster->start;
    }
    elsif ($name eq 'meterd') {
        $self->{daemon} = Edgemeter::Process->spawn(
            name    => 'meterd',
            log     => $self->log_path('meterd'),
            user    => $self->{account},
            env     => $self->{env},
            command => [$self->{program}, $self->config_arguments],
        );
    }
    else {
        $self->{nginx}->clear_orphans;
        $self->{nginx}->start;
    }
    return;
}

sub wait_meterd {
    my ($self) = @_;
    wait_until {
        die 'meterd ' . $self->{daemon}->fate . "\n"
            unless $self->{daemon}->alive;
        IO::Socket::UNIX->new(Peer => $self->socket);
    } HEALTHY_SECONDS, 'meterd listens on its socket';
    return;
}

# GET /healthz answers 200. A configuration of the operator's need not have
# that location: any other clear answer then means that nginx is up.
sub wait_healthy {
    my ($self, $seconds) = @_;
    my $own = $self->{nginx_conf} ne "$ROOT/examples/nginx.conf";
    my $last = 'none';
    my $http = Edgemeter::Http->new(
        port       => $self->{port},
        keep_alive => 0,
        timeout    => 5
    );
    my $healthy = poll_until {
        for my $name (qw(meterd nginx)) {
            die "$name " . process_of($self->part($name))->fate . "\n"
                unless $self->alive($name);
        }
        $last = $http->get('/healthz')->{status};
        $last == 200 || $own && $last < 500;
    } $seconds // HEALTHY_SECONDS;
    die "/healthz did not answer 200 in time (last status: $last)\n"
        unless $healthy;
    return;
}

sub process_of {
    my ($part) = @_;
    return $part->can('process') ? $part->process : $part;
}

# --- stopping -----------------------------------------------------------

# kill -9 (or another signal) on one part; returns when it is gone. Workers
# and backends of a killed part end or are cleared when it is started again.
sub kill_part {
    my ($self, $name, $signal) = @_;
    my $part = $self->part($name);
    return unless $part && $part->alive;
    kill $signal // 'KILL', $part->pid;
    wait_until { !$part->alive } 30, "$name ends";
    return;
}

# Orderly: meterd drains, nginx finishes, PostgreSQL checkpoints.
sub stop_part {
    my ($self, $name) = @_;
    my $part = $self->part($name);
    return 1 unless $part;
    return $part->stop('fast', DRAIN_SECONDS) if $name eq 'postgres';
    return $part->stop('TERM', DRAIN_SECONDS) if $name eq 'meterd';
    return $part->stop;
}

sub stop {
    my ($self) = @_;
    for my $name (reverse @PARTS) {
        $self->{say}->("$name did not stop in time and was killed")
            unless $self->stop_part($name);
    }
    return;
}

# A test that dies leaves nothing behind. Only the process that made the
# stack cleans up, not a child it forked.
sub discard {
    my ($self) = @_;
    return if $$ != $self->{parent} || $self->{discarded}++;
    local ($?, $@, $!);
    eval { $self->stop };
    my $place = $self->{place};
    if ($place && $self->log('meterd') =~ /$SANITIZER/) {
        push @REPORTS, substr $self->log('meterd'), $-[0], 8000;
    }
    if ($self->{scratch} && !$ENV{KEEP_RUN_DIR}) {
        remove_tree($place->state) if $place && $place->moved;
        remove_tree($self->{scratch});
    }
    return;
}

sub DESTROY {
    my ($self) = @_;
    $self->discard;
    return;
}

# A sanitizer speaks in the log only; here it becomes the script's failure.
END {
    for my $stack (grep {defined} values %LIVE) {
        $stack->discard;
    }
    if (@REPORTS) {
        print STDERR "meterd's log holds a sanitizer report:\n", @REPORTS;
        $? ||= 70;
    }
}

1;
