package Edgemeter::SeriesHistory;

# SeriesHistory.pm - a random history of events for series, on two meterd
# that die all the time, and what must be left of it.
#
#   my $history = Edgemeter::SeriesHistory->start(seed => 98);
#                       # clients => 4, env => {} of the nodes, meterd => $path
#   $history->crash('a', 'inside_flush');     # dies there, comes back
#   $history->kill_node('b');                 # kill -9, comes back
#   $history->lose_node('a');                 # comes back as somebody else
#   $history->stop;                           # clients end
#   $history->quiesce;                        # nothing left to flush, roll up
#   $history->verify;                         # TAP: all levels, bucket by bucket
#
# Clients send new events, late by seconds to weeks or ahead by minutes, their
# own ones again, and others under an id that is known. What gets no answer
# is sent again, to either node, or given up and looked for afterwards. The
# expected rows are made by SeriesModel.pm from what clients were told.

use strict;
use warnings;
use File::Temp ();
use IO::Handle;
use JSON::PP ();
use POSIX ();
use Test::More ();
use Time::HiRes ();
use Edgemeter::Node;
use Edgemeter::SeriesModel qw(stored_rows stored_floors);
use Edgemeter::Stack;
use Edgemeter::Wait qw(now pause wait_until poll_until);

my $T    = Test::More->builder;
my $JSON = JSON::PP->new->utf8->canonical->allow_nonref;

our @POINTS = qw(after_commit_before_fold inside_flush before_flush_commit
    after_flush_commit before_rollup_commit after_rollup_commit);

our @SERIES = (
    { name => 'calls', kind => 'counter', on => [qw(call sampled)],
        value => 'quantity', dimensions => [qw(route site)] },
    { name => 'volume', kind => 'counter', on => ['call'], value => 'size' },
    (map {
        { name => "temp_$_", kind => 'gauge', policy => $_, value => 'temp',
            on => [qw(sampled moved)], dimensions => ['site'] }
    } qw(avg min max last)),
    { name => 'latency', kind => 'histogram', on => [qw(call moved)],
        value => 'ms', buckets => [qw(0.5 1 10 50.25 1000)],
        dimensions => ['route'] },
    { name => 'orders', kind => 'state', on => [qw(moved sampled)],
        entity => 'order', state => 'state', dimensions => ['site'] },
    { name => 'flow', kind => 'state', on => ['moved'], entity => 'order',
        state => 'state' },
);

my $EVENTS = "events: [ { type: call }, { type: sampled }, { type: moved } ]\n";
my $TABLES = 'retention: { series5s: 3d, series1m: 6d, series1h: 30d }' . "\n";

# --- nodes --------------------------------------------------------------

sub start {
    my ($class, %arg) = @_;
    my $self = bless {
        seed      => 1,
        clients   => 4,
        directory => File::Temp->newdir('em-history-XXXXXX', TMPDIR => 1),
        model     => Edgemeter::SeriesModel->new(\@SERIES),
        deaths    => 0,
        %arg,
    }, $class;
    my $rules = $EVENTS . $TABLES . $self->{model}->rules ;
    $self->{stack} = Edgemeter::Stack->for_test(rules => \$rules,
        $arg{meterd} ? (meterd => $arg{meterd}) : ());
    $self->{stack}->start_schema;
    $self->{stack}->make_tokens;
    $self->node_start($_) for qw(a b);
    $_->wait_ready for values %{ $self->{node} };
    $self->client_start($_) for 1 .. $self->{clients};
    return $self;
}

sub stack { return $_[0]{stack} }
sub node  { return $_[0]{node}{ $_[1] } }

sub node_start {
    my ($self, $name, %env) = @_;
    delete $self->{node}{$name};
    return $self->{node}{$name} = Edgemeter::Node->start($self->{stack},
        name => $name, env => { %{ $self->{env} // {} }, %env });
}

sub node_kill {
    my ($self, $name) = @_;
    my $process = $self->{node}{$name}->process;
    $process->signal('KILL');
    wait_until { !$process->alive } 20, "$name is gone";
    $self->{deaths}++;
    return;
}

sub kill_node {
    my ($self, $name) = @_;
    $self->node_kill($name);
    $self->node_start($name)->wait_ready(60);
    return;
}

# Starts it anew so that it dies when it comes to the point for the n-th
# time; true when it did.
sub arm {
    my ($self, $name, $point, $times) = @_;
    $self->node_kill($name);
    $self->node_start($name, METERD_CRASH_POINT => "$point:" . ($times // 1));
    return;
}

sub wait_dead {
    my ($self, $name, $seconds) = @_;
    my $process = $self->{node}{$name}->process;
    my $is_dead = poll_until { !$process->alive } $seconds // 40;
    $self->node_kill($name) if !$is_dead;
    $self->{deaths}++ if $is_dead;
    $self->node_start($name);
    return $is_dead;
}

sub crash {
    my ($self, $name, $point, $times) = @_;
    $self->arm($name, $point, $times);
    my $is_dead = $self->wait_dead($name);
    $self->{node}{$name}->wait_ready(60);
    return $is_dead;
}

# The host is gone with its state; somebody else has to flush its tail.
# A minute without heartbeat is made up.
sub lose_node {
    my ($self, $name) = @_;
    my $stack = $self->{stack};
    $self->node_kill($name);
    my $state = $self->{node}{$name}->state_dir;
    unlink glob "$state/*";
    $stack->query("UPDATE meter.writer_seq SET heartbeat_at"
        . " = heartbeat_at - interval '2 minutes' WHERE writer IN"
        . " (SELECT writer FROM meter.writer WHERE node = '$name')");
    $self->node_start($name)->wait_ready(60);
    $self->{lost}++;
    return;
}

# As an operator or the timer has it, again and again: what is still to be
# rolled up keeps a floor down. True when nothing was left.
sub retention {
    my ($self, $seconds) = @_;
    my $stack = $self->{stack};
    my ($status, $out, $err);
    return 1 if poll_until {
        ($status, $out, $err) = $stack->meterd_command('retention',
            $stack->config_arguments);
        $status == 0;
    } $seconds // 30;
    $T->diag($err . $out);
    return 0;
}

# --- clients ------------------------------------------------------------

sub client_start {
    my ($self, $client) = @_;
    my $pid = fork // die "fork: $!\n";
    if ($pid == 0) {
        my $ended = eval { $self->client_run($client); 1 };
        print STDERR "# client $client: $@" unless $ended;
        POSIX::_exit($ended ? 0 : 1);
    }
    push @{ $self->{pids} }, $pid;
    return;
}

sub stop {
    my ($self) = @_;
    open my $flag, '>', "$self->{directory}/stop" or die $!;
    close $flag;
    for my $pid (@{ delete $self->{pids} // [] }) {
        wait_until { waitpid($pid, POSIX::WNOHANG()) == $pid } 90,
            "client $pid ends";
        $self->{failed}++ if $?;
    }
    return;
}

sub DESTROY {
    my ($self) = @_;
    kill 'KILL', @{ $self->{pids} } if $self->{pids};
    return;
}

# How many events got an answer so far, about.
sub answered {
    my ($self) = @_;
    my $bytes = 0;
    $bytes += -s $_ // 0 for glob "$self->{directory}/told-*";
    return $bytes / 300;
}

sub pick { return $_[rand @_] }

# A line for each event that got its answer, or never will.
sub client_run {
    my ($self, $client) = @_;
    srand $self->{seed} * 1000 + $client;
    @$self{qw(client number)} = ($client, 0);
    open $self->{told}, '>', "$self->{directory}/told-$client" or die $!;
    $self->{told}->autoflush(1);
    until (-e "$self->{directory}/stop") {
        my $tenant = pick(qw(acme globex));
        my %in;
        my @batch = grep { !$in{ $_->{id} }++ }
            map { $self->next_event($tenant) } 1 .. pick(1, 1, 2, 5, 20, 60);
        $self->deliver($tenant, \@batch);
        pause($self->{pause} // 0.01);
    }
    close $self->{told} or die $!;
    return;
}

# expect: what it must be told when this is the first try.
sub next_event {
    my ($self, $tenant) = @_;
    my $known = $self->{known}{$tenant} //= [];
    my $roll  = rand;
    if (@$known && $roll < 0.15) {
        my $old = pick(@$known);
        return { %$old, expect => 'duplicate' } if $roll < 0.1;
        return { %$old, expect => 'conflict', quantity => '77777.7' };
    }
    my %event = (
        id         => sprintf('h-%d-%d', $self->{client}, ++$self->{number}),
        type       => pick(qw(call call sampled moved)),
        ts_us      => instant(),
        quantity   => decimal(),
        attributes => attributes(),
        expect     => 'accepted',
    );
    if ($roll > 0.97) {
        my %wrong = (call => 'ms', sampled => 'temp', moved => 'order');
        $event{attributes}{ $wrong{ $event{type} } }
            = $event{type} eq 'moved' ? '[1]' : '"much"';
        $event{expect} = 'rejected';
    }
    return \%event;
}

sub instant {
    my $now  = int(Time::HiRes::time() * 1e6);
    my $roll = rand;
    return $now - int rand 2e6                  if $roll < 0.5;
    return $now - int rand 120e6                if $roll < 0.65;
    return $now - int rand 10 * 86_400e6        if $roll < 0.8;
    return $now - int rand 60 * 86_400e6        if $roll < 0.85;
    return $now + int rand 3_000e6              if $roll < 0.9;
    return Edgemeter::SeriesModel::bucket(
        pick(@Edgemeter::SeriesModel::LEVELS), $now) - pick(0, 0, 1);
}

sub decimal {
    return pick('0', '1', '1', '-3', '99999999999999999999999999999.999999999',
        '-70000000000000000000000000000', sprintf('%.*f', int rand 10, rand 900),
        sprintf('%.*f', int rand 4, rand(900) - 450));
}

sub attributes {
    my %of = (
        route => $JSON->encode(pick('/a', '/b', '/c')),
        site  => pick('1', '"1"', '"x"', 'null'),
        size  => rand() < 0.8 ? int rand 1e6 : pick('999999999999999999', '0'),
        temp  => decimal(),
        ms    => pick('0.5', '1', '50.25', '50.250000001', decimal()),
        order => '"o' . int(rand 12) . '"',
        state => pick('"new"', '"new"', '"paid"', qq("sent \xc3\xa9\\""), '7',
            'true'),
    );
    delete $of{$_} for grep { rand() < 0.05 } sort keys %of;
    return \%of;
}

sub text_of {
    my ($event) = @_;
    my %a = %{ $event->{attributes} };
    my ($second, $micro) = (POSIX::floor($event->{ts_us} / 1e6),
        $event->{ts_us} % 1_000_000);
    return sprintf '{"event_id":"%s","type":"%s","ts":"%s.%06dZ",'
        . '"quantity":%s,"attributes":{%s}}', @$event{qw(id type)},
        POSIX::strftime('%Y-%m-%dT%H:%M:%S', gmtime $second), $micro,
        $event->{quantity}, join ',', map {qq("$_":$a{$_})} sort keys %a;
}

# To one node, or to both at the same moment: how many, what they answered.
sub attempt {
    my ($self, $tenant, $body) = @_;
    my $bytes = Edgemeter::SocketClient::encode(
        method => 'POST',
        path   => '/v1/events',
        type   => 'application/json',
        token  => $self->{token}{$tenant} //= $self->{stack}->token($tenant),
        body   => $body,
    );
    my @names = rand() < 0.1 ? qw(a b) : pick(qw(a b));
    my @clients = grep { $_ && $_->send($bytes) }
        map { $self->{node}{$_}->client } @names;
    my @answers = grep { $_ && $_->{status} == 200 }
        map { $_->receive } @clients;
    return (scalar @names,
        map { $_->{json}{results} // die "no results\n" } @answers);
}

sub deliver {
    my ($self, $tenant, $batch) = @_;
    my $body  = '[' . join(',', map { text_of($_) } @$batch) . ']';
    my $tries = 0;
    while (1) {
        my ($sends, @results) = $self->attempt($tenant, $body);
        $tries += $sends;
        if (@results) {
            $self->told($tenant, $batch, $tries > 1, @results);
            return;
        }
        if (rand() < 0.05 || -e "$self->{directory}/stop") {
            $self->line($tenant, $_, 'unknown')
                for grep { $_->{expect} eq 'accepted' } @$batch;
            return;
        }
        pause(0.02);
    }
}

# was_sent: it may have been accepted without an answer.
sub told {
    my ($self, $tenant, $batch, $was_sent, @results) = @_;
    for my $i (0 .. $#$batch) {
        my $event = $batch->[$i];
        my @verdicts = map { $_->[$i]{verdict} } @results;
        my ($why) = map { $_->[$i]{error} // () } @results;
        for (@results) {
            die "results are out of order\n"
                if $_->[$i]{event_id} ne $event->{id};
        }
        my $allowed = $event->{expect} eq 'accepted' && $was_sent
            ? qr/^(?:accepted|duplicate)$/ : qr/^$event->{expect}$/;
        for (grep { $_ !~ $allowed } @verdicts) {
            $self->line($tenant, $event, "wrong: $_, " . ($why // ''));
        }
        next if $event->{expect} ne 'accepted';
        $self->line($tenant, $event, $_) for @verdicts;
        push @{ $self->{known}{$tenant} }, $event
            if $verdicts[0] ne 'rejected';
    }
    return;
}

sub line {
    my ($self, $tenant, $event, $verdict) = @_;
    print { $self->{told} } join("\t", $tenant, $event->{id}, $verdict,
        $JSON->encode($event)), "\n";
    return;
}

# --- afterwards ---------------------------------------------------------

# All writers have flushed all they have, and nothing is to be rolled up.
sub quiesce {
    my ($self, $seconds) = @_;
    my $left = '';
    my $done = poll_until {
        $left = $self->{stack}->query(q{
            SELECT (SELECT coalesce(sum(s.last - f.upto), 0)
                    FROM meter.writer_seq AS s
                    INNER JOIN meter.writer_flush AS f USING (writer)),
                (SELECT count(*) FROM meter.series_dirty)});
        $left eq "0\t0";
    } $seconds // 60;
    $T->ok($done, 'everything is flushed and rolled up')
        or $T->diag("unflushed, marks: $left");
    return $done;
}

# (events by id, verdicts by id): what clients were told.
sub answers {
    my ($self) = @_;
    my (%event, %told);
    for my $path (glob "$self->{directory}/told-*") {
        open my $in, '<', $path or die $!;
        while (<$in>) {
            my ($tenant, $id, $verdict, $json) = split /\t/, $_, 4;
            $told{$id}{$verdict}++;
            $event{$id} = { %{ $JSON->decode($json) }, tenant => $tenant };
        }
    }
    return (\%event, \%told);
}

# Those without an answer are asked for, one by one.
sub accepted {
    my ($self, $event, $told) = @_;
    my ($asked, @found) = (0);
    for my $id (sort keys %$event) {
        my $verdicts = $told->{$id};
        if ($verdicts->{accepted} || $verdicts->{duplicate}) {
            push @found, $id;
            next;
        }
        next if !$verdicts->{unknown};
        $asked++;
        my $got = $self->{node}{a}->ask(path => "/v1/events/$id",
            token => $self->{stack}->token($event->{$id}{tenant}));
        push @found, $id if $got->{status} == 200;
        die "/v1/events/$id: $got->{status}\n"
            if $got->{status} !~ /^(?:200|404)$/;
    }
    $T->note("$asked events without an answer were looked up") if $asked;
    return @found;
}

sub verify {
    my ($self) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my ($event, $told) = $self->answers;
    my @wrong = grep { grep {/^wrong/} keys %{ $told->{$_} } } keys %$told;
    none('every verdict is the right one',
        map { "$_: " . join ' ', %{ $told->{$_} } } @wrong);
    none('no event was accepted twice',
        grep { ($told->{$_}{accepted} // 0) > 1 } keys %$told);
    my @accepted = $self->accepted($event, $told);
    my %place;
    for my $line ($self->{stack}->query(q{
        SELECT event_id, (extract(epoch FROM recorded_at) * 1000000)::bigint,
            writer, writer_seq FROM meter.event}))
    {
        my ($id, $recorded_us, $writer, $seq) = split /\t/, $line;
        $place{$id} = { recorded_us => $recorded_us, writer => $writer,
            seq => $seq };
    }
    none('every accepted event is in the ledger',
        grep { !$place{$_} } @accepted);
    my %is_accepted = map { $_ => 1 } @accepted;
    none('nothing else is', grep { !$is_accepted{$_} } keys %place);
    for my $id (grep { $place{$_} } @accepted) {
        $self->{model}->add($event->{$id}{tenant}, $event->{$id},
            $place{$id});
    }
    $self->{accepted} = @accepted;
    my $floors = stored_floors($self->{stack});
    $self->verify_level($_, $floors->{$_})
        for @Edgemeter::SeriesModel::LEVELS;
    return;
}

# Buckets below the floor have gone, or will.
sub verify_level {
    my ($self, $level, $floor_us) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $expected = $self->{model}->rows($level);
    my $stored   = stored_rows($self->{stack}, $level);
    my $kept     = sub { (split /\t/, $_[0])[3] >= $floor_us };
    my @expected = grep { $kept->($_) } keys %$expected;
    my @wrong;
    for my $key (sort @expected) {
        my $found = delete $stored->{$key};
        push @wrong, "$key\n#   expected $expected->{$key}\n#   stored   "
            . ($found // 'nothing')
            if ($found // '') ne $expected->{$key};
    }
    push @wrong, map {"$_\n#   stored   $stored->{$_}, nobody knows why"}
        grep { $kept->($_) } sort keys %$stored;
    none(sprintf('%s: %d buckets', $level, scalar @expected), @wrong);
    return;
}

sub none {
    my ($name, @found) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    $T->ok(!@found, $name)
        or $T->diag(scalar @found . " offenders:\n"
            . join "\n", splice @found, 0, 8);
    return;
}

1;
