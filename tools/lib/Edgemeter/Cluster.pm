package Edgemeter::Cluster;

# Cluster.pm - a private PostgreSQL cluster on a Unix socket.
#
#   my $cluster = Edgemeter::Cluster->new(
#       data => "$dir/data", sockets => "$dir/postgres",
#       log => "$dir/logs/postgres.log", account => $account,
#       settings => { log_statement => 'all' });     # optional, as is hba
#   $cluster->start;
#   print $cluster->url('postgres', 'edgemeter');
#   $cluster->query('SELECT 1');                     # as superuser, by psql
#   $cluster->stop('fast');                          # or 'immediate'
#
# No TCP, no passwords, no trust: peer authentication with a map that lets
# the service user and root log in as postgres, meterd and meter_owner, and
# nobody else. fsync is on: a commit that was answered survives kill -9.

use strict;
use warnings;
use Cwd ();
use File::Path ();
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::Url;
use Edgemeter::Wait qw(wait_until poll_until);

our @ROLES = qw(postgres meterd meter_owner);

use constant START_SECONDS => 60;

sub new {
    my ($class, %arg) = @_;
    my $self = bless {%arg}, $class;
    $self->{bin} //= find_bin();
    return $self;
}

# The newest installed server, 15 or later.
sub find_bin {
    return $ENV{PG_BINDIR} if $ENV{PG_BINDIR};
    my ($best) = sort { $b->[0] <=> $a->[0] }
        grep { $_->[0] >= 15 && -x "$_->[1]/postgres" && -x "$_->[1]/initdb" }
        map { m{/postgresql/(\d+)/bin$} ? [$1, $_] : () }
        glob '/usr/lib/postgresql/*/bin';
    return $best->[1] if $best;
    for my $directory (split /:/, $ENV{PATH} // '') {
        return $directory
            if -x "$directory/postgres" && -x "$directory/initdb";
    }
    die "no PostgreSQL server (15 or later) is installed\n";
}

sub account { return $_[0]{account} }
sub process { return $_[0]{process} }
sub pid     { return $_[0]{process} ? $_[0]{process}->pid : undef }
sub alive   { return $_[0]{process} && $_[0]{process}->alive }

# A URL for libpq; the directory of the socket stands percent-encoded in the
# place of the host.
sub url {
    my ($self, $role, $database) = @_;
    my $host = Edgemeter::Url::encode($self->{sockets});
    return "postgresql://$role\@$host/$database";
}

# Starts the server, making the cluster first if there is none, and returns
# when it accepts connections.
sub start {
    my ($self) = @_;
    $self->make unless -f "$self->{data}/PG_VERSION";
    $self->configure;
    $self->launch;
    wait_until { $self->ready || !$self->alive } START_SECONDS,
        'PostgreSQL accepts connections';
    die "postgres " . $self->{process}->fate . "\n" unless $self->alive;
    return $self;
}

# Into a neighbour, renamed when complete: an interrupted first run leaves no
# half cluster behind. Tests that run together copy one that was made for all of
# them (EDGEMETER_TEST_CLUSTER), which takes a tenth of the time.
sub make {
    my ($self) = @_;
    my $fresh = "$self->{data}.new";
    my $made = $self->{unsafe_initdb} && $ENV{EDGEMETER_TEST_CLUSTER};
    File::Path::remove_tree($fresh) if -d $fresh;
    if ($made) {
        system('cp', '-a', $made, $fresh) == 0
            or die "cannot copy the cluster $made\n";
    }
    else {
        $self->initdb($fresh);
    }
    rename $fresh, $self->{data} or die "cannot rename $fresh: $!\n";
    return;
}

sub initdb {
    my ($self, $directory) = @_;
    my $child = Edgemeter::Process->spawn(
        name    => 'initdb',
        log     => $self->{log},
        user    => $self->{account},
        command => [
            "$self->{bin}/initdb",       '--pgdata',
            $directory,                  '--username',
            'postgres',                  '--encoding',
            'UTF8',                      '--locale',
            'C',                         '--auth-local',
            'peer',                      '--auth-host',
            'reject',                    '--data-checksums',
            $self->{unsafe_initdb} ? '--no-sync' : (),
        ]);
    wait_until { !$child->alive } START_SECONDS, 'initdb ends';
    die 'initdb ' . $child->fate . "\n" if $child->status != 0;
    return;
}

# Rewritten at each start, so that a moved directory keeps working.
sub configure {
    my ($self) = @_;
    my ($data, $account) = @$self{qw(data account)};
    my %setting = (
        listen_addresses        => '',
        unix_socket_directories => $self->{sockets},
        unix_socket_permissions => '0700',
        port                    => 5432,
        fsync                   => 'on',
        max_connections         => 300,    # 14 for each meterd
        full_page_writes        => 'on',
        synchronous_commit      => 'on',
        max_wal_size            => '2GB',
        timezone                => 'UTC',
        log_timezone            => 'UTC',
        log_destination         => 'stderr',
        logging_collector       => 'off',
        %{ $self->{settings} // {} },
    );
    my $text = "# Written at each start; change nothing here.\n";
    for my $name (sort keys %setting) {
        (my $value = $setting{$name}) =~ s/'/''/g;
        $text .= "$name = '$value'\n";
    }
    $self->write('run.conf', $text);
    $self->write('pg_hba.conf',
        $self->{hba} // "local all all peer map=edgemeter\n");

    my %system = map { $_ => 1 } 'root', $account->name;
    $self->write('pg_ident.conf', join '',
        map { my $user = $_; map {"edgemeter $user $_\n"} @ROLES }
        sort keys %system);

    my $main = "$data/postgresql.conf";
    open my $in, '<', $main or die "$main: $!\n";
    my @lines = <$in>;
    close $in;
    return if grep {/^include 'run\.conf'$/} @lines;
    $self->write('postgresql.conf', join '', @lines, "include 'run.conf'\n");
    return;
}

sub write {
    my ($self, $name, $text) = @_;
    Edgemeter::Place::replace_file("$self->{data}/$name", 0600,
        $self->{account}, $text);
    return;
}

# A postmaster that was killed leaves backends behind, and a new one refuses
# to start while they hold its shared memory. SIGQUIT is what their
# postmaster would have sent after a crash.
sub launch {
    my ($self) = @_;
    if (my @left = $self->leftover) {
        kill 'QUIT', @left;
        wait_until { !$self->leftover } 30, 'old PostgreSQL backends end';
    }

    # The file of a dead postmaster would be read as the new one's, and a lock
    # beside the socket holds as long as nobody has collected its zombie.
    unlink "$self->{data}/postmaster.pid",
        "$self->{sockets}/.s.PGSQL.5432.lock";
    $self->{process} = Edgemeter::Process->spawn(
        name    => 'postgres',
        log     => $self->{log},
        user    => $self->{account},
        env     => $self->{env},
        command => ["$self->{bin}/postgres", '-D', $self->{data}],
    );
    return $self->{process};
}

# For a supervisor that must not wait: true when a new postmaster was
# started, false while backends of the old one are still there.
sub relaunch {
    my ($self) = @_;
    my @left = $self->leftover;
    if (@left) {
        kill 'QUIT', @left;
        return 0;
    }
    $self->launch;
    return 1;
}

# Processes of this cluster that are not below the current postmaster.
sub leftover {
    my ($self) = @_;
    return if $self->alive;
    return Edgemeter::Process::working_in(Cwd::realpath($self->{data}));
}

# The postmaster says in its file when it accepts connections.
sub ready {
    my ($self) = @_;
    open my $file, '<', "$self->{data}/postmaster.pid" or return 0;
    chomp(my @line = <$file>);
    return 0 unless @line >= 8 && $self->alive && $line[0] == $self->pid;
    return $line[7] =~ /^ready/ ? 1 : 0;
}

# fast: ends connections, checkpoints. immediate: as after a power cut.
# Dies when the deadline passes.
sub stop {
    my ($self, $mode, $seconds) = @_;
    return 1 unless $self->alive;
    my %signal = (smart => 'TERM', fast => 'INT', immediate => 'QUIT');
    $self->{process}->signal($signal{ $mode // 'fast' });
    return 1 if poll_until { !$self->alive } $seconds // 60;
    return $self->{process}->stop('QUIT', 10);
}

# Runs SQL by psql as superuser (or as another role of the map) and gives
# back the rows as text: tab between columns, one line each. In list context
# a list of lines. Dies with psql's message.
sub query {
    my ($self, $sql, %arg) = @_;
    my ($ok, $out, $err) = run_psql(
        url => $self->url($arg{role} // 'postgres',
            $arg{database} // $self->{database} // 'edgemeter'),
        bin     => $self->{bin},
        account => $self->{account},
        sql     => $sql
    );
    die "psql: $err" unless $ok;
    return split /\n/, $out if wantarray;
    chomp $out;
    return $out;
}

# psql with the text on its standard input. Gives (ok, output, errors). A
# password travels in the environment: it must not stand on a command line.
sub run_psql {
    my (%arg) = @_;
    my $url = Edgemeter::Url->parse($arg{url});
    my @command = (
        ($arg{bin} ? "$arg{bin}/psql" : 'psql'),
        qw(--no-psqlrc --quiet --no-align --tuples-only --no-password),
        '--field-separator', "\t", '--set', 'ON_ERROR_STOP=1',
        (map { ('--set', "$_=$arg{variables}{$_}") }
                sort keys %{ $arg{variables} // {} }),
        '--dbname', $url->without_password,
    );
    my ($status, $out, $err) = Edgemeter::Process::capture(
        command => \@command,
        input   => $arg{sql},
        user    => $arg{account},
        env     => {
            PGCONNECT_TIMEOUT => 10,
            defined $url->password ? (PGPASSWORD => $url->password) : (),
            %{ $arg{env} // {} },
        },
    );
    return ($status == 0, $out, $err);
}

1;
