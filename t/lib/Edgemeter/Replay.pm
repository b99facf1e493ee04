package Edgemeter::Replay;

# Replay.pm - `meterd replay` beside a node, for tests.
#
#   my $replay = Edgemeter::Replay->start;      # a database, node a
#   my $path = $replay->file('x.ndjson', Edgemeter::Replay::ndjson(@events));
#   my ($status, $out, $err) = $replay->run($path, '--dry-run');
#   $replay->balance('afterwards');             # reconcile, and more
#
# The rules have one of each: counters, a usage row, meters, series, an index,
# a type whose ids are derived. Batches are of 50.

use strict;
use warnings;
use JSON::PP ();
use Test::More;
use Edgemeter::Node;
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::Recount;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

my $JSON = JSON::PP->new->utf8->canonical;

our $RULES = $Edgemeter::Recount::RULES
    =~ s/\{ type: call \}/{ type: call, required: [route], indexed: [route, size] }
  - { type: tick, idempotency: { requireEventId: false } }/r . <<'YAML';
series:
  - { name: calls, kind: counter, on: [call], value: quantity, dimensions: [route] }
  - { name: depth, kind: gauge, policy: last, on: [call, opened], value: size, dimensions: [route] }
  - { name: sizes, kind: histogram, on: [call], value: size, buckets: [1000, 4000000], dimensions: [] }
  - { name: devices, kind: state, on: [up, down, born], entity: device, state: route, dimensions: [] }
YAML

sub start {
    my ($class) = @_;
    my $stack = Edgemeter::Stack->for_test(rules => \$RULES);
    $stack->start_schema;
    $stack->make_tokens;
    my $self = bless {
        stack   => $stack,
        scratch => $stack->place->path('tmp'),
        now     => time,
        count   => 0,
        node    => Edgemeter::Node->start($stack, name => 'a',
            yaml => { limits => '{ batchEvents: 50 }' })->wait_ready,
    }, $class;
    $self->{state} = $self->{node}->state_dir;
    return $self;
}

sub stack { return $_[0]{stack} }
sub node  { return $_[0]{node} }
sub now   { return $_[0]{now} }

# A directory that the command may write to; where its own is.
sub state { return $_[0]{state} }

# --- files and commands ---------------------------------------------------

sub file {
    my ($self, $name, $text) = @_;
    my $path = "$self->{scratch}/$name";
    Edgemeter::Place::replace_file($path, 0644, $self->{stack}->account, $text);
    return $path;
}

sub ndjson { return join '', map { $JSON->encode($_) . "\n" } @_ }

sub text_of {
    my ($path) = @_;
    open my $file, '<', $path or return '';
    local $/;
    return <$file>;
}

# Any command of meterd, with the configuration of the node.
sub command {
    my ($self, @words) = @_;
    return [$self->{stack}{program}, @words, '-c',
        ($self->{stack}->config_arguments)[1], '-c', "$self->{scratch}/a.yaml"];
}

# (exit status, or 256 + signal; stdout; stderr)
sub run_with {
    my ($self, $more, @words) = @_;
    my ($status, $out, $err) = Edgemeter::Process::capture(
        command => $self->command('replay', @words),
        user => $self->{stack}->account, %$more);
    return ($status & 127 ? 256 + ($status & 127) : $status >> 8, $out, $err);
}

sub run {
    my ($self, @words) = @_;
    return $self->run_with({}, @words);
}

# In the background; its output is the text of $replay->log($name).
sub spawn {
    my ($self, $name, $command) = @_;
    return Edgemeter::Process->spawn(name => $name, command => $command,
        user => $self->{stack}->account, log => "$self->{scratch}/$name.log");
}

sub log {
    my ($self, $name) = @_;
    return text_of("$self->{scratch}/$name.log");
}

sub resumes {
    my ($self) = @_;
    my @found = glob "$self->{state}/backfill/*.resume";
    return @found;
}

# Random events of all types that the rules count.
sub events {
    my ($self, $number, %arg) = @_;
    return map {
        my $type = (qw(call call opened closed up down born dead))[rand 8];
        {   event_id => 'e' . ++$self->{count},
            type     => $type,
            ts       => $self->{now}
                - int(rand(8) < 1 ? 7200 + rand 7200 : rand 300),
            quantity => sprintf('%.3f', rand 100),
            (rand(3) < 2 ? (customer => 'c' . int rand 2) : ()),
            attributes => {
                route  => '/' . int rand 4,
                device => 'd' . int(rand 9),
                size   => int rand 9_000_000,
            },
            %arg }
    } 1 .. $number;
}

# --- what is there --------------------------------------------------------

sub settle {
    my ($self) = @_;
    wait_until {
        $self->{stack}->query(q{SELECT (SELECT count(*) FROM meter.series_dirty)
            + (SELECT count(*) FROM meter.writer_seq s
                JOIN meter.writer_flush f USING (writer)
                WHERE f.upto <> s.last)}) eq '0';
    } 60, 'everything is flushed and rolled up';
    return;
}

my %columns = (
    event => 'event_id, type, ts, customer, resource, quantity, count,'
        . ' attributes, source, flags',
    event_index    => 'type, attribute, value, ts, part_day',
    counter        => 'counter_name, dimension_key, dimensions, value',
    entity_state   => 'owner, entity, dimension_key, dimensions',
    meter_counter  => 'metric, period_start, customer, group_key, groups, sum,'
        . ' count, min, max, last, last_ts, uniques, watermark_ts, late_sum,'
        . ' late_count, late_min, late_max, late_last',
    meter_unique => 'metric, period_start, customer, group_key, value',
    series_key   => 'series, version, dimension_key, dimensions',
    (map { ("series_$_" => 'series, version, dimension_key, bucket, count,'
            . ' sum, min, max, last, last_at, labels, counts') }
        qw(5s 1m 1h 1d 7d)),
);

# Everything of a tenant, without its name and who wrote it.
sub books {
    my ($self, $tenant) = @_;
    my $stack = $self->{stack};
    return join "\n", (map {
        ("-- $_", sort $stack->query(
            "SELECT $columns{$_} FROM meter.$_ WHERE tenant = '$tenant'"))
    } sort keys %columns), $stack->query('SELECT entry_count, storage_bytes,'
        . ' api_call_count, status FROM meter.tenant_usage_metrics WHERE'
        . " tenant_id = '$tenant'");
}

# The number of rows of every table there is.
sub row_counts {
    my ($self) = @_;
    my @tables = $self->{stack}->query(q{SELECT c.relname FROM pg_class c
        JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'meter' AND c.relkind IN ('r', 'p')
            AND NOT c.relispartition ORDER BY 1});
    return join "\n", $self->{stack}->query(join ' UNION ALL ',
        map {"SELECT '$_', count(*) FROM meter.$_"} @tables);
}

# "rows ids" of a tenant in the ledger.
sub events_of {
    my ($self, $tenant) = @_;
    return $self->{stack}->query('SELECT count(*), count(DISTINCT event_id)'
        . " FROM meter.event WHERE tenant = '$tenant'") =~ s/\t/ /r;
}

# Two tests that any database here has to pass.
sub balance {
    my ($self, $name) = @_;
    $self->settle;
    my ($status, $out, $err) = Edgemeter::Process::capture(
        command => $self->command('reconcile'),
        user => $self->{stack}->account);
    is +($status >> 8) . " $out", '0 ', "$name: no difference" or diag $err;
    is join(' ', $self->{stack}->query(q{SELECT writer FROM meter.writer_seq w
        WHERE last <> (SELECT count(*) FROM meter.event e
            WHERE e.writer = w.writer)})), '', "$name: dense numbers";
    return;
}

1;
