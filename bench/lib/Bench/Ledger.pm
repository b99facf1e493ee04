package Bench::Ledger;

# Ledger.pm - a month of one tenant, made by SQL: ledger, index and series.
#
#   my $ledger = Bench::Ledger->new(stack => $stack, tenant => 'tenant-000',
#       rows => 5_000_000, progress => sub { ... });
#   $ledger->make_keys('k');   # real events, so that series have their keys
#   $ledger->fill;             # once those are flushed
#   my ($from, $to) = $ledger->range;
#   my $sql = $ledger->sum_events;   # and sum_level('1h')
#
# Rows have the form that ingest gives them; they belong to a writer that is
# retired. Series are kept as retention would: 5s for a week, the rest whole.

use strict;
use warnings;
use Edgemeter::Cluster;
use Edgemeter::Wait qw(wait_until);
use POSIX ();

use constant { DAYS => 30, ROUTES => 8, STATUSES => 2, ORDERS => 100_000,
    DAYS_5S => 7 };

my $WRITER = '00000000-0000-4000-8000-0000000000be';

sub new {
    my ($class, %arg) = @_;
    my $self = bless {%arg}, $class;
    $self->{today} = int(time / 86_400);
    $self->{first} = $self->{today} - DAYS;
    return $self;
}

sub orders { return ORDERS }
sub order  { return "order-$_[1]" }

sub date {
    my ($day) = @_;
    return POSIX::strftime('%Y-%m-%d', gmtime $day * 86_400);
}

# [from, to) as the API wants it.
sub range {
    my ($self) = @_;
    return map { date($_) . 'T00:00:00Z' } @$self{qw(first today)};
}

sub where {
    my ($self, $column) = @_;
    my ($from, $to) = $self->range;
    return "tenant = '$self->{tenant}' AND $column >= '$from'"
        . " AND $column < '$to'";
}

sub sum_events {
    my ($self) = @_;
    return "SELECT type, sum(quantity)::bigint FROM meter.event WHERE "
        . $self->where('ts') . " AND type = 'api.request' GROUP BY type";
}

sub sum_level {
    my ($self, $level) = @_;
    return "SELECT sum(sum) FROM meter.series_$level WHERE "
        . $self->where('bucket')
        . " AND series = 'requests' AND version = $self->{version}";
}

# One event for each dimension set, today.
sub make_keys {
    my ($self, $name) = @_;
    my @events;
    for my $route (0 .. ROUTES - 1) {
        for my $status (0 .. STATUSES - 1) {
            push @events, {
                event_id => "$name-$route-$status", type => 'api.request',
                ts => time, attributes => { route => "/v1/items/$route",
                    status => '' . (200 + $status) } };
        }
    }
    my $got = $self->{stack}->http($self->{tenant})
        ->post('/v1/events', \@events);
    die "not accepted: $got->{body}\n" if $got->{status} != 200
        || $got->{json}{accepted} != @events;
    return;
}

sub query {
    my ($self, $sql) = @_;
    return $self->{stack}->query($sql);
}

sub fill {
    my ($self) = @_;
    $self->make_partitions;
    $self->{version} = $self->query("SELECT DISTINCT version
        FROM meter.series_key WHERE series = 'requests'");
    $self->make_writer;
    for my $day ($self->{first} .. $self->{today} - 1) {
        $self->{progress}->(sprintf 'ledger: day %d of %d',
            1 + $day - $self->{first}, DAYS);
        $self->fill_day($day);
    }
    $self->fill_series;
    $self->{progress}->('VACUUM ANALYZE');
    $self->query("VACUUM ANALYZE meter.$_")
        for qw(event event_index series_5s series_1m series_1h series_1d
        series_7d series_key);
    $self->query('CHECKPOINT');
    return;
}

sub make_partitions {
    my ($self) = @_;
    my ($first, $last) = map { date($_) } $self->{first} - 7, $self->{today};
    $self->query("SET ROLE meter_owner;
        SELECT count(meter.partition_make(parent, day::date))
        FROM generate_series(DATE '$first', DATE '$last', '1 day') AS day,
            unnest('{event,event_index,series_5s,series_1m,series_1h,series_1d,"
            . "series_7d}'::text[]) AS parent");
    return;
}

sub make_writer {
    my ($self) = @_;
    $self->query("
        INSERT INTO meter.writer (writer, node, epoch, started_at, retired_at)
        VALUES ('$WRITER', 'bench', 1, now(), now());
        INSERT INTO meter.writer_seq (writer, last, batch, heartbeat_at,
            stamped_at)
        VALUES ('$WRITER', $self->{rows}, 1, now(), now());
        INSERT INTO meter.writer_flush (writer, upto, recorded_at, flushed_at)
        VALUES ('$WRITER', $self->{rows}, now(), now())");
    return;
}

# Spread evenly over the month; what an event holds depends on its number.
sub fill_day {
    my ($self, $day) = @_;
    my ($rows, $date) = ($self->{rows}, date($day));
    my $low   = int($rows * ($day - $self->{first}) / DAYS);
    my $high  = int($rows * ($day + 1 - $self->{first}) / DAYS) - 1;
    my $count = $high - $low + 1;
    $self->query("
        WITH made AS (
            SELECT n, (n * 2654435761) % 4294967296 AS h,
                TIMESTAMPTZ '$date 00:00:00+00'
                    + (n - $low) * 86400000000 / $count
                        * interval '1 microsecond' AS ts
            FROM generate_series(${low}::bigint, $high) AS n
        )
        INSERT INTO meter.event (tenant, event_id, type, ts, part_day,
            quantity, count, attributes, flags, writer, writer_seq,
            recorded_at, disposition)
        SELECT '$self->{tenant}', md5(n::text)::uuid::text, 'api.request', ts,
            DATE '$date', 1 + h % 5, 1,
            format('{\"depth\":%s,\"latencyMs\":%s,\"method\":\"GET\","
            . "\"orderId\":\"order-%s\",\"region\":\"eu-west-1\","
            . "\"route\":\"/v1/items/%s\",\"state\":\"paid\","
            . "\"status\":\"%s\"}',
                h % 1000, h % 700, h / 16 % @{[ORDERS]}, h % @{[ROUTES]},
                200 + h / 8 % @{[STATUSES]}),
            0, '$WRITER', n + 1, ts, 0
        FROM made");
    $self->query("
        INSERT INTO meter.event_index (tenant, type, attribute, value, ts,
            part_day, writer, writer_seq)
        SELECT tenant, type, 'orderId',
            to_json(attributes::json ->> 'orderId')::text, ts, part_day,
            writer, writer_seq
        FROM meter.event
        WHERE part_day = DATE '$date' AND writer = '$WRITER'");
    return;
}

# 5s of the last days and 1m of all from the ledger, the rest from below.
sub fill_series {
    my ($self) = @_;
    my $floor = date($self->{today} - DAYS_5S);
    for my $part (['5s', $floor], ['1m', date($self->{first})]) {
        my ($level, $from) = @$part;
        $self->{progress}->("series_$level");
        my $number = $level eq '5s' ? 0 : 1;
        $self->query("
            INSERT INTO meter.series_$level (tenant, series, version,
                dimension_key, bucket, count, sum)
            SELECT k.tenant, k.series, k.version, k.dimension_key, e.bucket,
                e.count, e.sum
            FROM (
                SELECT '{\"route\":\"' || (attributes::json ->> 'route')
                        || '\",\"status\":\"'
                        || (attributes::json ->> 'status') || '\"}'
                        AS dimensions,
                    meter.series_bucket(${number}::smallint, ts) AS bucket,
                    sum(count) AS count, sum(quantity) AS sum
                FROM meter.event
                WHERE part_day >= DATE '$from' AND writer = '$WRITER'
                GROUP BY 1, 2
            ) AS e
            INNER JOIN meter.series_key AS k USING (dimensions)
            WHERE k.tenant = '$self->{tenant}' AND k.series = 'requests'
            ORDER BY e.bucket, k.dimension_key");
    }
    my @levels = qw(5s 1m 1h 1d 7d);
    for my $number (2 .. 4) {
        $self->{progress}->("series_$levels[$number]");
        my $where = $self->where('bucket') =~ s/ AND bucket <.*//r;
        $self->query("
            INSERT INTO meter.series_$levels[$number] (tenant, series,
                version, dimension_key, bucket, count, sum)
            SELECT tenant, series, version, dimension_key,
                meter.series_bucket(${number}::smallint, bucket), sum(count),
                sum(sum)
            FROM meter.series_$levels[$number - 1]
            WHERE $where AND series = 'requests'
            GROUP BY 1, 2, 3, 4, 5
            ORDER BY 5, 4
            ON CONFLICT (tenant, series, version, dimension_key, bucket)
            DO UPDATE SET count = excluded.count, sum = excluded.sum");
    }
    $self->query("UPDATE meter.partition_floor SET floor = DATE '$floor'
        WHERE parent = 'series_5s' AND floor < DATE '$floor'");
    return;
}

# Keeps every flush waiting until the function that it gives is called.
sub hold_flush {
    my ($stack) = @_;
    my $pid = open my $psql, '|-', $stack->cluster->{bin} . '/psql', '-qX',
        '-o', '/dev/null', $stack->database_url
        or die "psql: $!\n";
    $psql->autoflush(1);
    print {$psql} "SET application_name = 'hold_flush'; BEGIN;"
        . " SELECT upto FROM meter.writer_flush FOR UPDATE;\n";
    wait_until {
        $stack->query("SELECT count(*) FROM pg_stat_activity
            WHERE application_name = 'hold_flush'
                AND state = 'idle in transaction'") == 1;
    } 30, 'flushes are held back';
    return sub {
        print {$psql} "COMMIT;\n\\q\n";
        close $psql;
        waitpid $pid, 0;
        return;
    };
}

1;
