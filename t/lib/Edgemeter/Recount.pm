package Edgemeter::Recount;

# Recount.pm - projections and the commands that recompute them, for tests.
#
#   my $recount = Edgemeter::Recount->start(nodes => [qw(a b)]);
#   $recount->load(500);                       # random events, all accepted
#   my ($status, $out, $err) = $recount->run('reconcile', 'counters');
#   $recount->tables;                          # all projections as one text
#   $recount->model;                           # the same totals, from the
#                                              # ledger, by another program
#
# The rules have one of each: raw, clamped and transition counters, an audit
# log, a usage row, meters of several aggregations.

use strict;
use warnings;
use JSON::PP ();
use POSIX ();
use Edgemeter::Node;
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::Stack;

my $JSON = JSON::PP->new->utf8->canonical;

our $RULES = <<'YAML';
events:
  - { type: call }
  - { type: opened }
  - { type: closed }
  - { type: up }
  - { type: down }
  - { type: born }
  - { type: dead }
counters:
  - counterName: calls
    dimensions: [route]
    rules: [ { on: call, op: increment, by: size } ]
  - counterName: balance
    dimensions: [route]
    rules: [ { on: opened, op: increment }, { on: closed, op: decrement } ]
  - counterName: open
    dimensions: [route]
    floorAtZero: true
    audit: true
    rules: [ { on: opened, op: increment }, { on: closed, op: decrement } ]
  - counterName: online
    dimensions: [route]
    transitions: { entity: device }
    rules: [ { on: up, op: increment }, { on: down, op: decrement } ]
usage:
  entryCount: { increment: [opened], decrement: [closed] }
  storageBytes: { increment: [opened], decrement: [closed], by: size }
  apiCallCount: { increment: [call] }
  provisioned: born
  decommissioned: dead
meters:
  - { metric: calls, on: [call], aggregation: sum, period: month,
      lateness: 1h, groupBy: [route] }
  - { metric: peak, on: [call], value: size, aggregation: max, period: day,
      lateness: 1000h }
  - { metric: newest, on: [call, opened], value: size, aggregation: last,
      period: day, lateness: 1h }
  - { metric: devices, on: [up, down], value: device, aggregation: unique,
      period: month, lateness: 1h }
YAML

our @TYPES = qw(call opened closed up down born dead);

sub start {
    my ($class, %arg) = @_;
    my $stack = Edgemeter::Stack->for_test(rules => $arg{rules} // \$RULES);
    $stack->prepare;
    $stack->make_cluster->{env} = $arg{database_env};
    $stack->start_database;
    $stack->migrate;
    $stack->make_tokens;
    my $self = bless { stack => $stack, count => 0, name => $arg{name} // 'e' },
        $class;
    $self->{node}{$_}
        = Edgemeter::Node->start($stack, name => $_, env => $arg{env})
        for @{ $arg{nodes} // [qw(a b)] };
    $_->wait_ready for values %{ $self->{node} };
    return $self;
}

sub stack { return $_[0]{stack} }
sub node  { return $_[0]{node}{ $_[1] } }

# --- events -------------------------------------------------------------

# One event in eight is some hours late.
sub events {
    my ($self, $count, %arg) = @_;
    return map {
        my $type = $TYPES[rand @TYPES];
        {   event_id => sprintf('%s-%d-%d', $self->{name}, $$, ++$self->{count}),
            type     => $type,
            ts       => $arg{ts} // time - (rand(8) < 1 ? 7200 + rand 7200 : 0),
            quantity => sprintf('%.3f', rand 100),
            (rand(3) < 2 ? (customer => 'c' . int rand 2) : ()),
            attributes => {
                (rand(8) < 7 ? (route => '/' . int rand 4) : ()),
                device => 'd' . int(rand 9),
                size   => int rand 9_000_000,
            } }
    } 1 .. $count;
}

# Until it is answered; how many were accepted.
sub send {
    my ($self, $node, $tenant, $events) = @_;
    my $answer = $self->{node}{$node}->post($tenant, $events);
    die "not answered: $answer->{status} " . ($answer->{body} // '') . "\n"
        if $answer->{status} != 200;
    my @wrong = grep { $_->{verdict} ne 'accepted' }
        @{ $JSON->decode($answer->{body})->{results} };
    die 'not accepted: ' . $JSON->encode(\@wrong) . "\n" if @wrong;
    return scalar @$events;
}

# To all nodes and for both tenants, some at a time.
sub load {
    my ($self, $count, %arg) = @_;
    my @all   = $self->events($count, %arg);
    my @nodes = sort keys %{ $self->{node} };
    while (my @some = splice @all, 0, 1 + rand 30) {
        $self->send($nodes[rand @nodes], (qw(acme globex))[rand 2], \@some);
    }
    return;
}

# Clients that load until they are told to stop; stop gives their number.
sub load_start {
    my ($self, $clients) = @_;
    my $stop = $self->{stack}->place->path('tmp') . '/stop-load';
    unlink $stop;
    my @pids;
    for my $client (1 .. $clients) {
        my $pid = fork // die "fork: $!\n";
        if ($pid == 0) {
            srand $client;
            $self->{name} = "load$client";
            my $good = eval {
                $self->load(20) until -e $stop;
                1;
            };
            print STDERR "# $@" unless $good;
            POSIX::_exit($good ? 0 : 1);
        }
        push @pids, $pid;
    }
    return sub {
        open my $file, '>', $stop or die "$stop: $!\n";
        close $file;
        my $failed = 0;
        for my $pid (@pids) {
            waitpid $pid, 0;
            $failed++ if $?;
        }
        return $failed;
    };
}

# --- commands -----------------------------------------------------------

sub command {
    my ($self, $command, @words) = @_;
    my ($node) = sort keys %{ $self->{node} };
    return [
        $self->{stack}{program}, $command, @words,
        '-c', $self->{rules} // ($self->{stack}->config_arguments)[1],
        '-c', $self->{stack}->place->path('tmp') . "/$node.yaml"
    ];
}

# (exit status, or 256 + signal; stdout; stderr)
sub run {
    my ($self, @words) = @_;
    return $self->run_with({}, @words);
}

sub run_with {
    my ($self, $env, @words) = @_;
    my ($status, $out, $err) = Edgemeter::Process::capture(
        command => $self->command(@words),
        user    => $self->{stack}->account,
        env     => $env,
    );
    return ($status & 127 ? 256 + ($status & 127) : $status >> 8, $out, $err);
}

# Other rules for the commands, not for the nodes.
sub rules_use {
    my ($self, $text) = @_;
    $self->{rules} = $self->{stack}->place->path('tmp') . '/other.rules';
    Edgemeter::Place::replace_file($self->{rules}, 0644,
        $self->{stack}->account, $text);
    return;
}

sub rules_back { delete $_[0]{rules}; return }

# --- what is there ------------------------------------------------------

my %TABLES = (
    counter => 'tenant, counter_name, dimension_key, dimensions, value',
    counter_keys => 'tenant, counter_name, keys',
    entity_state => 'tenant, owner, entity, dimension_key, dimensions',
    tenant_usage_metrics => 'tenant_id, entry_count, storage_bytes,'
        . ' api_call_count, status',
    meter_counter => 'tenant, metric, period_start, customer, group_key,'
        . ' groups, sum, count, min, max, last, last_ts, last_recorded_at,'
        . ' last_writer, last_seq, uniques, watermark_ts, late_sum,'
        . ' late_count, late_min, late_max, late_last, late_last_ts,'
        . ' late_last_recorded_at, late_last_writer, late_last_seq,'
        . ' late_uniques, manual_sum',
    meter_unique => 'tenant, metric, period_start, customer, group_key,'
        . ' value, is_folded',
);

# An entity that is counted nowhere is as good as one that is not known.
my %WHERE = (entity_state => 'WHERE dimension_key IS NOT NULL');

sub tables {
    my ($self) = @_;
    return join "\n", map {
        ("-- $_", sort $self->{stack}->query("SELECT $TABLES{$_}"
                . " FROM meter.$_ " . ($WHERE{$_} // '')))
    } sort keys %TABLES;
}

# Counters and usage as the ledger has them, one event after the other:
# "tenant counter {dimensions} value", "tenant usage ...".
sub model {
    my ($self) = @_;
    my (%row, %place, %usage);
    for my $line ($self->{stack}->query(
        q{SELECT tenant, type, attributes FROM meter.event
            ORDER BY recorded_at, writer, writer_seq}))
    {
        my ($tenant, $type, $text) = split /\t/, $line, 3;
        my $attributes = $JSON->decode($text);
        my $set = $JSON->encode({ route => $attributes->{route} });
        my $key = sub {"$tenant $_[0] $set"};
        my $up  = $type eq 'opened' ? 1 : $type eq 'closed' ? -1 : 0;
        $row{ $key->('calls') } += $attributes->{size} if $type eq 'call';
        if ($up) {
            $row{ $key->('balance') } += $up;
            my $open = $key->('open');
            $row{$open} = _clamp(($row{$open} // 0) + $up);
        }
        if ($type eq 'up' || $type eq 'down') {
            my $where = \$place{"$tenant $attributes->{device}"};
            if ($type eq 'up' && !defined $$where) {
                $row{ $$where = $key->('online') }++;
            }
            elsif ($type eq 'down' && defined $$where) {
                $row{$$where}--;
                undef $$where;
            }
        }
        next if $type eq 'up' || $type eq 'down';
        my $usage = $usage{$tenant} //= [0, 0, 0, 'active'];
        $usage->[0] = _clamp($usage->[0] + $up);
        $usage->[1] = _clamp($usage->[1] + $up * $attributes->{size});
        $usage->[2]++ if $type eq 'call';
        $usage->[3] = 'active'         if $type eq 'born';
        $usage->[3] = 'decommissioned' if $type eq 'dead';
    }
    return join "\n", sort((map {"$_ $row{$_}"} keys %row),
        map {"$_ usage @{ $usage{$_} }"} keys %usage);
}

# The tables in the words of model.
sub totals {
    my ($self) = @_;
    return join "\n", sort map { s/\t/ /gr } $self->{stack}->query(
        'SELECT tenant, counter_name, dimensions, value FROM meter.counter'),
        $self->{stack}->query('SELECT tenant_id, $$usage$$, entry_count,'
            . ' storage_bytes, api_call_count, status'
            . ' FROM meter.tenant_usage_metrics');
}

sub _clamp { return $_[0] < 0 ? 0 : $_[0] }

1;
