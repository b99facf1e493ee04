package Edgemeter::CounterBreaker;

# CounterBreaker.pm - two nodes on one database, clients that write counters on
# both, and ways to break them.
#
#   clients -> nginx -> meterd 0 -----------> PostgreSQL
#           -> nginx -> meterd 1 -> [proxy] ---^
#
#   my $breaker = Edgemeter::CounterBreaker->start;
#   $breaker->load->wait_more(500);           # clients begin with the first
#   $breaker->crash(0, 'bucket_locked', 3);   # true: died there; is back
#   $breaker->kill(1); $breaker->end_backends; $breaker->restart_postgres;
#   $breaker->load->stop->verify;
#
# The proxy cuts every few COMMITs of the second node off (Proxy.pm). Its queue
# is short, so that some clients are told to come later.

use strict;
use warnings;
use Edgemeter::CounterLoad;
use Edgemeter::Proxy;
use Edgemeter::Stack;
use Edgemeter::Url;
use Edgemeter::Wait qw(poll_until);

our @POINTS = qw(bucket_locked bucket_commit_sent bucket_committed);

sub start {
    my ($class, %arg) = @_;
    my $self  = bless {}, $class;
    my $first = Edgemeter::Stack->for_test->start;
    my $proxy = $self->{proxy} = Edgemeter::Proxy->new(
        socket => $first->cluster->{sockets} . '/.s.PGSQL.5432',
        name   => qr/bucket/,
        every  => $arg{every} // 200,
    )->start;
    my $host   = Edgemeter::Url::encode($proxy->directory);
    my $second = Edgemeter::Stack->for_test(
        database_url => $first->database_url,
        yaml => {
            database => "'postgresql://meterd\@$host/edgemeter'",
            limits   => '{ operationQueue: 8 }',
        },
    )->start;
    $self->{nodes} = [$first, $second];
    return $self;
}

sub node  { return $_[0]{nodes}[$_[1]] }
sub proxy { return $_[0]{proxy} }

sub load {
    my ($self) = @_;
    return $self->{load}
        //= Edgemeter::CounterLoad->new(nodes => $self->{nodes})->start;
}

sub cuts {
    my ($self) = @_;
    my %cuts = $self->{proxy}->cuts;
    my $sum  = 0;
    $sum += $_ for values %cuts;
    return $sum;
}

sub back {
    my ($self, $number) = @_;
    my $node = $self->{nodes}[$number];
    $node->start_part('meterd');
    $node->wait_meterd;
    $node->wait_healthy(60);
    return;
}

sub kill {
    my ($self, $number) = @_;
    $self->{nodes}[$number]->kill_part('meterd');
    $self->back($number);
    return;
}

# Killed and started so that it dies at the point; then as ever.
sub crash {
    my ($self, $number, $point, $times) = @_;
    my $node = $self->{nodes}[$number];
    $node->kill_part('meterd');
    $node->{env}{METERD_CRASH_POINT} = "$point:" . ($times // 1);
    $node->start_part('meterd');
    my $is_dead = poll_until { !$node->alive('meterd') } 60;
    delete $node->{env}{METERD_CRASH_POINT};
    $node->kill_part('meterd');
    $self->back($number);
    return $is_dead;
}

# The connections that write counters, of both nodes; how many.
sub end_backends {
    my ($self) = @_;
    return $self->{nodes}[0]->query(
        'SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity'
            . " WHERE application_name ~ 'bucket'");
}

# As after a power cut. Nodes stay, and find it again.
sub restart_postgres {
    my ($self) = @_;
    my $first = $self->{nodes}[0];
    $first->cluster->stop('immediate');
    $first->start_part('postgres');
    $_->wait_healthy(60) for @{ $self->{nodes} };
    return;
}

1;
