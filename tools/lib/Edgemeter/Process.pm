package Edgemeter::Process;

# Process.pm - starting, watching and ending one child process.
#
#   my $child = Edgemeter::Process->spawn(
#       name => 'meterd', command => [...], user => $account,
#       log => "$dir/meterd.log", directory => $dir);
#   $child->alive or die $child->fate;
#   $child->stop('TERM', 30);
#
# Each child leads a session of its own, because Ctrl-C in a terminal hits
# the whole foreground group while the parts must stop in order. It runs as
# `user` (see Account.pm), with a clean environment: nothing that libpq or
# meterd would read from the person's shell gets through.

use strict;
use warnings;
use POSIX qw(:sys_wait_h setsid);
use Errno ();
use Fcntl qw(F_SETFD FD_CLOEXEC);
use IO::Handle;
use Edgemeter::Wait qw(poll_until);

# Kept from the caller's environment; everything else is left behind.
my @KEEP = qw(PATH LANG LC_ALL TZ TMPDIR ASAN_OPTIONS UBSAN_OPTIONS
    LSAN_OPTIONS);

sub environment {
    my (%more) = @_;
    my %env = map { $_ => $ENV{$_} } grep { defined $ENV{$_} } @KEEP;
    $env{PATH} = join ':', grep { length } $env{PATH} // '',
        '/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin';
    return (%env, %more);
}

# Forks and executes. Dies when the fork or the exec fails, with the reason.
sub spawn {
    my ($class, %arg) = @_;
    my $self = bless { name => $arg{name}, command => $arg{command} }, $class;

    pipe my $failed, my $tell or die "pipe: $!\n";
    fcntl $tell, F_SETFD, FD_CLOEXEC;
    my $pid = fork // die "fork: $!\n";
    if ($pid == 0) {
        close $failed;
        eval { become($self, %arg); 1 } or print {$tell} $@;
        close $tell;
        POSIX::_exit(127);
    }

    close $tell;
    my $why = do { local $/; <$failed> };
    if (length $why) {
        waitpid $pid, 0;
        chomp $why;
        die "$arg{name} cannot be started: $why\n";
    }
    $self->{pid}     = $pid;
    $self->{started} = Edgemeter::Wait::now();
    return $self;
}

# In the child: session, files, user, environment, exec.
sub become {
    my ($self, %arg) = @_;

    setsid();
    open STDIN, '<', '/dev/null' or die "/dev/null: $!\n";
    $arg{user}->become if $arg{user};
    umask($arg{umask} // 0027);
    chdir($arg{directory} // '/') or die "$arg{directory}: $!\n";
    if (defined $arg{log}) {
        open STDOUT, '>>', $arg{log}  or die "$arg{log}: $!\n";
        open STDERR, '>&', \*STDOUT or die "stderr: $!\n";
    }
    $SIG{$_} = 'DEFAULT' for qw(INT TERM HUP QUIT PIPE CHLD USR1 USR2);
    %ENV = environment(%{ $arg{env} // {} });
    my @command = @{ $arg{command} };
    no warnings 'exec';
    exec { $command[0] } @command or die "$command[0]: $!\n";
    return;
}

# Runs a command to its end and gives back (status, output, errors); status
# is 0 for success. `input` is what it reads; user, env as for spawn.
sub capture {
    my (%arg) = @_;
    my @file;
    for (0 .. 2) {
        open my $file, '+>', undef or die "temporary file: $!\n";
        push @file, $file;
    }
    print { $file[0] } $arg{input} // '';
    $file[0]->flush;

    local ($?, $!);
    my $pid = fork // die "fork: $!\n";
    if ($pid == 0) {
        my $back = $file[2];
        eval {
            sysseek $file[0], 0, 0;
            open STDIN,  '<&', $file[0] or die "stdin: $!\n";
            open STDOUT, '>&', $file[1] or die "stdout: $!\n";
            open STDERR, '>&', $back    or die "stderr: $!\n";
            $arg{user}->become if $arg{user};
            umask 0027;
            chdir '/';
            $SIG{$_} = 'DEFAULT' for qw(INT TERM HUP QUIT PIPE CHLD);
            %ENV = environment(%{ $arg{env} // {} });
            my @command = @{ $arg{command} };
            no warnings 'exec';
            exec { $command[0] } @command or die "$command[0]: $!\n";
        };
        syswrite STDERR, $@;
        POSIX::_exit(127);
    }
    1 while waitpid($pid, 0) == -1 && $!{EINTR};
    my $status = $?;
    local $/;
    seek $_, 0, 0 for @file;
    return ($status, map { scalar(<$_>) // '' } @file[1, 2]);
}

# A process that another one started (a daemon that left its parent). It
# can be watched and signalled, not waited for.
sub adopt {
    my ($class, $name, $pid) = @_;
    return bless {
        name    => $name,
        pid     => $pid,
        foreign => 1,
        started => Edgemeter::Wait::now()
    }, $class;
}

sub pid     { return $_[0]{pid} }
sub name    { return $_[0]{name} }
sub started { return $_[0]{started} }
sub status  { return $_[0]{status} }

# Seconds since the start.
sub age { return Edgemeter::Wait::now() - $_[0]{started} }

sub alive {
    my ($self) = @_;
    return 0 if defined $self->{status};
    if ($self->{foreign}) {
        return 1 if pid_alive($self->{pid});
        $self->{status} = -1;
        return 0;
    }
    my $got = waitpid $self->{pid}, WNOHANG;
    return 1 if $got == 0;
    $self->{status} = $got == $self->{pid} ? $? : -1;
    return 0;
}

# How it ended, in words.
sub fate {
    my ($self) = @_;
    my $status = $self->{status};
    return 'is running' unless defined $status;
    return 'is gone' if $status < 0;
    return 'was killed by signal ' . WTERMSIG($status) if WIFSIGNALED($status);
    return 'ended with status ' . WEXITSTATUS($status);
}

# By kill -9, so by somebody and not by itself.
sub was_killed {
    my ($self) = @_;
    my $status = $self->{status};
    return defined $status && $status >= 0 && WIFSIGNALED($status)
        && WTERMSIG($status) == POSIX::SIGKILL();
}

sub signal {
    my ($self, $signal) = @_;
    return 0 unless $self->alive;
    return kill $signal, $self->{pid};
}

# Sends the signal and waits; after the deadline the process is killed.
# True when it ended by itself.
sub stop {
    my ($self, $signal, $seconds) = @_;
    return 1 unless $self->alive;
    kill $signal, $self->{pid};
    return 1 if poll_until { !$self->alive } $seconds;
    kill 'KILL', $self->{pid};
    poll_until { !$self->alive } 5;
    return 0;
}

# --- facts from /proc ---------------------------------------------------

# (state, parent, session) of a process, or nothing.
sub stat_of {
    my ($pid) = @_;
    open my $file, '<', "/proc/$pid/stat" or return;
    my $line = <$file> // return;
    $line =~ s/^.*\)\s+//s;
    my @field = split ' ', $line;
    return @field[0, 1, 3];
}

# A zombie that nobody collected counts as dead.
sub pid_alive {
    my ($pid) = @_;
    return 0 unless $pid;
    my ($state) = stat_of($pid);
    return defined $state && $state !~ /[ZX]/ ? 1 : 0;
}

sub each_pid {
    opendir my $proc, '/proc' or return;
    return grep {/^\d+$/} readdir $proc;
}

# Live processes of one session, without its leader.
sub session_members {
    my ($session) = @_;
    my @members;
    for my $pid (each_pid()) {
        next if $pid == $session;
        my ($state, undef, $of) = stat_of($pid);
        push @members, $pid
            if defined $of && $of == $session && $state !~ /[ZX]/;
    }
    return @members;
}

# Live processes whose working directory is this one.
sub working_in {
    my ($directory) = @_;
    my @found;
    for my $pid (each_pid()) {
        my $cwd = readlink "/proc/$pid/cwd";
        push @found, $pid
            if defined $cwd && $cwd eq $directory && pid_alive($pid);
    }
    return @found;
}

# Live processes whose output or errors go to this file.
sub writing_to {
    my ($path) = @_;
    my @found;
    for my $pid (each_pid()) {
        push @found, $pid
            if grep { (readlink("/proc/$pid/fd/$_") // '') eq $path } 1, 2;
    }
    return @found;
}

sub command_line {
    my ($pid) = @_;
    open my $file, '<', "/proc/$pid/cmdline" or return '';
    local $/;
    my $line = <$file> // '';
    $line =~ tr/\0/ /;
    return $line;
}

1;
