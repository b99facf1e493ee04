package Bench::Host;

# Host.pm - one nginx of bench/edge: a server for each of its variants.
#
#   variants + bench/edge_nginx.conf -> nginx.conf -> master, workers
#
#   my $host = Bench::Host->new(name => 'meter', directory => $directory,
#       template => $file, account => $account, cores => \@cores,
#       variants => \@variants, values => { SOCKET => ... });
#   $host->start;
#   $host->url('event'); $host->cpu_seconds; $host->metrics;
#
# Modules and lines of the http level come from the first variant: variants
# that share a host have them in common. Workers are pinned to the first
# cores. A metered host has a further server for /metrics alone.

use strict;
use warnings;
use Bench::Machine qw(slurp);
use Edgemeter::Http;
use Edgemeter::Nginx;
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

use constant START_SECONDS => 30;

sub new {
    my ($class, %arg) = @_;
    my $self = bless {%arg}, $class;
    mkdir $self->{directory}, 0755 or die "$self->{directory}: $!\n";
    $self->{account}->own($self->{directory});
    $self->{first} = $self->{variants}[0];
    return $self;
}

sub start {
    my ($self) = @_;
    my $conf = "$self->{directory}/nginx.conf";
    Edgemeter::Place::replace_file($conf, 0644, $self->{account},
        $self->conf_text);
    my ($port) = values %{ $self->{port} };
    my $nginx = $self->{nginx} = Edgemeter::Nginx->new(
        conf    => $conf,
        prefix  => $self->{directory},
        log     => $self->log_path,
        port    => $port,
        account => $self->{account},
    );
    $nginx->start;
    wait_until {
        die "nginx of $self->{name} ended\n" . $self->log_tail
            unless $nginx->alive;
        !Edgemeter::Nginx::port_free($port) && $self->find_workers;
    } START_SECONDS, "nginx of $self->{name} listens";
    return $self;
}

sub stop {
    my ($self) = @_;
    $self->{nginx}->stop(5) if $self->{nginx};
    return;
}

# Filled in until nothing is left to fill in: values may name others.
sub conf_text {
    my ($self) = @_;
    my ($first, @cores) = ($self->{first}, @{ $self->{cores} });
    my @masks = map { '1' . '0' x $_ }
        @cores > 1 ? @cores[0 .. $first->{workers} - 1] : ();
    my %value = (
        DIR      => $self->{directory},
        NAME     => $self->{name},
        WORKERS  => $first->{workers},
        AFFINITY => @masks ? "worker_cpu_affinity @masks;" : '',
        MODULES  => $first->{modules} // '',
        HTTP     => $first->{http} // '',
        SERVERS  => join('', map { $self->server_text($_) }
                @{ $self->{variants} }) . $self->status_text,
        %{ $self->{values} },
    );
    my $text = slurp($self->{template});
    1 while $text =~ s{\@([A-Z]+)\@}{$value{$1} // die "no value: $1\n"}e;
    return $text;
}

# Two workers get listeners of their own: connections spread evenly.
sub server_text {
    my ($self, $variant) = @_;
    my $port   = Edgemeter::Stack::free_port();
    my $spread = $variant->{workers} > 1 ? ' reuseport' : '';
    my $lines  = $variant->{location} // '';
    $self->{port}{ $variant->{name} } = $port;
    return <<"CONF";
server {
    listen 127.0.0.1:$port$spread;
    location / {
        empty_gif;
$lines
    }
}
CONF
}

sub status_text {
    my ($self) = @_;
    return '' unless $self->{first}{metered};
    my $port = $self->{status_port} = Edgemeter::Stack::free_port();
    return <<"CONF";
server {
    listen 127.0.0.1:$port;
    location = /metrics { meter_status; }
}
CONF
}

sub url {
    my ($self, $variant_name) = @_;
    return "http://127.0.0.1:$self->{port}{$variant_name}/";
}

sub find_workers {
    my ($self) = @_;
    $self->{workers}
        = [Edgemeter::Process::session_members($self->{nginx}->pid)];
    return @{ $self->{workers} } == $self->{first}{workers};
}

sub worker_pids { return @{ $_[0]{workers} } }

# Seconds that the workers were on a core, in user and in kernel mode. The
# kernel counts them in nanoseconds here, in ticks of 10 ms in `stat`.
sub cpu_seconds {
    my ($self) = @_;
    my $all = 0;
    for my $pid ($self->worker_pids) {
        my ($nanoseconds) = slurp("/proc/$pid/schedstat") =~ /^(\d+)/
            or die "worker $pid is gone\n" . $self->log_tail;
        $all += $nanoseconds / 1e9;
    }
    return $all;
}

# Values by name, summed over labels.
sub metrics {
    my ($self) = @_;
    my $got = Edgemeter::Http->new(
        port       => $self->{status_port},
        keep_alive => 0
    )->get('/metrics');
    die "/metrics of $self->{name}: $got->{status}\n" . $self->log_tail
        if $got->{status} != 200;
    my %value;
    $value{$1} += $2
        while $got->{body} =~ /^(\w+)(?:\{[^}]*\})? (-?[\d.eE+-]+)$/mg;
    return \%value;
}

sub log_path { return "$_[0]{directory}/error.log" }

sub log_tail {
    my ($self) = @_;
    my @lines = split /^/, slurp($self->log_path);
    splice @lines, 0, @lines - 10 if @lines > 10;
    return join '', @lines;
}

1;
