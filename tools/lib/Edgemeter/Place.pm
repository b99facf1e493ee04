package Edgemeter::Place;

# Place.pm - where a run keeps its state.
#
# Normally that is $RUN_DIR itself. It cannot be when the service user may
# not enter it (a checkout under a 0700 home, started by root), when a Unix
# socket below it would have too long a name, when the path cannot stand in
# nginx.conf without quotes, or when root names a directory that already holds
# other things. State then lives in a private directory
# under /var/tmp, named by a hash of the path so that the next run finds it
# again, and $RUN_DIR holds links to everything.
#
#   run_dir   what the person named; `env`, `tokens` and `lock` are always
#             real files in it, owned by that person
#   state     what the three processes see; the same directory or not
#
# Removing $RUN_DIR starts afresh: a state directory that no link points to
# any more is set aside as NAME.old.

use strict;
use warnings;
use Cwd ();
use Digest::SHA qw(sha256_hex);
use Fcntl qw(:flock);
use File::Basename qw(dirname);
use File::Copy ();
use File::Path qw(make_path remove_tree);
use File::Spec;

# sun_path holds 108 bytes, the last one a NUL.
use constant SOCKET_PATH_MAX => 107;

# The longest socket name below the state directory.
use constant LONGEST_SOCKET => 'postgres/.s.PGSQL.5432';

# Made in the state directory and, when that is elsewhere, linked to.
my @DIRECTORIES = qw(logs outbox postgres meterd tmp);
my @LINKS = (@DIRECTORIES,
    qw(data meterd.sock meterd.yaml nginx.conf nginx.pid));

# Takes the lock and decides. Dies with a sentence for the person.
sub new {
    my ($class, $run_dir, $account) = @_;
    my $self = bless { account => $account }, $class;

    $self->{fresh} = !-d $run_dir;
    make_path($run_dir, { error => \my $errors });
    die "cannot make the run directory $run_dir\n" unless -d $run_dir;
    $self->{run_dir} = Cwd::realpath($run_dir);
    $self->lock;
    $self->{state} = $self->choose;
    $self->prepare;
    return $self;
}

sub run_dir { return $_[0]{run_dir} }
sub state   { return $_[0]{state} }

# True when state lives elsewhere.
sub moved { return $_[0]{state} ne $_[0]{run_dir} }

# The path of something in the state directory.
sub path {
    my ($self, @parts) = @_;
    return join '/', $self->{state}, @parts;
}

sub lock {
    my ($self) = @_;
    my $file = "$self->{run_dir}/lock";
    open my $lock, '+>>', $file
        or die "cannot write in $self->{run_dir}: $!"
        . " (it may belong to a run by another user)\n";
    flock $lock, LOCK_EX | LOCK_NB
        or die "another run is using $self->{run_dir}"
        . " (choose another RUN_DIR)\n";
    $self->{lock} = $lock;
    return;
}

sub choose {
    my ($self) = @_;
    my $link = "$self->{run_dir}/state";

    return $self->{run_dir} if !-l $link && $self->fits;

    my $elsewhere = $self->elsewhere;
    if ((readlink($link) // '') ne $elsewhere) {
        set_aside($elsewhere) if -e $elsewhere;
        unlink $link;
        symlink $elsewhere, $link
            or die "cannot make the link $link: $!\n";
    }
    make_private($elsewhere, $self->{account});
    return $elsewhere;
}

# May $RUN_DIR itself hold the state?
sub fits {
    my ($self) = @_;
    my ($run_dir, $account) = @$self{qw(run_dir account)};

    return 0
        if length("$run_dir/" . LONGEST_SOCKET) > SOCKET_PATH_MAX;
    return 0 unless is_plain($run_dir);
    return 1 unless $account->differs;
    return 0 unless $account->may(sub { chdir dirname($run_dir) });
    return 1 if (stat $run_dir)[4] == $account->uid;
    return $self->{fresh} || is_empty($run_dir);
}

# May the path stand in nginx.conf, and in a shell, as it is?
sub is_plain { return $_[0] !~ m{[^\w/.,:\@%+=~\x80-\xff-]}a }

sub is_empty {
    my ($directory) = @_;
    opendir my $dir, $directory or return 0;
    return !grep { !/^\.\.?$/ && $_ ne 'lock' } readdir $dir;
}

sub elsewhere {
    my ($self) = @_;
    my $account = $self->{account};
    my $name    = 'edgemeter-' . substr sha256_hex($self->{run_dir}), 0, 16;

    for my $base ('/var/tmp', $ENV{TMPDIR} // (), '/tmp') {
        next unless -d $base && -w $base;
        next unless $account->may(sub { chdir $base });
        my $path = Cwd::realpath($base) . "/$name";
        return $path
            if is_plain($path)
            && length("$path/" . LONGEST_SOCKET) <= SOCKET_PATH_MAX;
    }
    die "neither $self->{run_dir} nor a temporary directory can hold"
        . " the state: no short path that $account->{name} may enter\n";
}

sub set_aside {
    my ($directory) = @_;
    remove_tree("$directory.old") if -d "$directory.old";
    rename $directory, "$directory.old"
        or die "cannot set $directory aside: $!\n";
    return;
}

# In a world-writable directory the name could have been taken by someone.
sub make_private {
    my ($directory, $account) = @_;

    if (mkdir $directory, 0700) {
        $account->own($directory);
        return;
    }
    my ($mode, $owner) = (lstat $directory)[2, 4];
    die "$directory is not a private directory of $account->{name}\n"
        unless defined $mode
        && -d _
        && !-l $directory
        && $owner == $account->uid
        && !($mode & 0022);
    return;
}

# Directories, ownership and links.
sub prepare {
    my ($self) = @_;
    my ($run_dir, $state, $account) = @$self{qw(run_dir state account)};

    if (!$self->moved) {
        $account->own($run_dir);
        chmod 0755, $run_dir if $account->differs;
    }
    for my $name (@DIRECTORIES) {
        my $path = "$state/$name";
        mkdir $path, $name eq 'outbox' ? 0770 : 0750
            or -d $path
            or die "cannot make $path: $!\n";
        chmod 0700, $path if $name eq 'postgres';
        chmod 0770, $path if $name eq 'outbox';
        $account->own($path);
    }
    mkdir "$run_dir/tokens", 0700
        or -d "$run_dir/tokens"
        or die "cannot make $run_dir/tokens: $!\n";
    $self->link_all if $self->moved;
    return;
}

sub link_all {
    my ($self) = @_;
    for my $name (@LINKS) {
        my $link = "$self->{run_dir}/$name";
        next if (readlink($link) // '') eq "$self->{state}/$name";
        die "$link is in the way of a link to the run's state\n"
            if -e $link && !-l $link;
        unlink $link;
        symlink "$self->{state}/$name", $link
            or die "cannot make the link $link: $!\n";
    }
    return;
}

# A plain path under which the service user can read the file: the file
# itself, or a copy in the state directory. Calling it again refreshes the copy.
sub readable {
    my ($self, $file, $mode) = @_;
    my $account = $self->{account};
    my $path    = Cwd::realpath($file);
    die "there is no file $file\n" unless defined $path && -f $path;

    my $enough = $mode & 0100
        ? sub { -r $path && -x _ }
        : sub { -r $path };
    return $path if is_plain($path) && $account->may($enough);

    my $directory = $self->path('lib');
    mkdir $directory, 0755;
    $account->own($directory);
    my ($name) = $path =~ m{([^/]+)$};
    my $copy = "$directory/$name";
    replace_file($copy, $mode, $account, sub {
        my ($handle) = @_;
        File::Copy::copy($path, $handle) or die "cannot copy $path: $!\n";
    });
    return $copy;
}

# Writes a file as a whole or not at all; others see the old or the new one.
sub replace_file {
    my ($path, $mode, $account, $content) = @_;
    my $new = "$path.new";

    unlink $new;
    sysopen my $handle, $new, Fcntl::O_WRONLY | Fcntl::O_CREAT | Fcntl::O_EXCL,
        $mode
        or die "cannot write $new: $!\n";
    ref $content ? $content->($handle) : print {$handle} $content;
    close $handle or die "cannot write $new: $!\n";
    chmod $mode, $new;
    $account->own($new) if $account;
    rename $new, $path or die "cannot replace $path: $!\n";
    return;
}

1;
