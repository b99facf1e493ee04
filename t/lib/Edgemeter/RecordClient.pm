package Edgemeter::RecordClient;

# RecordClient.pm - drives t/integration/record_client.c for a test.
#
#   my $client = Edgemeter::RecordClient->start($stack, env => {...});
#   my $other  = Edgemeter::RecordClient->start($stack, state => 'other');
#                                        # a lane of its own
#   $client->tell("r EVENT a.route=/x\nsend tag 1 1");  # one write, one batch
#   is $client->answer('tag'), 'done ...';
#   is $client->ask('hello h 1 0', 'h'), 'done ...';    # both in one
#   $client->logged(qr/.../);                           # waits for a log line
#   my $holder = $client->holder($sql);  # an open transaction that ends when
#                                        # somebody waits for it, or when
#                                        # this query has a row

use strict;
use warnings;
use File::Copy ();
use POSIX ();
use Test::More;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until poll_until);

use constant ANSWER_SECONDS => 30;

my $started = 0;

sub start {
    my ($class, $stack, %arg) = @_;
    my $build = ($ENV{METERD} // '') =~ m{build-asan/} ? 'build-asan' : 'build';
    my $scratch = $stack->place->path('tmp');
    my $program = "$scratch/record_client";
    if (!-e $program) {
        File::Copy::copy(Edgemeter::Stack::root()
                . "/$build/integration/record_client", $program)
            or die "record_client: $!\n";
        chmod 0755, $program;
    }
    my $self = bless {
        stack => $stack,
        log   => "$scratch/record_client" . ++$started . '.log',
        fifo  => "$scratch/record_client$started.fifo",
        read  => 0,
        said  => {},
    }, $class;
    POSIX::mkfifo($self->{fifo}, 0600) or die "$self->{fifo}: $!\n";
    $stack->account->own($self->{fifo});
    my @settings = grep { $_ ne '-c' } $stack->config_arguments;
    $settings[1] = other_state($stack, $settings[1], $arg{state})
        if $arg{state};
    $self->{process} = Edgemeter::Process->spawn(
        name    => 'record_client',
        log     => $self->{log},
        user    => $stack->account,
        env     => $arg{env},
        command => [$program, $self->{fifo}, @settings],
    );
    open $self->{commands}, '+>', $self->{fifo} or die "$self->{fifo}: $!\n";
    $self->{commands}->autoflush(1);
    $self->answer('ready');
    return $self;
}

# The settings with a state directory of this name.
sub other_state {
    my ($stack, $settings, $name) = @_;
    my $directory = $stack->place->path('tmp') . "/$name";
    mkdir $directory, 0750 or die "$directory: $!\n";
    $stack->account->own($directory);
    open my $from, '<', $settings or die "$settings: $!\n";
    my $text = do { local $/; <$from> };
    $text =~ s/^stateDir: .*$/stateDir: '$directory'/m;
    my $path = "$directory.yaml";
    open my $to, '>', $path or die "$path: $!\n";
    print {$to} $text;
    close $to or die "$path: $!\n";
    $stack->account->own($path);
    return $path;
}

sub alive  { return $_[0]{process}->alive }
sub status { return $_[0]{process}->status }

sub text {
    my ($self) = @_;
    open my $file, '<', $self->{log} or return '';
    local $/;
    return <$file> // '';
}

sub tell {
    my ($self, $lines) = @_;
    syswrite $self->{commands}, "$lines\n" or die "$self->{fifo}: $!\n";
    return;
}

# Takes in the lines said since, by their first word.
sub listen {
    my ($self) = @_;
    my $text = substr $self->text, $self->{read};
    $text =~ s/[^\n]*\z//;
    $self->{read} += length $text;
    for my $line (grep { !/^\{/ } split /\n/, $text) {
        my ($tag, $rest) = split / /, $line, 2;
        push @{ $self->{said}{$tag} }, $rest // '';
    }
    return;
}

# The next line that starts with this word, without it.
sub answer {
    my ($self, $tag) = @_;
    my $found = poll_until {
        $self->listen;
        @{ $self->{said}{$tag} // [] } > 0 || !$self->alive
    } ANSWER_SECONDS;
    $self->listen;
    my $answer = shift @{ $self->{said}{$tag} // [] };
    diag $self->text if !defined $answer;
    return $answer // 'no answer';
}

sub ask {
    my ($self, $lines, $tag) = @_;
    $self->tell($lines);
    return $self->answer($tag);
}

sub ask_all {
    my ($self, $lines, @tags) = @_;
    $self->tell($lines);
    return map { $self->answer($_) } @tags;
}

sub logged {
    my ($self, $pattern) = @_;
    my $found = poll_until { $self->text =~ $pattern } ANSWER_SECONDS;
    ok $found, "logged: $pattern" or diag $self->text;
    return;
}

# The time as an event of the API wants it.
sub now { return POSIX::strftime('%Y-%m-%dT%H:%M:%SZ', gmtime) }

# A transaction of somebody else; returns when it has run the statement.
sub holder {
    my ($self, $sql, $until) = @_;
    my $stack = $self->{stack};
    $until //= "SELECT FROM pg_locks WHERE NOT granted"
        . " AND locktype = 'transactionid'";
    my $name = 'holder' . ++$started;
    my $log = $stack->place->path('tmp') . "/$name.log";
    my $process = Edgemeter::Process->spawn(
        name    => $name,
        log     => $log,
        user    => $stack->account,
        command => [
            $stack->cluster->{bin} . '/psql', '-q', '--dbname',
            $stack->database_url, '-c', 'BEGIN', '-c', $sql, '-c',
            '\\echo held', '-c', <<"SQL", '-c', 'COMMIT'],
DO \$\$
BEGIN
    FOR i IN 1 .. 4000 LOOP
        EXIT WHEN EXISTS ($until);
        PERFORM pg_sleep(0.005);
    END LOOP;
END
\$\$
SQL
    );
    wait_until {
        open my $file, '<', $log or return 0;
        local $/;
        (<$file> // '') =~ /held/
    } 10, 'the other transaction holds';
    return $process;
}

1;
