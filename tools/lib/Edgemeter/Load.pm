package Edgemeter::Load;

# Load.pm - clients that send every event twice while things break.
#
#   my $load = Edgemeter::Load->new(stack => $stack, clients => 16);
#   $load->start;            # forks the clients
#   ... break things ...
#   $load->stop;             # each ends after its current answer
#   my $told = $load->told;  # { id => { accepted => n, duplicate => n, ... } }
#
# Clients work in pairs: both of a pair send the same batches in the same
# order on connections of their own, so each event comes twice, often at
# the same moment. A batch that got no 200 is sent again until it does or
# the load is stopped; its events are told 'again' for each time, 'unknown'
# at last. Each client writes one line per event and answer to a file before
# it goes on.

use strict;
use warnings;
use File::Temp ();
use JSON::PP ();
use POSIX ();
use Time::HiRes ();
use Edgemeter::Http;
use Edgemeter::Wait qw(wait_until pause);

use constant BATCH_MAX => 20;

sub new {
    my ($class, %arg) = @_;
    return bless {
        clients   => 16,
        tenants   => [qw(acme globex)],
        directory => File::Temp->newdir('em-load-XXXXXX', TMPDIR => 1),
        %arg,
    }, $class;
}

sub start {
    my ($self) = @_;
    my %token = map { $_ => $self->{stack}->token($_) } @{ $self->{tenants} };
    for my $client (0 .. $self->{clients} - 1) {
        my $pid = fork // die "fork: $!";
        if ($pid == 0) {
            my $ended = eval { $self->run_client($client, \%token); 1 };
            print STDERR $@ unless $ended;
            POSIX::_exit($ended ? 0 : 1);
        }
        push @{ $self->{pids} }, $pid;
    }
    return $self;
}

# Ends the clients; dies when one failed by itself.
sub stop {
    my ($self) = @_;
    open my $flag, '>', "$self->{directory}/stop" or die $!;
    close $flag;
    my @left = @{ delete $self->{pids} // [] };
    for my $pid (@left) {
        wait_until { waitpid($pid, POSIX::WNOHANG()) == $pid } 60,
            "load client $pid ends";
        die "load client $pid failed\n" if $?;
    }
    return $self;
}

sub DESTROY {
    my ($self) = @_;
    kill 'KILL', @{ $self->{pids} } if $self->{pids};
    return;
}

sub run_client {
    my ($self, $client, $token) = @_;
    my $pair   = int($client / 2);
    my $tenant = $self->{tenants}[$pair % @{ $self->{tenants} }];
    my $http   = Edgemeter::Http->new(
        port    => $self->{stack}->port,
        token   => $token->{$tenant},
        timeout => 40,
    );
    open my $log,   '>', "$self->{directory}/client-$client" or die $!;
    open my $again, '>', "$self->{directory}/again-$client"  or die $!;
    $_->autoflush(1) for $log, $again;

    # The same for both of a pair, so that they make the same batches.
    my $random = $pair + 1;
    my $next   = sub {
        $random = ($random * 1103515245 + 12345) % 2147483648;
        return int($random / 65536) % $_[0];
    };
    my $stop   = "$self->{directory}/stop";
    for (my $batch = 0; !-e $stop; $batch++) {
        my $size = 1 + $next->(BATCH_MAX);
        my @events
            = map { event("$pair-$batch-$_", $next->(5)) } 1 .. $size;
        $self->send_batch($http, $log, $again, $stop, \@events);
    }
    close $_ for $log, $again;
    return;
}

sub event {
    my ($id, $route) = @_;
    return {
        event_id   => "load-$id",
        type       => 'api.request',
        ts         => 1_000_000_000 + 0,
        attributes => { route => "/r$route" },
    };
}

sub send_batch {
    my ($self, $http, $log, $again, $stop, $events) = @_;
    my $stamp = POSIX::strftime('%Y-%m-%dT00:00:00Z', gmtime);
    $_->{ts} = $stamp for @$events;
    while (1) {
        my $answer = $http->post('/v1/events', $events);
        if ($answer->{status} == 200) {
            my $results = $answer->{json}{results};
            die "not one result per event\n" unless @$results == @$events;
            for my $i (0 .. $#$events) {
                die "results are out of order\n"
                    unless $results->[$i]{event_id} eq $events->[$i]{event_id};
                print $log "$results->[$i]{event_id} $results->[$i]{verdict}\n";
            }
            return;
        }
        die "unexpected status $answer->{status}: $answer->{body}\n"
            unless $answer->{status} =~ /^(?:429|502|503|504|599)$/;
        if (-e $stop) {
            print $log "$_->{event_id} unknown\n" for @$events;
            return;
        }
        print $again "$_->{event_id} again\n" for @$events;
        pause(0.02);
    }
}

# What clients were told: { id => { verdict => times } }.
sub told {
    my ($self) = @_;
    my %told;
    for my $path (glob "$self->{directory}/{client,again}-*") {
        open my $log, '<', $path or die $!;
        while (<$log>) {
            my ($id, $verdict) = split;
            $told{$id}{$verdict}++;
        }
    }
    return \%told;
}

# Lines written so far: how many answers and unknowns.
sub progress {
    my ($self) = @_;
    my $bytes = 0;
    $bytes += -s $_ // 0 for glob "$self->{directory}/client-*";
    return $bytes;
}

1;
