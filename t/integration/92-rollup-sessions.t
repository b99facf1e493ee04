#!/usr/bin/perl

# 92-rollup-sessions.t - two that roll up and one that flushes, statement by
# statement in sessions of their own: whatever the order, no mark is lost and
# the last to write a bucket has read all of it.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use IPC::Open2 qw(open2);
use Test::More;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

my $stack = Edgemeter::Stack->for_test->start_schema;
my $root  = Edgemeter::Stack::root();
my @children;

# Each on a deadline: a statement that waits for ever ends the test.
$SIG{ALRM} = sub { die "a session does not answer\n" };
END { kill 'KILL', @children if @children }

# --- sessions -----------------------------------------------------------

sub session {
    my ($name) = @_;
    my $pid = open2(my $out, my $in, $stack->cluster->{bin} . '/psql',
        qw(-X -q -A -t -F), ' ', qw(-v ON_ERROR_STOP=0),
        $stack->database_url);
    push @children, $pid;
    $in->autoflush(1);
    my $self = { in => $in, out => $out };
    ask($self, "\\o /dev/null\nSET application_name = '$name';\n"
            . "SET ROLE meter_writer;\n\\o\n"
            . join('', map { "PREPARE $_->[0] AS " . Edgemeter::Stack::statement($_->[1]) } (
                [take => 'series_dirty_take'], [mark => 'series_dirty_mark'],
                [floors => 'rollup_floors'], [ensure => 'series_ensure'],
                [recompute => 'series_recompute'])));
    return $self;
}

sub say_to {
    my ($self, $sql) = @_;
    print { $self->{in} } "$sql\n\\echo done\n";
    return;
}

sub answer {
    my ($self) = @_;
    my @lines;
    alarm 60;
    while (defined(my $line = readline $self->{out})) {
        chomp $line;
        last if $line eq 'done';
        push @lines, $line;
    }
    alarm 0;
    return join "\n", @lines;
}

sub ask { say_to(@_); return answer($_[0]) }

# Asked something that has to wait for a lock.
sub send_waits {
    my ($self, $name, $sql) = @_;
    say_to($self, $sql);
    wait_until {
        $stack->query("SELECT count(*) FROM pg_stat_activity"
                . " WHERE application_name = '$name'"
                . " AND wait_event_type = 'Lock'") == 1
    } 30, "$name waits";
    return;
}

# --- what is asked ------------------------------------------------------

# Buckets of 1m of the keys, all at 12:00.
sub keys_of {
    my (@keys) = @_;
    my $list = sub { "'{" . join(',', @_) . "}'" };
    return join ', ', $list->(map {'acme'} @keys), $list->(map {'s'} @keys),
        $list->(map {1} @keys), $list->(@keys),
        $list->(map {'2026-01-05 12:00Z'} @keys);
}

sub ensure { return 'EXECUTE ensure(' . keys_of(@_) . ');' }

sub recompute {
    return 'EXECUTE recompute(' . keys_of(@_) . ", '{"
        . join(',', map {'2026-01-05 12:01Z'} @_)
        . "}', '2026-01-05 12:00Z', '2026-01-05 12:01Z');";
}

# What a flush commits: a part, and a mark of its bucket.
my $second = 0;

sub flush {
    my ($session, $key) = @_;
    my $at = sprintf '2026-01-05 12:00:%02dZ', 5 * $second++;
    ask($session, <<"SQL");
BEGIN;
INSERT INTO meter.series_5s (
    tenant, series, version, dimension_key, bucket, count
)
VALUES ('acme', 's', 1, '$key', '$at', 1);
EXECUTE mark(1, '{acme}', '{s}', '{1}', '{$key}', '{2026-01-05 12:00Z}',
    '{2026-01-05 12:00Z}');
COMMIT;
SQL
    return;
}

sub fresh {
    $second = 0;
    $stack->query('TRUNCATE meter.series_5s, meter.series_1m,'
            . ' meter.series_dirty');
    return;
}

sub taken {
    my ($session) = @_;
    my @marks = split /\n/, ask($session, 'BEGIN; EXECUTE take(1, 100);');
    return join ' ', map { pack 'H*', /\\x(\S+)/ } @marks;
}

sub marks { return $stack->query('SELECT count(*) FROM meter.series_dirty') }

sub count_of {
    my ($key) = @_;
    return $stack->query(
        "SELECT count FROM meter.series_1m WHERE dimension_key = '$key'");
}

$stack->query("SELECT meter.partition_make('series_5s', '2026-01-05'),"
        . " meter.partition_make('series_1m', '2026-01-05')");
my ($first, $other, $flush) = map { session($_) } qw(first other flush);

# --- a mark that comes after the marks were taken ------------------------

flush($flush, 'p');
is taken($first), 'p', 'one takes a mark';
flush($flush, 'p');
is marks(), 2, 'a new mark of the same bucket stands beside it';
is ask($first, ensure('p') . recompute('p') . 'COMMIT;'), 0, 'computed';
is count_of('p'), 2, 'from all that is there by then';
is marks(), 1, 'the new mark survives';
is taken($other), 'p', 'and is taken';
ask($other, ensure('p') . recompute('p') . 'COMMIT;');
is count_of('p') . ' ' . marks(), '2 0', 'nothing is left to do';

fresh();
flush($flush, 'p');
taken($first);
ask($first, ensure('p') . recompute('p'));
flush($flush, 'p');
ask($first, 'COMMIT;');
is count_of('p') . ' ' . marks(), '1 1',
    'a part that comes too late to be read has its mark';
taken($other);
ask($other, ensure('p') . recompute('p') . 'COMMIT;');
is count_of('p') . ' ' . marks(), '2 0', 'by which it is read';

# --- taken, then nothing -------------------------------------------------

fresh();
flush($flush, 'p');
is taken($first), 'p', 'one takes a mark';
is taken($other), '', 'another one does not wait for it, nor get it';
ask($other, 'ROLLBACK;');
ask($first, ensure('p') . recompute('p') . 'ROLLBACK;');
is marks(), 1, 'what is not committed is still marked';

# --- one pauses with its marks taken -------------------------------------

fresh();
flush($flush, 'p');
taken($first);
flush($flush, 'p');
taken($other);
ask($other, ensure('p') . recompute('p') . 'COMMIT;');
is count_of('p'), 2, 'the other one is faster';
ask($first, ensure('p') . recompute('p') . 'COMMIT;');
is count_of('p') . ' ' . marks(), '2 0', 'the slow one reads as much';

# --- one is in the middle of a long batch ---------------------------------

# The first batch is a, then p. Someone holds a, so it stands before p; the
# other one takes a newer mark of p and is done. What the first one writes to
# p afterwards must not be older.
fresh();
flush($flush, 'a');
flush($flush, 'p');
my $holder = session('holder');
ask($holder, 'BEGIN;' . ensure('a', 'p') . 'COMMIT;');
ask($holder, "BEGIN; SELECT 1 FROM meter.series_1m"
        . " WHERE dimension_key = 'a' FOR UPDATE;");
is taken($first), 'a p', 'two buckets';
send_waits($first, 'first', ensure('a', 'p') . recompute('a', 'p') . 'COMMIT;');
flush($flush, 'p');
is taken($other), 'p', 'a newer mark';
ask($other, ensure('p') . recompute('p') . 'COMMIT;');
is count_of('p'), 2, 'is done by another one';
ask($holder, 'COMMIT;');
answer($first);
is count_of('p') . ' ' . marks(), '2 0', 'who waited has read afterwards';

# --- both at the same bucket ---------------------------------------------

fresh();
flush($flush, 'p');
taken($first);
ask($first, ensure('p') . recompute('p'));
flush($flush, 'p');
taken($other);
send_waits($other, 'other', ensure('p') . recompute('p') . 'COMMIT;');
flush($flush, 'p');
ask($first, 'COMMIT;');
answer($other);
is count_of('p') . ' ' . marks(), '3 1', 'the second one reads behind the first';

# --- retention waits -----------------------------------------------------

ask($first, 'BEGIN; EXECUTE floors;');
ask($other, 'BEGIN; EXECUTE floors;');
my $refused = eval {
    $stack->query("SET lock_timeout = 200;"
            . "UPDATE meter.partition_floor SET floor = '2026-01-06'"
            . " WHERE parent = 'series_5s'");
    1;
} ? '' : $@;
like $refused, qr/lock timeout/, 'no floor is raised under a batch';
ask($_, 'ROLLBACK;') for $first, $other;

for my $session ($first, $other, $flush, $holder) {
    close $session->{in};
}
waitpid $_, 0 for @children;
@children = ();
$stack->stop;
done_testing;
