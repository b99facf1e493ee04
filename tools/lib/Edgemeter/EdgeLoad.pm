package Edgemeter::EdgeLoad;

# EdgeLoad.pm - clients of metered routes that note what they were answered.
#
#   my $load = Edgemeter::EdgeLoad->new(stack => $stack,
#       modes => [qw(event slot id delta late)], clients => 4)->start;
#   ... break things ...
#   $load->stop;
#   my $told = $load->told;   # { mode => { n => { answered => 1, ... } } }
#
# Every request carries a number of its own, which the route records (mode
# id: as the event id, and two clients send each number). A request is
# answered when its first byte came back, unknown when it was sent and the
# connection broke before; refused when it got a 503, or no connection at
# all. Each client writes a line before it goes on. CONF is an nginx
# configuration with a route for each mode.

use strict;
use warnings;
use File::Temp ();
use IO::Socket::INET;
use POSIX ();
use Socket qw(MSG_NOSIGNAL);
use Edgemeter::Wait qw(wait_until pause);

use constant ANSWER_SECONDS => 20;

our @MODES = qw(event slot id delta late);

# Workers, outbox size, zone size and more lines for http can be given.
sub conf {
    my (%arg) = @_;
    my $workers = $arg{workers} // 2;
    my $outbox  = $arg{outbox}  // '1m';
    my $zone    = $arg{zone}    // '64k';
    my $more    = $arg{more}    // '';
    my $main    = $arg{main}    // '';
    my $daemon  = $arg{daemon}  // 'off';
    return <<"CONF";
load_module \@MODULE@;
daemon $daemon;
pid \@RUN_DIR@/nginx.pid;
error_log \@RUN_DIR@/logs/nginx-error.log notice;
worker_processes $workers;
$main
events { worker_connections 512; }
http {
    access_log off;
    client_body_temp_path \@RUN_DIR@/tmp/body;
    proxy_temp_path \@RUN_DIR@/tmp/proxy;
    fastcgi_temp_path \@RUN_DIR@/tmp/fastcgi;
    uwsgi_temp_path \@RUN_DIR@/tmp/uwsgi;
    scgi_temp_path \@RUN_DIR@/tmp/scgi;
    keepalive_requests 1000000;
    map \$arg_tenant \$mapped { default \$arg_tenant; }
    meter_aggregator unix:\@RUN_DIR@/meterd.sock;
    meter_outbox \@RUN_DIR@/outbox $outbox;
    meter_zone edge $zone;
    meter_node torture;
    $more
    server {
        listen 127.0.0.1:\@PORT@;
        location /v1/ { meter_api; }
        location /api/ { meter_api; }
        location = /healthz { meter_api; }
        location = /readyz { meter_api; }
        location = /metrics { meter_status; }
        meter_tenant \$arg_tenant;
        meter_event edge.request;
        meter_attribute n \$arg_n;
        location = /event { meter on; empty_gif; }
        location = /slot {
            meter on;
            meter_tenant \$mapped;
            meter_attribute n \$arg_n;
            meter_attribute sent \$bytes_sent;
            empty_gif;
        }
        location = /id {
            meter on;
            meter_event_id \$arg_n;
            meter_attribute route id;
            empty_gif;
        }
        location = /delta {
            meter on;
            meter_capture delta;
            meter_event edge.delta;
            meter_attribute key \$arg_key;
            meter_quantity 2;
            empty_gif;
        }
        location = /late {
            meter on;
            meter_capture delta;
            meter_event edge.late;
            meter_tenant \$mapped;
            meter_attribute key \$arg_key;
            empty_gif;
        }
    }
}
CONF
}

# Rules for these routes.
sub rules {
    return <<'YAML';
events:
  - { type: api.request }
  - { type: edge.request }
  - { type: edge.delta, delta: true }
  - { type: edge.late, delta: true }
counters:
  - counterName: edge_requests
    mode: persistent
    dimensions: []
    floorAtZero: false
    rules:
      - { on: edge.request, op: increment }
      - { on: edge.delta, op: increment }
      - { on: edge.late, op: increment }
    idempotency: { requireEventId: true, scope: globalEventId }
YAML
}

sub new {
    my ($class, %arg) = @_;
    return bless {
        clients   => 4,
        modes     => [@MODES],
        tenants   => [qw(acme globex)],
        name      => '',
        directory => File::Temp->newdir('em-edge-XXXXXX', TMPDIR => 1),
        %arg,
    }, $class;
}

sub start {
    my ($self) = @_;
    for my $client (0 .. $self->{clients} - 1) {
        my $pid = fork // die "fork: $!";
        if ($pid == 0) {
            my $ended = eval { $self->run_client($client); 1 };
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
    for my $pid (@{ delete $self->{pids} // [] }) {
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

# Two clients of a pair send the same ids; all other numbers are their own.
sub run_client {
    my ($self, $client) = @_;
    my $stop = "$self->{directory}/stop";
    my $pair = int($client / 2);
    my $tenant = $self->{tenants}[$pair % @{ $self->{tenants} }];
    open my $log, '>', "$self->{directory}/client-$client" or die $!;
    $log->autoflush(1);
    my $connection = undef;
    my @modes = @{ $self->{modes} };
    for (my $turn = 0; !-e $stop; $turn++) {
        my $mode = $modes[$turn % @modes];
        my $n    = $mode eq 'id' ? "p$pair-$turn" : "c$client-$turn";
        my $key  = $turn % 3;
        $connection //= $self->connect;
        if (!$connection) {
            pause(0.01);
            next;
        }
        my $fate = exchange($connection,
            "GET /$mode?n=$self->{name}$n&tenant=$tenant&key=$key HTTP/1.1\r\n"
                . "Host: a\r\n\r\n");
        print $log "$mode $tenant $self->{name}$n $fate\n";
        $connection = undef if $fate ne 'answered';
    }
    close $log;
    return;
}

sub connect {
    my ($self) = @_;
    return IO::Socket::INET->new(
        PeerAddr => '127.0.0.1',
        PeerPort => $self->{stack}->port,
        Timeout  => 5,
    );
}

# Sends a request and reads the whole answer.
sub exchange {
    my ($socket, $request) = @_;
    my $answer = '';
    local $SIG{ALRM} = sub { die "no answer in time\n" };
    alarm ANSWER_SECONDS;
    return 'unsent' unless defined send $socket, $request, MSG_NOSIGNAL;
    while ($answer !~ /\r\n\r\n/
        || length($answer) < $+[0] + ($answer =~ /Content-Length: (\d+)/i)[0])
    {
        my $got = sysread $socket, $answer, 4096, length $answer;
        last unless $got;
    }
    alarm 0;
    return 'unknown' unless length $answer;
    my ($status) = $answer =~ m{^HTTP/1\.1 (\d+)};
    return 'answered' if ($status // 0) == 200;
    return 'refused'  if ($status // 0) == 503;
    return 'answered' if $answer =~ m{^H};    # cut inside its header
    die "unexpected answer: $answer\n";
}

# { mode => { tenant => { n => { fate => times } } } }
sub told {
    my ($self) = @_;
    my %told;
    for my $path (glob "$self->{directory}/client-*") {
        open my $log, '<', $path or die $!;
        while (<$log>) {
            my ($mode, $tenant, $n, $fate) = split;
            next unless defined $fate && /\n$/;
            $told{$mode}{$tenant}{$n}{$fate}++;
        }
    }
    return \%told;
}

# Bytes written so far: how many answers.
sub progress {
    my ($self) = @_;
    my $bytes = 0;
    $bytes += -s $_ // 0 for glob "$self->{directory}/client-*";
    return $bytes;
}

1;
