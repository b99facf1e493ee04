package Edgemeter::Proxy;

# Proxy.pm - stands between meterd and PostgreSQL on a Unix socket and cuts
# ingest connections in the middle of their COMMIT.
#
#   my $proxy = Edgemeter::Proxy->new(socket => $path_of_postgres_socket);
#   $proxy->start;                       # forks; $proxy->directory is `host`
#   my %cuts = $proxy->cuts;             # how often, of each kind
#
# A cut is one of
#   before   the COMMIT never reaches the server: it rolls back
#   after    the COMMIT reaches the server, its answer is thrown away
#   late     the COMMIT reaches the server only after meterd's side is cut:
#            meterd may look the outcome up while the orphan still runs
# Every `every`th COMMIT of a connection whose application_name matches
# `name` is cut, the kinds taking turns; with `every => 0` only the next one
# after each $proxy->arm($kind).

use strict;
use warnings;
use File::Temp ();
use IO::Select;
use IO::Socket::UNIX;
use POSIX ();
use Socket qw(SOCK_STREAM);
use Edgemeter::Wait qw(wait_until);

my @KINDS = qw(before after late);

sub new {
    my ($class, %arg) = @_;
    return bless {
        every     => 5,
        name      => qr/lane/,
        directory => File::Temp->newdir('em-proxy-XXXXXX', TMPDIR => 1),
        %arg,
    }, $class;
}

sub directory { return "$_[0]{directory}" }

sub start {
    my ($self) = @_;
    my $path = "$self->{directory}/.s.PGSQL.5432";
    chmod 0755, "$self->{directory}";
    my $listen = IO::Socket::UNIX->new(Local => $path, Listen => 64)
        or die "proxy: $path: $!\n";
    chmod 0777, $path;
    my $pid = fork // die "fork: $!";
    if ($pid == 0) {
        $SIG{PIPE} = 'IGNORE';
        eval { $self->serve($listen) };
        print STDERR $@ if $@;
        POSIX::_exit(1);
    }
    $self->{pid}    = $pid;
    $self->{parent} = $$;
    return $self;
}

sub stop {
    my ($self) = @_;
    my $pid = delete $self->{pid} or return;
    kill 'KILL', $pid;
    waitpid $pid, 0;
    return;
}

sub DESTROY {
    my ($self) = @_;
    local ($?, $!);
    $self->stop if ($self->{parent} // 0) == $$;
    return;
}

sub cuts {
    my ($self) = @_;
    my %cuts = map { $_ => 0 } @KINDS;
    open my $log, '<', "$self->{directory}/cuts" or return %cuts;
    while (<$log>) {
        chomp;
        $cuts{$_}++;
    }
    return %cuts;
}

sub serve {
    my ($self, $listen) = @_;
    my $select = IO::Select->new($listen);
    my %link;    # fileno => the link it belongs to
    my $commits = 0;

    while (1) {
        for my $ready ($select->can_read(1)) {
            if ($ready == $listen) {
                my $client = $listen->accept or next;
                my $server
                    = IO::Socket::UNIX->new(Peer => $self->{socket});
                if (!$server) {
                    close $client;
                    next;
                }
                my $link = {
                    client => $client,
                    server => $server,
                    keys   => [fileno $client, fileno $server],
                };
                $link{$_} = $link for @{ $link->{keys} };
                $select->add($client, $server);
                next;
            }
            my $link = $link{ fileno($ready) // -1 } or next; # cut meanwhile
            my $from_client = $ready == $link->{client};
            my $got = sysread $ready, my $bytes, 65536;
            my $keep = $got
                && $self->pass($link, $from_client, $bytes, \$commits);
            next if $keep;
            delete @link{ @{ $link->{keys} } };
            $select->remove(@{ $link->{keys} });
            close $_ for @$link{qw(client server)};
        }
    }
}

# Passes bytes on; false when the link is to be dropped.
sub pass {
    my ($self, $link, $from_client, $bytes, $commits) = @_;
    if (!$from_client) {
        return write_all($link->{client}, $bytes);
    }
    if (!exists $link->{wanted}) {
        $link->{wanted} = $bytes =~ $self->{name};
    }
    my $kind = $link->{wanted} && $bytes =~ /\bcommit\b/i
        && $self->next_cut($commits);
    if ($kind) {
        $self->note($kind);
        close $link->{client} if $kind eq 'late';
        if ($kind ne 'before') {
            write_all($link->{server}, $bytes);
            # The answer, or the end, must come before the server's side
            # goes: a backend that is told to commit does so.
            IO::Select->new($link->{server})->can_read(5);
        }
        return 0;
    }
    return write_all($link->{server}, $bytes);
}

# How this COMMIT is cut; false: it is not.
sub next_cut {
    my ($self, $commits) = @_;
    my $every = $self->{every};
    return $self->disarm if !$every;
    return ++$$commits % $every == 0 && $KINDS[ $$commits / $every % @KINDS ];
}

sub arm {
    my ($self, $kind) = @_;
    my $path = "$self->{directory}/armed";
    open my $file, '>', "$path.new" or die "$path: $!\n";
    print {$file} $kind;
    close $file or die "$path: $!\n";
    rename "$path.new", $path or die "$path: $!\n";
    return;
}

# In the proxy's own process.
sub disarm {
    my ($self) = @_;
    open my $file, '<', "$self->{directory}/armed" or return;
    unlink "$self->{directory}/armed";
    return <$file>;
}

sub note {
    my ($self, $kind) = @_;
    open my $log, '>>', "$self->{directory}/cuts" or die $!;
    print $log "$kind\n";
    close $log;
    return;
}

sub write_all {
    my ($to, $bytes) = @_;
    my $at = 0;
    while ($at < length $bytes) {
        my $wrote = syswrite $to, $bytes, length($bytes) - $at, $at;
        return 0 unless $wrote;
        $at += $wrote;
    }
    return 1;
}

1;
