package Edgemeter::CrashFile;

# CrashFile.pm - kills nginx workers at named points, one at a time.
#
#   my $crash = Edgemeter::CrashFile->new;
#   my $stack = Edgemeter::Stack->for_test(nginx_env => $crash->env, ...);
#   $crash->arm('ring_before_head', 3);   # the third worker to come by dies
#   $crash->fired;                        # how many have died so far
#
# The file is mapped by every worker (ngx_http_meter_crash.c): five words,
# armed, countdown, fired, mode (1 SIGKILL, 2 SIGSTOP), zero, and the name.

use strict;
use warnings;
use Fcntl qw(SEEK_SET);
use File::Temp ();

use constant { NAME_SIZE => 64, KILL => 1, STOP => 2 };

sub new {
    my ($class) = @_;
    my $directory = File::Temp->newdir('em-crash-XXXXXX', TMPDIR => 1);
    chmod 0755, "$directory";
    my $path = "$directory/crash";
    open my $file, '+>', $path or die "$path: $!\n";
    binmode $file;
    chmod 0666, $path;
    my $self = bless { directory => $directory, path => $path,
        file => $file }, $class;
    $self->put(0, pack('L<5 a' . NAME_SIZE, 0, 0, 0, KILL, 0, ''));
    return $self;
}

sub env { return { METER_CRASH_FILE => $_[0]{path} } }

sub put {
    my ($self, $offset, $bytes) = @_;
    sysseek $self->{file}, $offset, SEEK_SET or die $!;
    syswrite($self->{file}, $bytes) == length $bytes or die $!;
    return;
}

sub word {
    my ($self, $number) = @_;
    sysseek $self->{file}, 4 * $number, SEEK_SET or die $!;
    sysread $self->{file}, my $bytes, 4 or die $!;
    return unpack 'L<', $bytes;
}

sub arm {
    my ($self, $name, $countdown, $mode) = @_;
    $self->disarm;
    $self->put(20, pack 'a' . NAME_SIZE, $name);
    $self->put(12, pack 'L<', $mode // KILL);
    $self->put(4, pack 'L<', $countdown // 1);
    $self->put(0, pack 'L<', 1);
    return;
}

sub disarm { $_[0]->put(0, pack 'L<', 0); return }
sub armed  { return $_[0]->word(0) }
sub fired  { return $_[0]->word(2) }

1;
