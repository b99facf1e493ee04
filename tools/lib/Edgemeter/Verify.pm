package Edgemeter::Verify;

# Verify.pm - counts afterwards: what clients were told against what the
# database holds. Each rule is one TAP assertion.
#
#   verify_load($stack, $load->told);
#
# Registry, ledger, counters, audit and sequence numbers must agree with
# each other and with every answer; nothing may be there twice.

use strict;
use warnings;
use Exporter 'import';
use Test::More ();
use Edgemeter::Wait qw(poll_until);

our @EXPORT_OK = qw(verify_load verify_books verify_projections);

my $T = Test::More->builder;

sub verify_load {
    my ($stack, $told) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my %stored = map { split /\t/ } $stack->query(
        "SELECT event_id, count(*) FROM meter.event
          WHERE event_id LIKE 'load-%' GROUP BY 1");
    my @answered = grep { $told->{$_}{accepted} || $told->{$_}{duplicate} }
        keys %$told;
    my @refused = grep { $told->{$_}{conflict} || $told->{$_}{rejected} }
        keys %$told;

    # Both of a pair got their first answer: it was new for one of them.
    my @stolen = grep {
        ($told->{$_}{duplicate} // 0) > 1
            && !$told->{$_}{accepted}
            && !$told->{$_}{again}
            && !$told->{$_}{unknown}
    } keys %$told;
    my @twice   = grep { ($told->{$_}{accepted} // 0) > 1 } keys %$told;
    my @missing = grep { !$stored{$_} } @answered;
    my @double  = grep { $stored{$_} > 1 } keys %stored;
    my @foreign = grep { !$told->{$_} } keys %stored;

    $T->diag(sprintf '%d ids answered, %d stored, %d never answered',
        scalar @answered, scalar keys %stored,
        scalar(keys %$told) - @answered)
        if $ENV{TEST_VERBOSE};
    $T->ok(@answered > 0, 'events were answered');
    none('every answered event is in the ledger', @missing);
    none('no event is in the ledger twice', @double);
    none('no id was told accepted twice', @twice);
    none('no event was called a repeat of itself', @stolen);
    none('no honest event was refused', @refused);
    none('nothing is stored that nobody sent', @foreign);
    verify_books($stack);
    return;
}

# The database against itself.
sub verify_books {
    my ($stack) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my %rule = (
        'registry and ledger hold the same number of events' => q{
            SELECT tenant FROM
                (SELECT tenant, count(*) n FROM meter.event_registry
                  GROUP BY 1) r
                FULL JOIN
                (SELECT tenant, count(*) n FROM meter.event
                  WHERE flags & 32 = 0 GROUP BY 1) e USING (tenant)
             WHERE r.n IS DISTINCT FROM e.n},
        'counters equal the ledger' => q{
            SELECT tenant, route, c.value, e.n FROM
                (SELECT tenant, dimensions::json ->> 'route' route, value
                   FROM meter.counter
                  WHERE counter_name = 'api_requests') c
                FULL JOIN
                (SELECT tenant, attributes::json ->> 'route' route,
                        sum(count) n
                   FROM meter.event WHERE type = 'api.request'
                  GROUP BY 1, 2) e USING (tenant, route)
             WHERE c.value IS DISTINCT FROM e.n},
        'sequence numbers of each writer are dense' => q{
            SELECT s.writer FROM meter.writer_seq s
              LEFT JOIN (SELECT writer, count(*) n, min(writer_seq) low,
                                max(writer_seq) high
                           FROM meter.event GROUP BY 1) e
                ON e.writer = s.writer
             WHERE coalesce(e.n, 0) <> s.last
                OR e.low <> 1 OR e.high <> s.last},
        'audit rows name registered events' => q{
            SELECT a.event_id FROM meter.duplicate_audit a
             WHERE NOT EXISTS (SELECT FROM meter.event_registry r
                                WHERE r.tenant = a.tenant AND r.key = a.key)},
    );
    none($_, $stack->query($rule{$_})) for sort keys %rule;
    verify_projections($stack);
    return;
}

# Counters, usage rows, meters, series and the index against a recomputation
# from the ledger.
sub verify_projections {
    my ($stack) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    verify_settled($stack);
    my ($status, $out, $err)
        = $stack->meterd_command('reconcile', $stack->config_arguments);
    $T->is_num($status, 0, 'a recomputation from the ledger finds no difference')
        or $T->diag(substr "$err$out", 0, 4000);
    return;
}

# What writers that are alive have accepted gets into all levels of series.
# What those that are gone have left is not expected there.
sub verify_settled {
    my ($stack) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $is_settled = poll_until {
        $stack->query(q{
            SELECT count(*) FROM meter.writer_seq s
              JOIN meter.writer_flush f USING (writer)
             WHERE s.heartbeat_at > clock_timestamp() - interval '15 s'
               AND (f.upto <> s.last
                    OR EXISTS (SELECT FROM meter.series_dirty))}) eq '0';
    } 60;
    $T->ok($is_settled, 'series are flushed and rolled up');
    return;
}

sub none {
    my ($name, @found) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 2;
    $T->ok(!@found, $name)
        or $T->diag(scalar @found . " offenders: @found[0 .. min($#found, 9)]");
    return;
}

sub min { return $_[0] < $_[1] ? $_[0] : $_[1] }

1;
