package Edgemeter::SqlSession;

# SqlSession.pm - a psql that is spoken to statement by statement, for tests of
# what two transactions do to each other.
#
#   my $one = Edgemeter::SqlSession->new($stack, 'one', lock => 'bucket_lock');
#   $one->ask('BEGIN; EXECUTE lock(...);');       # rows, one line each
#   $one->ask_waits('EXECUTE ...;');              # returns once it waits
#   $one->answer;                                 # when it goes on
#
# Runs as meter_writer, with statements of sql/statements prepared under the
# given names. An error is a line "ERROR <sqlstate>".

use strict;
use warnings;
use IPC::Open3 qw(open3);
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

use constant SECONDS => 60;

sub new {
    my ($class, $stack, $name, %statement) = @_;
    my $pid = open3(my $in, my $out, undef, $stack->cluster->{bin} . '/psql',
        qw(-X -q -A -t -F), ' ', qw(-v VERBOSITY=sqlstate),
        $stack->database_url);
    $in->autoflush(1);
    my $self = bless { stack => $stack, name => $name, pid => $pid,
        in => $in, out => $out, parent => $$ }, $class;
    $self->ask("SET application_name = '$name'; SET ROLE meter_writer;"
        . " SET client_min_messages = error;\n" . join '',
        map { "PREPARE $_ AS " . Edgemeter::Stack::statement($statement{$_}) } sort
            keys %statement);
    return $self;
}

sub say_to {
    my ($self, $sql) = @_;
    print { $self->{in} } "$sql\n\\echo done\n";
    return;
}

# Each on a deadline: a statement that waits for ever ends the test.
sub answer {
    my ($self) = @_;
    my @lines;
    local $SIG{ALRM} = sub { die "$self->{name} does not answer\n" };
    alarm SECONDS;
    while (defined(my $line = readline $self->{out})) {
        chomp $line;
        last if $line eq 'done';
        $line =~ s/^(?:psql:\S+ )?ERROR:\s+/ERROR /;
        push @lines, $line;
    }
    alarm 0;
    return join "\n", @lines;
}

sub ask {
    my ($self, $sql) = @_;
    $self->say_to($sql);
    return $self->answer;
}

sub waits {
    my ($self) = @_;
    return $self->{stack}->query('SELECT count(*) FROM pg_stat_activity'
            . " WHERE application_name = '$self->{name}'"
            . " AND wait_event_type = 'Lock'");
}

sub ask_waits {
    my ($self, $sql) = @_;
    $self->say_to($sql);
    wait_until { $self->waits } 30, "$self->{name} waits";
    return;
}

sub end {
    my ($self) = @_;
    my $pid = delete $self->{pid} or return;
    close $self->{in};
    waitpid $pid, 0;
    return;
}

sub DESTROY {
    my ($self) = @_;
    return if $$ != $self->{parent} || !$self->{pid};
    local ($?, $!);
    kill 'KILL', $self->{pid};
    waitpid $self->{pid}, 0;
    return;
}

1;
