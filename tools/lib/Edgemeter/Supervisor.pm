package Edgemeter::Supervisor;

# Supervisor.pm - keeps a stack running in the foreground.
#
#   start -> report -> watch (restart what dies, rewrite env) -> stop
#
# meterd and nginx are started again at once, the second time in a row too, and
# always after kill -9, which is something to try. One that goes on dying by
# itself within ten seconds of its start waits 1 s, 2 s, 4 s and so on, at most
# 30 s, and the end of its log is told. PostgreSQL is started again when the backends of the dead postmaster are
# gone. INT, TERM and HUP end the watch and stop everything in order.

use strict;
use warnings;
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::Wait qw(now pause);

use constant STEP_SECONDS    => 0.05;
use constant SETTLED_SECONDS => 10;
use constant FREE_DEATHS     => 2;
use constant WAIT_MAX        => 30;

my %LOG_OF = (
    postgres => 'postgres',
    meterd   => 'meterd',
    nginx    => 'nginx-error',
);

sub new {
    my ($class, $stack, $say) = @_;
    return bless {
        stack   => $stack,
        say     => $say,
        part    => { map { $_ => { deaths => 0, not_before => 0 } } keys %LOG_OF },
        stopped => 0,
    }, $class;
}

# The whole life; returns the exit status.
sub run {
    my ($self, $ready) = @_;
    my $stack = $self->{stack};

    local $SIG{PIPE} = 'IGNORE';
    my $signal = '';
    local @SIG{qw(INT TERM HUP)} = (sub { $signal ||= $_[0] }) x 3;

    $stack->{interrupted} = sub {$signal};
    if (!eval { $stack->start; 1 }) {
        my $why = $@;
        $self->write_env;
        if ($signal) {
            $self->{say}->('stopped');
            return 0;
        }
        $self->{say}->("make run: $why");
        return 1;
    }
    $self->write_env;
    $ready->() unless $signal;

    until ($signal) {
        pause(STEP_SECONDS);
        last if $signal;
        next if eval { $self->watch; 1 };
        $self->{say}->("make run: $@");
        pause(1);
    }
    $self->{say}->("\nstopping (SIG$signal)");
    my $calm = $self->stop_all;
    $self->{say}->('stopped');
    return $calm ? 0 : 1;
}

# One look at each part.
sub watch {
    my ($self) = @_;
    $self->{stack}->refresh_rules if -r $self->{stack}{rules};
    for my $name (qw(nginx meterd postgres)) {
        next unless $self->{stack}->part($name);
        $self->watch_part($name);
    }
    return;
}

sub watch_part {
    my ($self, $name) = @_;
    my ($stack, $part) = ($self->{stack}, $self->{part}{$name});

    return if $stack->alive($name);
    if (!$part->{down}) {
        return if $name eq 'nginx' && $self->upgraded;
        $self->note_death($name, $part);
    }
    return if now() < $part->{not_before};

    my $started = eval {
        if ($name eq 'postgres') {
            $stack->cluster->relaunch;
        }
        else {
            $stack->start_part($name);
            1;
        }
    };
    if (my $why = $@) {
        chomp $why;
        my $wait = wait_after(++$part->{deaths});
        $self->{say}->("$name: $why" . again($wait));
        $part->{not_before} = now() + $wait;
        return;
    }
    return unless $started;
    $part->{down} = 0;
    $self->write_env;
    $self->{say}->("$name runs again, pid " . $stack->part_pid($name));
    return;
}

sub note_death {
    my ($self, $name, $part) = @_;
    my $object  = $self->{stack}->part($name);
    my $process = Edgemeter::Stack::process_of($object);
    my $young   = $process->age < SETTLED_SECONDS;

    $part->{down}   = 1;
    $part->{deaths} = $process->was_killed ? 0 : $young ? $part->{deaths} + 1 : 1;
    my ($deaths, $fate) = ($part->{deaths}, $process->fate);
    my $wait = wait_after($deaths);
    $part->{not_before} = now() + $wait;
    $fate .= ", $deaths times in a row" if $deaths > 1;
    $self->{say}->("$name (pid " . $process->pid . ") $fate" . again($wait));
    if ($wait > 0) {
        my $log = $self->{stack}->log_path($LOG_OF{$name});
        my ($last) = $self->{stack}->log_tail($LOG_OF{$name}, 1) =~ /(\S.*)/;
        $self->{say}->("  $log ends: " . ($last // 'it is empty'));
    }
    return;
}

# Seconds until it is started again, after so many deaths in a row.
sub wait_after {
    my ($deaths) = @_;
    return 0 if $deaths <= FREE_DEATHS;
    my $seconds = 2**($deaths - FREE_DEATHS - 1);
    return $seconds < WAIT_MAX ? $seconds : WAIT_MAX;
}

sub again {
    my ($wait) = @_;
    return '; starting it again' . ($wait > 0 ? " in $wait s" : '');
}

# A new nginx binary took over from the old master.
sub upgraded {
    my ($self) = @_;
    return 0 unless $self->{stack}{nginx}->adopt_successor;
    $self->write_env;
    $self->{say}
        ->('nginx has a new master, pid ' . $self->{stack}->part_pid('nginx'));
    return 1;
}

sub stop_all {
    my ($self) = @_;
    my $calm = 1;
    for my $name (qw(nginx meterd postgres)) {
        next unless $self->{stack}->alive($name);
        next if $self->{stack}->stop_part($name);
        $calm = 0;
        $self->{say}->("$name did not stop in time and was killed");
    }
    $self->write_env;
    return $calm;
}

# For scripts and for `. .run/env`: who runs where. Replaced as a whole; a
# part that is not running has an empty value. Only a value that a shell would
# not take as it is (a URL with `&`) stands in quotes.
sub write_env {
    my ($self) = @_;
    my $stack = $self->{stack};
    my $place = $stack->place or return;
    my $pid   = sub { $stack->alive($_[0]) ? $stack->part_pid($_[0]) : '' };
    my @line  = (
        [PORT         => $stack->port],
        [DATABASE_URL => $stack->database_url // ''],
        [SOCKET       => $stack->socket],
        [POSTGRES_PID => $pid->('postgres')],
        [METERD_PID   => $pid->('meterd')],
        [NGINX_PID    => $pid->('nginx')],
    );
    Edgemeter::Place::replace_file($place->run_dir . '/env', 0600, undef,
        join '', map { "$_->[0]=" . shell_word($_->[1]) . "\n" } @line);
    return;
}

sub shell_word {
    my ($text) = @_;
    return $text if $text !~ m{[^\w/.,:\@%+=?~-]}a;
    $text =~ s/'/'\\''/g;
    return "'$text'";
}

1;
