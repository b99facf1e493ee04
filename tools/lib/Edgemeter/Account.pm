package Edgemeter::Account;

# Account.pm - the user all three processes run as.
#
# PostgreSQL refuses root, and neither nginx nor meterd needs it: as root
# everything runs as the unprivileged system user `edgemeter`, made when
# missing; otherwise as the person who ran the command.
#
#   my $account = Edgemeter::Account->service;
#   $account->may(sub { -r '/some/file' }) or ...;   # asked as that user

use strict;
use warnings;
use POSIX ();

my $SERVICE = 'edgemeter';

sub service {
    my ($class) = @_;
    return $class->current if $> != 0;
    make_user() unless defined getpwnam $SERVICE;
    my ($name, undef, $uid, $gid) = getpwnam $SERVICE
        or die "there is no user $SERVICE and useradd did not make one\n";
    return bless { name => $name, uid => $uid, gid => $gid, drop => 1 },
        $class;
}

sub current {
    my ($class) = @_;
    my ($name, undef, $uid, $gid) = getpwuid $>
        or die "user id $> has no name; PostgreSQL needs one\n";
    return bless { name => $name, uid => $uid, gid => $gid, drop => 0 },
        $class;
}

sub make_user {
    my @command = (
        'useradd',    '--system', '--user-group', '--no-create-home',
        '--home-dir', '/nonexistent', '--shell', '/usr/sbin/nologin',
        '--comment',  'Edgemeter', $SERVICE
    );
    local $ENV{PATH} = "$ENV{PATH}:/usr/sbin:/sbin";
    my $failed = system { $command[0] } @command;

    # Two first runs side by side may both try; one of them wins.
    die "useradd could not make the user $SERVICE\n"
        if $failed && !defined getpwnam $SERVICE;
    return;
}

sub name { return $_[0]{name} }
sub uid  { return $_[0]{uid} }
sub gid  { return $_[0]{gid} }

# True when processes run as another user than the caller.
sub differs { return $_[0]{drop} }

# For a forked child: becomes the user for good.
sub become {
    my ($self) = @_;
    return unless $self->{drop};
    $) = "$self->{gid} $self->{gid}";
    POSIX::setgid($self->{gid}) or die "setgid: $!\n";
    POSIX::setuid($self->{uid}) or die "setuid: $!\n";
    die "could not leave root\n"
        if $> == 0 || $< == 0 || POSIX::setuid(0);
    return;
}

# Asks a question with this user's rights: true or false.
sub may {
    my ($self, $question) = @_;
    return $question->() ? 1 : 0 unless $self->{drop};
    local ($?, $!);
    my $pid = fork // die "fork: $!\n";
    if ($pid == 0) {
        my $yes = eval { $self->become; $question->() };
        POSIX::_exit($yes ? 0 : 1);
    }
    waitpid $pid, 0;
    return $? == 0 ? 1 : 0;
}

# Gives paths to the user.
sub own {
    my ($self, @paths) = @_;
    return unless $self->{drop};
    for my $path (@paths) {
        chown $self->{uid}, $self->{gid}, $path
            or die "cannot give $path to $self->{name}: $!\n";
    }
    return;
}

1;
