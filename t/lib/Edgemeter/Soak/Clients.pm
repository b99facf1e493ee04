package Edgemeter::Soak::Clients;

# Clients.pm - processes that send until they are told to stop, and sums of
# what they were answered.
#
#   my $clients = Edgemeter::Soak::Clients->new;
#   $clients->add('events 0', sub { my ($client) = @_; ... });   # forks
#   $clients->sums;                  # { 'events 0' => { answered => 7 }, ... }
#   $clients->total('answered');     # of all; total('answered', 'events')
#   $clients->stop;                  # names of those that ended badly
#
# Nothing is kept for each request: a client adds up, and tells its sums twice
# a second and at its end. Inside of it:
#
#   until ($client->is_over) {
#       my ($answer, $was_sent) = $client->ask($bytes);   # of HttpClient
#       $client->count(answered => 1);
#       $client->wrong('what should not be');             # ten are kept
#   }

use strict;
use warnings;
use File::Temp ();
use JSON::PP ();
use POSIX ();
use Edgemeter::HttpClient;
use Edgemeter::Wait qw(now pause wait_until);

use constant TELL_SECONDS => 0.5;
use constant WRONG_MAX    => 10;

my $JSON = JSON::PP->new->utf8->canonical;

sub new {
    my ($class, %arg) = @_;
    return bless {
        directory => File::Temp->newdir('em-soak-XXXXXX', TMPDIR => 1),
        pids      => {},
        sums      => {},
        %arg,
    }, $class;
}

sub add {
    my ($self, $name, $run) = @_;
    my $pid = fork // die "fork: $!\n";
    if ($pid == 0) {
        my $client = bless {
            stop => "$self->{directory}/stop",
            path => "$self->{directory}/" . $name =~ tr/ /-/r,
            port => $self->{port},
            sums => {},
            told => 0,
        }, ref $self;
        srand($$ + time);
        local @SIG{qw(INT TERM PIPE)} = qw(DEFAULT DEFAULT IGNORE);
        my $is_good = eval { $run->($client); 1 };
        print STDERR "# $name: $@" unless $is_good;
        $client->tell;
        POSIX::_exit($is_good ? 0 : 1);
    }
    $self->{pids}{$name} = $pid;
    return;
}

sub sums {
    my ($self) = @_;
    for my $name (keys %{ $self->{pids} }) {
        my $path = "$self->{directory}/" . $name =~ tr/ /-/r;
        open my $file, '<', $path or next;
        local $/;
        $self->{sums}{$name} = $JSON->decode(<$file>);
    }
    return $self->{sums};
}

# One sum of all clients whose name begins so.
sub total {
    my ($self, $sum, $begin) = @_;
    my ($sums, $total) = ($self->sums, 0);
    for my $name (grep { !defined $begin || index($_, $begin) == 0 }
        keys %$sums)
    {
        $total += $sums->{$name}{$sum} // 0;
    }
    return $total;
}

# What clients saw that should not be.
sub all_wrong {
    my ($self) = @_;
    my $sums = $self->sums;
    return map {
        my $name = $_;
        map {"$name: $_"} @{ $sums->{$name}{wrong} // [] }
    } sort keys %$sums;
}

sub stop {
    my ($self) = @_;
    open my $flag, '>', "$self->{directory}/stop" or die "stop: $!\n";
    close $flag;
    my @failed;
    for my $name (sort keys %{ $self->{pids} }) {
        my $pid = $self->{pids}{$name};
        wait_until { waitpid($pid, POSIX::WNOHANG()) == $pid } 90,
            "the client $name ends";
        push @failed, $name if $?;
    }
    $self->sums;
    $self->{pids} = {};
    return @failed;
}

sub DESTROY {
    my ($self) = @_;
    kill 'KILL', values %{ $self->{pids} } if $self->{pids};
    return;
}

# --- inside of a client -------------------------------------------------

sub is_over {
    my ($self) = @_;
    $self->tell if now() > $self->{told} + TELL_SECONDS;
    return -e $self->{stop};
}

sub tell {
    my ($self) = @_;
    open my $file, '>', "$self->{path}.new" or die "$self->{path}: $!\n";
    print {$file} $JSON->encode($self->{sums});
    close $file or die "$self->{path}: $!\n";
    rename "$self->{path}.new", $self->{path} or die "$self->{path}: $!\n";
    $self->{told} = now();
    return;
}

sub count {
    my ($self, %more) = @_;
    $self->{sums}{$_} += $more{$_} for keys %more;
    return;
}

sub wrong {
    my ($self, $text) = @_;
    my $list = $self->{sums}{wrong} //= [];
    push @$list, substr $text, 0, 400 if @$list < WRONG_MAX;
    return;
}

# A request on the connection that is kept. No answer: (undef, whether the
# request may have arrived).
sub ask {
    my ($self, $bytes, $method) = @_;
    $self->{http} //= eval { Edgemeter::HttpClient->new($self->{port}) };
    if (!$self->{http}) {
        pause(0.02);
        return (undef, 0);
    }
    my $answer = eval {
        $self->{http}->send($bytes) && $self->{http}->receive($method);
    };
    if (!$answer || !$answer->{code}
        || $answer->{head} =~ /^connection: close/mi)
    {
        $self->{http}->close;
        delete $self->{http};
    }
    return ($answer && $answer->{code} ? $answer : undef, 1);
}

1;
