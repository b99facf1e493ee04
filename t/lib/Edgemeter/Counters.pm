package Edgemeter::Counters;

# Counters.pm - speaks to the counters API.
#
#   my $counters = Edgemeter::Counters->new($stack->http('acme'), 'acme');
#   my $got = $counters->send('increment', 'hits', amount => 5);
#   is $counters->told('get', 'hits'), '200 {"net":"5",...}';
#
# What is not given: durationSeconds 3600, timestamp 2024-03-15T10:30:00Z, and
# the whole day for sumRange. A value that is a reference to a text is put into
# the body as it is. header => {...} and body => $text are for the request.
#
#   my $client = $counters->start($stack, 'increment', 'hits');  # no waiting
#   $client->receive->{status};                       # see SocketClient.pm

use strict;
use warnings;
use JSON::PP ();
use Edgemeter::Process;
use Edgemeter::SocketClient;
use Edgemeter::Wait qw(wait_until);

my $JSON = JSON::PP->new->utf8->canonical->allow_nonref;

sub new {
    my ($class, $http, $tenant) = @_;
    return bless { http => $http, tenant => $tenant }, $class;
}

sub http { return $_[0]{http} }

sub path {
    my ($self, $verb, $name) = @_;
    return "/api/counters/$self->{tenant}/$name/$verb";
}

sub method_of {
    my ($verb) = @_;
    return 'GET' if $verb eq 'get' || $verb eq 'sumRange';
    return $verb eq 'set' ? 'PUT' : 'POST';
}

# The path of a read with its arguments; one that is undef is left out.
sub read_path {
    my ($self, $verb, $name, %member) = @_;
    my %all = (durationSeconds => 3600,
        $verb eq 'get'
        ? (timestamp => '2024-03-15T10:30:00Z')
        : (startTime => '2024-03-15T00:00:00Z',
            endTime => '2024-03-15T23:59:59Z'),
        %member);
    return $self->path($verb, $name) . '?' . join '&',
        map { Edgemeter::Http::escape($_) . '='
            . Edgemeter::Http::escape($all{$_}) }
        grep { defined $all{$_} } sort keys %all;
}

sub body_of {
    my (%member) = @_;
    my %all = (durationSeconds => 3600, timestamp => '2024-03-15T10:30:00Z',
        %member);
    return '{' . join(',', map {
        "\"$_\":" . (ref $all{$_} ? ${ $all{$_} } : $JSON->encode($all{$_}))
    } sort keys %all) . '}';
}

sub send {
    my ($self, $verb, $name, %member) = @_;
    my %header = %{ delete $member{header} // {} };
    my $body   = delete $member{body};
    if (method_of($verb) eq 'GET') {
        return $self->{http}->request('GET',
            $self->read_path($verb, $name, %member), undef, %header);
    }
    return $self->{http}->request(method_of($verb), $self->path($verb, $name),
        $body // body_of(%member), %header);
}

# Status and body, as one text.
sub told {
    my ($self, @words) = @_;
    my $got = $self->send(@words);
    return "$got->{status} $got->{body}";
}

# --- at the same time ---------------------------------------------------

# Sends a write to meterd's socket; returns once meterd has it, so that
# writes arrive in the order of these calls.
sub start {
    my ($self, $stack, $verb, $name, %member) = @_;
    my $client = Edgemeter::SocketClient->new($stack->socket) or die $!;
    my $flying = $self->metric('edgemeter_requests_in_flight');
    $client->send(Edgemeter::SocketClient::encode(
        method => method_of($verb), path => $self->path($verb, $name),
        type => 'application/json', token => $stack->token($self->{tenant}),
        key => delete $member{key}, body => body_of(%member)));
    wait_until {
        $self->metric('edgemeter_requests_in_flight') > $flying
    } 10, "$verb has arrived";
    return $client;
}

sub metric {
    my ($self, $name) = @_;
    return $self->{http}->get('/metrics')->{body} =~ /^$name (-?\d+)$/m
        ? $1 : undef;
}

# A transaction of somebody else's holds the counter's buckets, and one
# increment waits for it: whatever comes now is the next batch.
sub lock_bucket {
    my ($self, $stack, $name) = @_;
    my $locker = Edgemeter::Process->spawn(
        name => 'locker', log => $stack->place->path('tmp') . '/locker.log',
        user => $stack->account,
        command => [$stack->cluster->{bin} . '/psql', '-q', '--dbname',
            $stack->database_url, '-c',
            "BEGIN; SELECT 1 FROM meter.bucket_counter WHERE tenant ="
                . " '$self->{tenant}' AND name = '$name' FOR UPDATE;"
                . ' SELECT pg_sleep(60)'],
    );
    wait_until {
        $stack->query("SELECT count(*) FROM pg_stat_activity WHERE"
            . " query LIKE '%FOR UPDATE; SELECT pg_sleep%' AND wait_event ="
            . " 'PgSleep'")
    } 10, 'the lock is held';
    return $locker;
}

# Meterd waits for a lock.
sub wait_blocked {
    my ($self, $stack, $count) = @_;
    wait_until {
        $stack->query("SELECT count(*) FROM pg_stat_activity WHERE"
            . " wait_event_type = 'Lock' AND usename = 'meterd'")
            >= ($count // 1)
    } 10, 'a transaction waits';
    return;
}

sub unlock {
    my ($self, $stack, $locker) = @_;
    $stack->query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        . " WHERE query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()");
    wait_until { !$locker->alive } 10, 'the lock is gone';
    return;
}

1;
