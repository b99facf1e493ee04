package Edgemeter::CounterLoad;

# CounterLoad.pm - clients that write counters while things break, and what
# must be stored afterwards.
#
#   my $load = Edgemeter::CounterLoad->new(nodes => [$stack, $other]);
#   $load->start;            # forks
#   ... break things ...
#   $load->stop;             # what has a key is repeated until it is answered
#   $load->verify;           # nodes are stopped for it, and started again
#
# Clients work in pairs, one on each node (or both on the one), that send the
# same writes with the same keys in the same order:
#
#   own      a bucket of the pair, all kinds of writes: every answer, the
#            first one or a repeated one, is that of a model
#   shared   buckets of all, with keys: each counts once, to the last one
#   plain    buckets of all, without keys: between what was answered and that
#            with all that was neither answered nor refused
#
# Some do not wait for their answer and close the connection.

use strict;
use warnings;
use File::Temp ();
use POSIX ();
use Test::Builder;
use Edgemeter::CounterClients qw(run_clients ask_one write_request stamp);
use Edgemeter::CounterModel qw($NEGATIVE);
use Edgemeter::Wait qw(wait_until);

my $T  = Test::Builder->new;
my $AT = '2026-01-01T00:00:00Z';

# Answers of a write that has not happened, without a key.
my %REFUSED = map { $_ => 1 } 400, 409, 429, 503;

sub new {
    my ($class, %arg) = @_;
    return bless {
        pairs     => 12,
        processes => 2,
        tenant    => 'acme',
        directory => File::Temp->newdir('em-counter-XXXXXX', TMPDIR => 1),
        %arg,
    }, $class;
}

sub start {
    my ($self) = @_;
    $self->{token} = $self->{nodes}[0]->token($self->{tenant});
    $self->{ports} = [map { $_->port } @{ $self->{nodes} }];
    for my $process (0 .. $self->{processes} - 1) {
        my $pid = fork // die "fork: $!";
        if ($pid == 0) {
            my $good = eval { $self->run($process); 1 };
            print STDERR "# $@" unless $good;
            POSIX::_exit($good ? 0 : 1);
        }
        push @{ $self->{pids} }, $pid;
    }
    return $self;
}

sub stop {
    my ($self) = @_;
    open my $flag, '>', "$self->{directory}/stop" or die $!;
    close $flag;
    $self->{failed} = 0;
    for my $pid (@{ $self->{pids} }) {
        wait_until { waitpid($pid, POSIX::WNOHANG()) == $pid } 120,
            "clients $pid end";
        $self->{failed}++ if $?;
    }
    delete $self->{pids};
    return $self;
}

sub DESTROY {
    my ($self) = @_;
    kill 'KILL', @{ $self->{pids} } if $self->{pids};
    return;
}

# How many writes have ended so far, about.
sub progress {
    my ($self) = @_;
    my $bytes = 0;
    $bytes += -s $_ // 0 for glob "$self->{directory}/told-*";
    return int($bytes / 60);
}

# Dies unless writes go on being answered.
sub wait_more {
    my ($self, $count, $seconds) = @_;
    my $before = $self->progress;
    wait_until { $self->progress > $before + $count } $seconds // 60,
        'writes go on';
    return;
}

# --- clients ------------------------------------------------------------

sub run {
    my ($self, $process) = @_;
    srand 1000 * $process + $$;
    my @clients;
    for my $pair (0 .. $self->{pairs} - 1) {
        next if $pair % $self->{processes} != $process;
        push @clients, $self->client($pair, $_) for 0, 1;
    }
    run_clients(@clients);
    return;
}

sub client {
    my ($self, $pair, $side) = @_;
    my $ports = $self->{ports};
    my %client = (
        pair   => $pair,
        side   => $side,
        port   => $ports->[$side % @$ports],
        token  => $self->{token},
        model  => Edgemeter::CounterModel->new,
        random => $pair + 1,
        number => 0,
    );
    open $client{log}, '>', "$self->{directory}/told-$pair-$side" or die $!;
    $client{log}->autoflush(1);
    $client{next} = sub { $self->next_request(\%client) };
    $client{told} = sub { $self->told(\%client, @_) };
    return \%client;
}

# The same for both of a pair.
sub draw {
    my ($client, $below) = @_;
    $client->{random} = ($client->{random} * 1103515245 + 12345) % 2147483648;
    return int($client->{random} / 65536) % $below;
}

sub next_request {
    my ($self, $client) = @_;
    if ($client->{wait}) {
        return delete $client->{wait};
    }
    if (!$client->{write} && -e "$self->{directory}/stop") {
        close $client->{log} or die $!;
        return;
    }
    my $write = $client->{write} //= rand() < 0.4 ? plain_write()
        : keyed_write($client);
    return {
        %{ request_of($self->{tenant}, $write) },
        write => $write,
        rand() < 0.05 ? (seconds => rand 0.05) : (),
    };
}

sub request_of {
    my ($tenant, $write) = @_;
    return write_request(
        $write->{endpoint}, $tenant, $write->{name}, 0, $AT,
        ($write->{kind} eq 'set' ? 'target' : 'amount') => $write->{amount},
        key => $write->{key},
        $write->{expires} ? (expires => stamp($write->{expires})) : (),
    );
}

sub plain_write {
    my $kind = rand() < 0.7 ? 'increment' : 'decrement';
    return {
        sort     => 'plain',
        kind     => $kind,
        endpoint => rand() < 0.3 ? "${kind}Sync" : $kind,
        name     => 'plain' . int rand 4,
        amount   => 1 + int rand 9,
    };
}

sub keyed_write {
    my ($client) = @_;
    my $is_own = draw($client, 2);
    my $kind = (qw(increment increment decrement set))
        [draw($client, $is_own ? 4 : 3)];
    return {
        sort     => $is_own ? 'own' : 'shared',
        kind     => $kind,
        endpoint => $kind ne 'set' && draw($client, 3) == 0 ? "${kind}Sync"
            : $kind,
        name     => $is_own ? "own$client->{pair}" : 'shared' . draw($client, 4),
        amount   => 1 + draw($client, 9),
        key      => "key-$client->{pair}-" . $client->{number}++,
        draw($client, 3) == 0
        ? (expires => 4_000_000_000 + draw($client, 1000)) : (),
    };
}

sub told {
    my ($self, $client, $request, $answer) = @_;
    my ($write, $status) = ($request->{write}, $answer->{status});
    my $end = end_of($write, $answer);
    die "unexpected: $status $answer->{body} for $request->{path}"
        . " $request->{body}\n" if !$end;
    if ($end eq 'again') {
        $client->{wait} = 0.02;
        line($client, $write, 'again', $status, '');
        return;
    }
    delete $client->{write};
    $client->{wait} = 0.02 if $end ne 'done';
    line($client, $write, $end, $status, $answer->{body} // '');
    return if $write->{sort} ne 'own';
    my ($right, $body) = $client->{model}->write(
        { %$write, tenant => $self->{tenant}, duration => 0, at => 0 });
    die "$write->{key}: $status $answer->{body}, not $right $body\n"
        if $status != $right || $answer->{body} ne $body;
    return;
}

# What is known of a write now; none: it must not be answered so.
sub end_of {
    my ($write, $answer) = @_;
    my $status = $answer->{status};
    return 'done' if $status == 200 && defined $answer->{net};
    return 'refused' if $status == 409 && $answer->{body} eq $NEGATIVE;
    return if $status && $status !~ /^(?:429|503|504)$/;
    return if $status == 504 && $answer->{body} !~ /"outcome":"unknown"/;
    return 'again' if defined $write->{key};
    return 'refused' if $REFUSED{$status} || !$status && !$answer->{sent};
    return 'unknown';
}

sub line {
    my ($client, $write, $end, $status, $body) = @_;
    $body =~ s/\n\z//;
    print { $client->{log} } join("\t", $end, $status,
        map({ $_ // '' } @$write{qw(sort kind endpoint name amount key
            expires)}), $body), "\n";
    return;
}

# --- afterwards ---------------------------------------------------------

# Every line that a client wrote.
sub lines {
    my ($self) = @_;
    my @lines;
    for my $path (glob "$self->{directory}/told-*") {
        open my $log, '<', $path or die $!;
        while (<$log>) {
            chomp;
            my %line;
            @line{qw(end status sort kind endpoint name amount key expires
                body)} = split /\t/, $_, -1;
            push @lines, \%line;
        }
    }
    return @lines;
}

# Draining, so that nothing is on its way any more.
sub verify {
    my ($self) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    $T->is_num($self->{failed}, 0, 'all clients ended well');
    my @lines = $self->lines;
    my %count;
    $count{"$_->{sort} $_->{end}"}++ for @lines;
    $count{"status $_->{status}"}++ for @lines;
    $T->diag(join ', ', map {"$_: $count{$_}"} sort keys %count);
    $self->{count} = \%count;

    $_->stop_part('meterd') for @{ $self->{nodes} };
    my $first = $self->{nodes}[0];
    my %stored = map { /^(\S+) (.*)$/ } $first->query(
        "SELECT name || ' ' || added || ' ' || subbed FROM"
            . " meter.bucket_counter WHERE tenant = '$self->{tenant}'");
    my %of = $self->verify_answers(@lines);
    $self->verify_keyed(\%of, \%stored);
    $self->verify_plain(\%stored, @lines);
    $T->is_num($first->query('SELECT count(*) FROM meter.api_idempotency'),
        scalar keys %of, scalar(keys %of) . ' answers are kept');

    $_->start_part('meterd') for @{ $self->{nodes} };
    $_->wait_healthy for @{ $self->{nodes} };
    $self->verify_repeats(\%of, \%stored);
    return;
}

# Both of a pair were told the same of each key.
sub verify_answers {
    my ($self, @lines) = @_;
    my (%of, @wrong);
    for my $line (grep { length $_->{key} && $_->{end} ne 'again' } @lines) {
        my $known = $of{ $line->{key} } //= $line;
        push @wrong, "$line->{key}: $line->{body}, and $known->{body}"
            if $line->{body} ne $known->{body};
    }
    none('the same key, the same answer', @wrong);
    return %of;
}

sub verify_keyed {
    my ($self, $of, $stored) = @_;
    my (%right, @wrong);
    for my $line (grep { $_->{sort} eq 'shared' } values %$of) {
        my $sum = $right{ $line->{name} } //= { increment => 0,
            decrement => 0 };
        $sum->{ $line->{kind} } += $line->{amount} if $line->{end} eq 'done';
    }
    for my $name (sort keys %right) {
        my $sum = join ' ', @{ $right{$name} }{qw(increment decrement)};
        my $found = $stored->{$name} // '0 0';
        push @wrong, "$name: $found, not $sum" if $found ne $sum;
    }
    none('what has a key has counted once', @wrong);

    # The last answer of a bucket of one pair is what is stored.
    my %last;
    for my $line (grep { $_->{sort} eq 'own' && $_->{end} eq 'done' }
        values %$of)
    {
        my ($number) = $line->{key} =~ /(\d+)$/;
        my $known = $last{ $line->{name} };
        $last{ $line->{name} } = [$number, $line->{body}]
            if !$known || $known->[0] < $number;
    }
    none('buckets of one pair are as they were answered last', map {
        my ($added, $subbed) = $last{$_}[1] =~ /"added":"(\d+)","subbed":"(\d+)"/;
        ($stored->{$_} // '') eq "$added $subbed" ? ()
            : "$_: $stored->{$_}, not $added $subbed"
    } sort keys %last);
    return;
}

sub verify_plain {
    my ($self, $stored, @lines) = @_;
    my (%least, %most, @wrong);
    for my $line (grep { $_->{sort} eq 'plain' } @lines) {
        my $what = "$line->{name} $line->{kind}";
        $_->{$what} //= 0 for \%least, \%most;
        $least{$what} += $line->{amount} if $line->{end} eq 'done';
        $most{$what}  += $line->{amount} if $line->{end} ne 'refused';
    }
    for my $what (sort keys %least) {
        my ($name, $kind) = split / /, $what;
        my ($added, $subbed) = split / /, $stored->{$name} // '0 0';
        my $found = $kind eq 'increment' ? $added : $subbed;
        push @wrong, "$what: $found, not $least{$what} to $most{$what}"
            if $found < $least{$what} || $found > $most{$what};
    }
    none('without a key: between answered and not refused', @wrong);
    return;
}

# Once more, long afterwards, at any node: the first answer, and no count.
sub verify_repeats {
    my ($self, $of, $stored) = @_;
    my @some = sort { $a->{key} cmp $b->{key} } values %$of;
    my $each = int(@some / 200) + 1;
    @some = @some[grep { $_ % $each == 0 } 0 .. $#some];
    my @wrong;
    for my $i (0 .. $#some) {
        my $line = $some[$i];
        my $answer = ask_one($self->{ports}[$i % @{ $self->{ports} }],
            $self->{token}, request_of($self->{tenant}, $line));
        push @wrong, "$line->{key}: $answer->{status}"
            . " $answer->{body}, not $line->{status} $line->{body}"
            if "$answer->{status} $answer->{body}"
            ne "$line->{status} $line->{body}";
    }
    none(scalar(@some) . ' keys once more: the same answers', @wrong);
    my %again = map { /^(\S+) (.*)$/ } $self->{nodes}[0]->query(
        "SELECT name || ' ' || added || ' ' || subbed FROM"
            . " meter.bucket_counter WHERE tenant = '$self->{tenant}'");
    none('and nothing has changed', grep { $again{$_} ne $stored->{$_} }
        keys %again);
    return;
}

sub none {
    my ($name, @found) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 2;
    $T->ok(!@found, $name)
        or $T->diag(scalar @found . " offenders:\n"
            . join "\n", splice @found, 0, 8);
    return;
}

1;
