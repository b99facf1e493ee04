package Edgemeter::SeriesNodes;

# SeriesNodes.pm - meterd with two series on one database, and the question
# whether series_5s is what the ledger says.
#
#   my $nodes = Edgemeter::SeriesNodes->new;     # the database, tokens
#   $nodes->start('a', env => {...});            # see Node.pm; is ready
#   $nodes->send('a', 40);                       # 40 events, some of them late
#   $nodes->is_right('after that');              # waits for the flush
#   $nodes->end('a', 'TERM');
#   $nodes->holding($sql, sub {...});            # in an open transaction
#
# `rules` of new are more YAML behind those of the two series.

use strict;
use warnings;
use POSIX ();
use Test::Builder;
use Edgemeter::Node;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until poll_until);

our $RULES = <<'YAML';
events: [ { type: call }, { type: load }, { type: old } ]
series:
  - { name: calls, kind: counter, on: [call], dimensions: [route] }
  - { name: load, kind: gauge, on: [load], value: load,
      policy: last, dimensions: [host] }
  - { name: old, kind: counter, on: [old] }
YAML

my $T = Test::Builder->new;

sub new {
    my ($class, %arg) = @_;
    my $rules = $arg{rules} // $RULES;
    my $stack = Edgemeter::Stack->for_test(rules => \$rules);
    $stack->start_schema;
    $stack->make_tokens;
    return bless { stack => $stack, node => {}, number => 0 }, $class;
}

sub stack { return $_[0]{stack} }
sub node  { return $_[0]{node}{ $_[1] } }
sub query { return $_[0]{stack}->query($_[1]) }

sub start {
    my ($self, $name, %arg) = @_;
    delete $self->{node}{$name};
    $self->{node}{$name}
        = Edgemeter::Node->start($self->{stack}, name => $name, %arg);
    return $self->{node}{$name}->wait_ready(30);
}

sub end {
    my ($self, $name, $signal) = @_;
    my $process = $self->{node}{$name}->process;
    $process->signal($signal) if $signal;
    wait_until { !$process->alive } 20, "$name is gone";
    return;
}

sub stamp {
    my ($seconds) = @_;
    return POSIX::strftime('%Y-%m-%dT%H:%M:%SZ', gmtime $seconds);
}

# Some are new, some late; half of them are calls, half of them loads.
sub events {
    my ($self, $count, $keys) = @_;
    return [map {
        my $n = $self->{number}++;
        {   event_id => "e$n",
            ts       => stamp(time - ($n % 7 == 0 ? 3600 * ($n % 50) : $n % 8)),
            $n % 2
            ? (type => 'call', quantity => 1 + $n % 5,
                attributes => { route => '/' . $n % ($keys // 3) })
            : (type => 'load',
                attributes => { host => 'h' . $n % ($keys // 3),
                    load => ($n * 7919 % 2001 - 1000) / 8 }),
        }
    } 1 .. $count];
}

# 503, after the database was away, and no answer at all say the same: once
# more. Who gets no answer within 30 s wants to know why, though all is well
# later.
sub send {
    my ($self, $name, $count, $keys) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $events = $self->events($count, $keys);
    my $node   = $self->node($name);
    my $got;
    poll_until {
        $got = $node->post('acme', $events);
        $T->diag("$name gives no answer:\n" . substr $node->log, -3000)
            if $got->{status} == 0;
        $got->{status} != 503 && $got->{status} != 0
    } 90;
    $T->is_num($got->{status}, 200, "$name took $count")
        or $T->diag($got->{body});
    return;
}

sub unflushed {
    my ($self) = @_;
    return $self->query('SELECT coalesce(sum(s.last - f.upto), 0)'
        . ' FROM meter.writer_seq AS s'
        . ' INNER JOIN meter.writer_flush AS f USING (writer)');
}

# Rows that the ledger does not give, and the other way round.
my $WRONG = <<'SQL';
WITH sample AS (
    SELECT
        tenant, ts, recorded_at, writer, writer_seq, count,
        CASE type WHEN 'call' THEN 'calls' ELSE type END AS series,
        CASE type WHEN 'call' THEN attributes::jsonb ->> 'route'
            ELSE attributes::jsonb ->> 'host' END AS name,
        CASE type WHEN 'call' THEN quantity
            ELSE (attributes::jsonb ->> 'load')::numeric * count END AS total,
        CASE type WHEN 'load' THEN (attributes::jsonb ->> 'load')::numeric
            END AS value
    FROM meter.event
    WHERE type IN ('call', 'load')
),
expected AS (
    SELECT
        tenant, series, name, meter.series_bucket(0::smallint, ts) AS bucket,
        sum(count)::bigint AS count, sum(total)::numeric(38, 9) AS sum,
        min(value)::numeric(38, 9) AS min, max(value)::numeric(38, 9) AS max,
        (array_agg(value ORDER BY ts DESC, recorded_at DESC, writer DESC,
            writer_seq DESC))[1]::numeric(38, 9) AS last
    FROM sample
    GROUP BY 1, 2, 3, 4
),
stored AS (
    SELECT
        s.tenant::text, s.series::text,
        coalesce(k.dimensions::jsonb ->> 'route',
            k.dimensions::jsonb ->> 'host') AS name,
        s.bucket, s.count, s.sum, s.min, s.max, s.last
    FROM meter.series_5s AS s
    INNER JOIN meter.series_key AS k
        USING (tenant, series, version, dimension_key)
    WHERE s.series IN ('calls', 'load')
)
SELECT
    (SELECT count(*) FROM
        (TABLE expected EXCEPT ALL TABLE stored) AS missing
        WHERE missing.name <> ?),
    (SELECT count(*) FROM
        (TABLE stored EXCEPT ALL TABLE expected) AS extra
        WHERE extra.name <> ?),
    (SELECT count(*) > 0 FROM expected)
SQL

# "missing extra t", in rows of series_5s, but for those of one name.
sub differences {
    my ($self, $but) = @_;
    $but //= '';
    return $self->query($WRONG =~ s/\?/'$but'/gr) =~ s/\t/ /gr;
}

sub is_flushed {
    my ($self, $name, $seconds) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $left = 0;
    return $T->ok((poll_until { ($left = $self->unflushed) == 0 }
        $seconds // 20), "$name: all is flushed") || $T->diag("$left are not");
}

sub is_right {
    my ($self, $name, $seconds) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    $self->is_flushed($name, $seconds);
    return $T->is_eq($self->differences, '0 0 t', "$name: as the ledger says");
}

# Runs code while a session of someone else has done this and not committed;
# then it commits. Gives back what code gave.
sub holding {
    my ($self, $sql, $code) = @_;
    my $name   = 'holder' . ++$self->{holders};
    my $stack  = $self->{stack};
    $self->query('CREATE TABLE IF NOT EXISTS public.test_release (name text)');
    my $holder = Edgemeter::Process->spawn(
        name    => $name,
        log     => $stack->place->path('tmp') . '/holder.log',
        user    => $stack->account,
        command => [$stack->cluster->{bin} . '/psql', '-q', '-v',
            'ON_ERROR_STOP=1', '--dbname', $stack->database_url, '-c', <<"SQL"]);
BEGIN;
$sql;
SET application_name = '$name';
DO \$\$ BEGIN
    FOR step IN 1 .. 3000 LOOP
        PERFORM pg_sleep(0.02);
        EXIT WHEN EXISTS (SELECT FROM public.test_release
            WHERE test_release.name = '$name');
    END LOOP;
END \$\$;
COMMIT
SQL
    wait_until {
        $self->query('SELECT count(*) FROM pg_stat_activity'
            . " WHERE application_name = '$name'")
    } 10, 'someone holds it';
    my $given = $code->();
    $self->query("INSERT INTO public.test_release VALUES ('$name')")
        if $holder->alive;
    wait_until { !$holder->alive } 10, 'it lets go';
    return $given;
}

# A flush waits for a lock of somebody else.
sub wait_held {
    my ($self) = @_;
    wait_until {
        $self->query(q{SELECT count(*) FROM pg_stat_activity
            WHERE application_name ~ 'series' AND wait_event_type = 'Lock'})
    } 20, 'a flush waits';
    return;
}

1;
