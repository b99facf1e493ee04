package Edgemeter::Nginx;

# Nginx.pm - one nginx with a complete configuration file.
#
# The file says everything (load_module, daemon, pid); nothing is passed by
# -g. Both `daemon off` (nginx is our child) and `daemon on` (the master is
# found through its pid file) work.
#
# A master that was killed leaves its workers behind, and they keep the port.
# All of them are in the session that the master led, so they can be found
# and told to QUIT: they close the port at once and finish what they serve.

use strict;
use warnings;
use IO::Socket::INET;
use Edgemeter::Process;
use Edgemeter::Wait qw(wait_until poll_until);

use constant ORPHAN_SECONDS => 5;

# conf, prefix, log: paths; port: of the main listener; account.
sub new {
    my ($class, %arg) = @_;
    my $self = bless {%arg}, $class;
    $self->{bin} //= find_bin();
    return $self;
}

sub find_bin {
    return $ENV{NGINX} if $ENV{NGINX};
    for my $directory (split(/:/, $ENV{PATH} // ''), '/usr/sbin',
        '/usr/local/sbin')
    {
        return "$directory/nginx" if -x "$directory/nginx";
    }
    die "nginx is not installed\n";
}

# Fills in @RUN_DIR@, @PORT@ and @MODULE@.
sub render {
    my ($template, %value) = @_;
    open my $file, '<', $template
        or die "cannot read the nginx configuration $template: $!\n";
    my $text = do { local $/; <$file> };
    $text =~ s/\@(RUN_DIR|PORT|MODULE)\@/$value{$1}/g;
    return $text;
}

sub process { return $_[0]{process} }
sub pid     { return $_[0]{process} ? $_[0]{process}->pid : undef }
sub alive   { return $_[0]{process} && $_[0]{process}->alive }

# Reads two main-level directives of the rendered file.
sub directives {
    my ($self) = @_;
    open my $file, '<', $self->{conf} or die "$self->{conf}: $!\n";
    my $text = do { local $/; <$file> };
    $text =~ s/#[^\n]*//g;
    my ($daemon) = $text =~ /(?:^|[;}\s])daemon\s+(on|off)\s*;/;
    my ($pid)    = $text =~ /(?:^|[;}\s])pid\s+["']?([^\s;"']+)["']?\s*;/;
    $pid //= '/run/nginx.pid';
    $pid = "$self->{prefix}/$pid" unless $pid =~ m{^/};
    return (($daemon // 'on') eq 'on', $pid);
}

# Starts nginx; dies when it ends at once. It listens a moment later.
sub start {
    my ($self) = @_;
    my ($daemon, $pid_file) = $self->directives;
    my $child = Edgemeter::Process->spawn(
        name    => 'nginx',
        log     => $self->{log},
        user    => $self->{account},
        env     => $self->{env},
        command => [
            $self->{bin}, '-p', "$self->{prefix}/", '-e', $self->{log},
            '-c', $self->{conf}
        ],
    );
    $self->{process} = $child;
    return unless $daemon;

    wait_until { !$child->alive } 10, 'nginx goes into the background';
    die 'nginx ' . $child->fate . "\n" if $child->status != 0;
    my $master = wait_until { read_pid($pid_file) } 5, "nginx wrote $pid_file";
    $self->{process} = Edgemeter::Process->adopt('nginx', $master);
    return;
}

sub read_pid {
    my ($path) = @_;
    open my $file, '<', $path or return 0;
    my ($pid) = (<$file> // '') =~ /^(\d+)$/;
    return $pid && Edgemeter::Process::pid_alive($pid) ? $pid : 0;
}

# After a binary upgrade another master has taken over: true, adopted.
sub adopt_successor {
    my ($self) = @_;
    my (undef, $pid_file) = $self->directives;
    my $master = read_pid($pid_file) or return 0;
    return 0 if $master == ($self->pid // 0);
    return 0
        unless Edgemeter::Process::command_line($master) =~ /nginx.*master/;
    $self->{process} = Edgemeter::Process->adopt('nginx', $master);
    return 1;
}

# Workers of a dead master. Returns when the port is free.
sub clear_orphans {
    my ($self) = @_;
    my $master = $self->pid // return;
    end_workers(sub { Edgemeter::Process::session_members($master) },
        sub { port_free($self->{port}) });
    return;
}

# Ends the processes that `find` names, with grace first. `enough` may be true
# before all are gone; without it all must be.
sub end_workers {
    my ($find, $enough) = @_;
    my @found = $find->() or return;
    $enough //= sub { !$find->() };
    kill 'QUIT', @found;
    return if poll_until { $enough->() } ORPHAN_SECONDS;
    kill 'KILL', $find->();
    poll_until { $enough->() } ORPHAN_SECONDS;
    return;
}

# QUIT serves what is under way; past the deadline it is cut.
sub stop {
    my ($self, $seconds) = @_;
    my $process = $self->{process} or return 1;
    my $calm = 1;
    if ($process->alive) {
        $process->signal('QUIT');
        $calm = poll_until { !$process->alive } $seconds // 15;
        $process->stop('TERM', 5) unless $calm;
    }
    my @left = Edgemeter::Process::session_members($process->pid);
    kill 'KILL', @left if @left;
    return $calm;
}

# Can a listener be opened on 127.0.0.1:port?
sub port_free {
    my ($port) = @_;
    my $socket = IO::Socket::INET->new(
        LocalAddr => '127.0.0.1',
        LocalPort => $port,
        Proto     => 'tcp',
        Listen    => 1,
        ReuseAddr => 1,
    ) or return 0;
    close $socket;
    return 1;
}

1;
