package Edgemeter::Node;

# Node.pm - one more meterd on a stack's database, as on another host.
#
#   my $node = Edgemeter::Node->start($stack, name => 'b');
#   $node->wait_ready;
#   my $answer = $node->ask(path => '/healthz');     # see SocketClient.pm
#   $node->post('acme', \@events);
#   $node->process->stop('TERM', 15); $node->log; $node->state_dir;
#
# It has a socket, a log and a state directory of its own; `copy_of` gives
# it a copy of another node's writer file instead of a new identity. More:
# env => {...}, program => $meterd, yaml => { name => YAML text }.

use strict;
use warnings;
use File::Copy ();
use JSON::PP ();
use Scalar::Util qw(weaken);
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::SocketClient;
use Edgemeter::Stack;    # before END: its own comes after ours
use Edgemeter::Wait qw(wait_until);

my $JSON = JSON::PP->new->utf8->canonical;

# Nodes that were not given up yet.
my %LIVE;

sub start {
    my ($class, $stack, %arg) = @_;
    my $scratch = $stack->place->path('tmp');
    my $self    = bless {
        stack  => $stack,
        name   => $arg{name},
        socket => "$scratch/$arg{name}.sock",
        log    => "$scratch/$arg{name}.log",
        state  => "$scratch/$arg{name}.state",
    }, $class;
    mkdir $self->{state}, 0750;
    $stack->account->own($self->{state});
    if ($arg{copy_of}) {
        my $copy = "$self->{state}/writer-0";
        File::Copy::copy("$arg{copy_of}/writer-0", $copy) or die "$copy: $!\n";
        chmod 0600, $copy;
        $stack->account->own($copy);
    }

    my $cluster = $stack->cluster;
    my %option  = (
        database      => q(') . $cluster->url('meterd', 'edgemeter') . q('),
        adminDatabase => q(')
            . $cluster->url('meter_owner', 'edgemeter') . q('),
        listen        => "'unix:$self->{socket}'",
        node          => $arg{name},
        stateDir      => "'$self->{state}'",
        %{ $arg{yaml} // {} },
    );
    my $yaml = "$scratch/$arg{name}.yaml";
    Edgemeter::Place::replace_file($yaml, 0644, $stack->account,
        join '', map {"$_: $option{$_}\n"} sort keys %option);
    $self->{process} = Edgemeter::Process->spawn(
        name    => $arg{name},
        log     => $self->{log},
        user    => $stack->account,
        env     => Edgemeter::Stack::test_env($arg{env}),
        command => [
            $arg{program} // $stack->{program},
            '-c', ($stack->config_arguments)[1], '-c', $yaml
        ],
    );
    $self->{parent} = $$;
    weaken($LIVE{$self} = $self);
    return $self;
}

sub process   { return $_[0]{process} }
sub pid       { return $_[0]{process}->pid }
sub socket    { return $_[0]{socket} }
sub state_dir { return $_[0]{state} }

sub log {
    my ($self) = @_;
    open my $file, '<', $self->{log} or return '';
    local $/;
    return <$file> // '';
}

sub client {
    my ($self) = @_;
    return Edgemeter::SocketClient->new($self->{socket});
}

# One request on a connection of its own; status 0 when no answer came.
sub ask {
    my ($self, %request) = @_;
    my $client = $self->client or return { status => 0 };
    return $client->request(%request) // { status => 0 };
}

# The bytes of POST /v1/events.
sub encode_events {
    my ($self, $tenant, $events) = @_;
    return Edgemeter::SocketClient::encode(
        method => 'POST',
        path   => '/v1/events',
        type   => 'application/json',
        token  => $self->{stack}->token($tenant),
        body   => $JSON->encode($events),
    );
}

sub post {
    my ($self, $tenant, $events) = @_;
    my $client = $self->client or return { status => 0 };
    $client->send($self->encode_events($tenant, $events))
        or return { status => 0 };
    return $client->receive // { status => 0 };
}

sub metric {
    my ($self, $name) = @_;
    return $self->ask(path => '/metrics')->{body} =~ /^$name (-?\d+)$/m
        ? $1 : undef;
}

sub wait_ready {
    my ($self, $seconds) = @_;
    wait_until {
        die "$self->{name} " . $self->{process}->fate . "\n" . $self->log
            unless $self->{process}->alive;
        $self->ask(path => '/readyz')->{status} == 200
    } $seconds // 20, "$self->{name} is ready";
    return $self;
}

# A test that ends or dies leaves nothing behind, stopped or not.
sub discard {
    my ($self) = @_;
    return if $$ != ($self->{parent} // 0) || $self->{discarded}++;
    local ($?, $!, $@);
    delete $LIVE{$self};
    $self->{process}->signal('CONT');
    $self->{process}->stop('TERM', 15);
    return;
}

sub DESTROY {
    my ($self) = @_;
    $self->discard;
    return;
}

END {
    for my $node (grep {defined} values %LIVE) {
        $node->discard;
    }
}

1;
