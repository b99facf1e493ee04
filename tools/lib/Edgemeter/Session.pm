package Edgemeter::Session;

# Session.pm - `make run` as a person has it in a terminal, for tests.
#
#   my $run = Edgemeter::Session->start(RUN_DIR => $dir, PORT => $port);
#   $run->wait_up;                     # dies with the output when it ends
#   my $env = $run->env;               # $RUN_DIR/env as a hash
#   $run->interrupt;                   # Ctrl-C: SIGINT to the whole group
#   is $run->wait_end, 0;              # exit status
#   like $run->output, qr/stopped/;
#
# The command leads a process group of its own, as a shell's job does. More
# settings: command => [...] (tools/run), directory => where it is called.

use strict;
use warnings;
use File::Temp ();
use POSIX qw(:sys_wait_h);
use Edgemeter::Http;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until poll_until);

sub start {
    my ($class, %arg) = @_;
    my $command   = delete $arg{command} // [Edgemeter::Stack::root() . '/tools/run'];
    my $directory = delete $arg{directory} // Edgemeter::Stack::root();
    my $out       = File::Temp->new;
    my $pid       = fork // die "fork: $!\n";
    if ($pid == 0) {
        setpgrp 0, 0;
        chdir $directory or POSIX::_exit(126);
        open STDIN,  '<', '/dev/null';
        open STDOUT, '>', $out->filename;
        open STDERR, '>&', \*STDOUT;
        delete @ENV{qw(PORT RUN_DIR RULES NGINX_CONF DATABASE_URL
                MAKEFLAGS MFLAGS MAKELEVEL)};
        %ENV = (%ENV, %arg);
        { no warnings "exec"; exec { $command->[0] } @$command; }
        POSIX::_exit(127);
    }
    my $run_dir = $arg{RUN_DIR} // '.run';
    $run_dir = "$directory/$run_dir" unless $run_dir =~ m{^/};
    return bless {
        pid     => $pid,
        out     => $out,
        port    => $arg{PORT} // 8080,
        run_dir => $run_dir,
        parent  => $$,
    }, $class;
}

sub pid     { return $_[0]{pid} }
sub port    { return $_[0]{port} }
sub run_dir { return $_[0]{run_dir} }
sub env     { return Edgemeter::Stack::read_env("$_[0]{run_dir}/env") }

sub output {
    my ($self) = @_;
    open my $file, '<', $self->{out}->filename or return '';
    local $/;
    return <$file> // '';
}

sub token {
    my ($self, $tenant) = @_;
    open my $file, '<', "$self->{run_dir}/tokens/$tenant" or return '';
    chomp(my $token = <$file> // '');
    return $token;
}

sub http {
    my ($self, $tenant) = @_;
    return Edgemeter::Http->new(
        port       => $self->{port},
        token      => defined $tenant ? $self->token($tenant) : undef,
        keep_alive => 0,
    );
}

sub healthy { return $_[0]->http->get('/healthz')->{status} == 200 }

sub ended {
    my ($self) = @_;
    return 1 if defined $self->{status};
    return 0 if waitpid($self->{pid}, WNOHANG) == 0;
    $self->{status} = $?;
    return 1;
}

sub wait_up {
    my ($self, $seconds) = @_;
    wait_until { $self->output =~ /Edgemeter is up/ || $self->ended }
        $seconds // 30, 'the run is up: ' . $self->output;
    die 'the run ended: ' . $self->output if $self->ended;
    return $self;
}

sub interrupt { return kill 'INT', -$_[0]{pid} }

# The exit status; a signal N gives 128 + N.
sub wait_end {
    my ($self, $seconds) = @_;
    wait_until { $self->ended } $seconds // 60, 'the run ends';
    my $status = $self->{status};
    return WIFSIGNALED($status) ? 128 + WTERMSIG($status)
        : WEXITSTATUS($status);
}

sub DESTROY {
    my ($self) = @_;
    return if $$ != $self->{parent} || $self->ended;
    local ($?, $!, $@);
    $self->interrupt;
    return if poll_until { $self->ended } 60;
    kill 'KILL', -$self->{pid};
    poll_until { $self->ended } 5;
    return;
}

1;
