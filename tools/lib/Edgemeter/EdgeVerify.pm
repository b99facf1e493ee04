package Edgemeter::EdgeVerify;

# EdgeVerify.pm - answered requests of metered routes against the database.
#
#   wait_drained($stack);                 # every ring is empty
#   verify_edge($stack, $load->told);     # one TAP assertion per rule
#
# An answered request is counted once, one whose answer is unknown at most
# once, nothing else at all. Requests that share an id are one event and one
# audit row for each further one.

use strict;
use warnings;
use Exporter 'import';
use Test::More ();
use Edgemeter::Verify qw(verify_projections);
use Edgemeter::Wait qw(wait_until);

our @EXPORT_OK = qw(verify_edge verify_sessions wait_drained edge_metric);

use constant DRAIN_SECONDS => 90;

my $T = Test::More->builder;

# The value of a metric on the page of the edge; labels are part of the name.
sub edge_metric {
    my ($stack, $name, $page) = @_;
    $page //= $stack->http->get('/metrics')->{body};
    my ($value) = $page =~ /^\Q$name\E (-?[\d.]+)$/m;
    return $value;
}

# All that was recorded has its verdict, and no worker's ring is left.
sub wait_drained {
    my ($stack, $seconds) = @_;
    wait_until {
        my $page = $stack->http->get('/metrics')->{body} // '';
        my $open = edge_metric($stack, 'edgemeter_edge_in_flight', $page);
        my $orphans = edge_metric($stack,
            'edgemeter_edge_outbox_rings{state="orphan"}', $page);
        defined $open && $open == 0 && !$orphans;
    } $seconds // DRAIN_SECONDS, 'the outbox is drained';
    return;
}

sub verify_edge {
    my ($stack, $told, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    $name = defined $name ? "$name: " : '';
    for my $mode (sort keys %$told) {
        if ($mode eq 'event' || $mode eq 'slot') {
            verify_single($stack, $told->{$mode}, $mode, $name);
        }
        elsif ($mode eq 'id') {
            verify_ids($stack, $told->{$mode}, $name);
        }
        else {
            verify_sums($stack, $told->{$mode}, $mode, $name);
        }
    }
    verify_sessions($stack, $name);
    verify_projections($stack);
    return;
}

# Rows of tenant, name and number.
sub by_tenant {
    my ($stack, $sql) = @_;
    my %found;
    for my $row ($stack->query($sql)) {
        my ($tenant, $name, $number) = split /\t/, $row;
        $found{$tenant}{$name} = $number;
    }
    return %found;
}

sub verify_single {
    my ($stack, $told, $mode, $name) = @_;
    my (%stored, @missing, @double, @foreign);
    my $wanted = $mode eq 'slot' ? 'IS NOT NULL' : 'IS NULL';
    %stored = by_tenant($stack, 
        "SELECT tenant, attributes::json ->> 'n', count(*) FROM meter.event
          WHERE type = 'edge.request' AND attributes::json ->> 'n' IS NOT NULL
            AND (attributes::json ->> 'sent') $wanted GROUP BY 1, 2");
    for my $tenant (keys %$told) {
        for my $n (keys %{ $told->{$tenant} }) {
            my $fate  = $told->{$tenant}{$n};
            my $count = delete $stored{$tenant}{$n} // 0;
            push @missing, $n if $fate->{answered} && !$count;
            push @double, "$n=$count" if $count > 1;
            push @foreign, $n
                if $count && !$fate->{answered} && !$fate->{unknown};
        }
        push @foreign, keys %{ $stored{$tenant} };
    }
    none("$name$mode: every answered request is counted", @missing);
    none("$name$mode: none is counted twice", @double);
    none("$name$mode: nothing is counted that nobody sent", @foreign);
    return;
}

sub verify_ids {
    my ($stack, $told, $name) = @_;
    my (%ledger, %audit, @missing, @double, @audited);
    %ledger = by_tenant($stack, 
        "SELECT tenant, event_id, count(*) FROM meter.event
          WHERE flags & 32 = 0 AND session IS NOT NULL GROUP BY 1, 2");
    %audit = by_tenant($stack, 
        "SELECT tenant, event_id, count(*) FROM meter.duplicate_audit
          GROUP BY 1, 2");
    for my $tenant (keys %$told) {
        for my $n (keys %{ $told->{$tenant} }) {
            my $answered = $told->{$tenant}{$n}{answered} // 0;
            my $unknown  = $told->{$tenant}{$n}{unknown}  // 0;
            my $count    = $ledger{$tenant}{$n}           // 0;
            my $all      = $count + ($audit{$tenant}{$n} // 0);
            push @missing, $n if $answered && !$count;
            push @double, $n if $count > 1;
            push @audited, "$n: $answered+$unknown sent, $all seen"
                if $all < $answered || $all > $answered + $unknown;
        }
    }
    none("${name}id: every answered id is counted", @missing);
    none("${name}id: none is counted twice", @double);
    none("${name}id: the audit has every repeat and no other", @audited);
    return;
}

sub verify_sums {
    my ($stack, $told, $mode, $name) = @_;
    my %sum;
    %sum = map { my ($tenant, @sums) = split /\t/; ($tenant => \@sums) }
        $stack->query(
        "SELECT tenant, sum(count), sum(quantity)::bigint FROM meter.event
          WHERE type = 'edge.$mode' GROUP BY 1");
    my $each = $mode eq 'delta' ? 2 : 1;
    for my $tenant (sort keys %$told) {
        my ($answered, $unknown) = (0, 0);
        for my $fate (values %{ $told->{$tenant} }) {
            $answered += $fate->{answered} // 0;
            $unknown  += $fate->{unknown}  // 0;
        }
        my ($count, $quantity) = @{ $sum{$tenant} // [0, 0] };
        $T->ok($answered <= $count && $count <= $answered + $unknown,
            "$name$mode of $tenant: the sum is exact")
            or $T->diag("$answered answered, $unknown unknown, $count counted");
        $T->ok($quantity == $each * $count,
            "$name$mode of $tenant: quantities go with it")
            or $T->diag("$quantity, not $each * $count");
    }
    return;
}

# The bookkeeping of every ring against what is stored, and the counter.
sub verify_sessions {
    my ($stack, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    $name //= '';
    my %rule = (
        'accepted requests of each session are in the ledger' => q{
            SELECT s.session, s.accepted, e.n FROM meter.edge_session s
              FULL JOIN (SELECT session, sum(count) n FROM meter.event
                          WHERE session IS NOT NULL GROUP BY 1) e
                USING (session)
             WHERE coalesce(s.accepted, 0) <> coalesce(e.n, 0)},
        'no sequence number of a session counts twice' => q{
            SELECT session, seq FROM meter.event WHERE session IS NOT NULL
             GROUP BY 1, 2 HAVING count(*) > 1},
        'nothing lies past the last sequence number' => q{
            SELECT e.session FROM meter.event e
              JOIN meter.edge_session s USING (session)
             WHERE e.seq > s.last_seq},
        'no honest request became a dead letter' => q{
            SELECT reason FROM meter.dead_letter},
        'the counter equals the ledger' => q{
            SELECT tenant, c.value, e.n FROM
                (SELECT tenant, value FROM meter.counter
                  WHERE counter_name = 'edge_requests') c
                FULL JOIN
                (SELECT tenant, sum(count) n FROM meter.event
                  WHERE session IS NOT NULL GROUP BY 1) e USING (tenant)
             WHERE c.value IS DISTINCT FROM e.n},
        'registry and ledger hold the same ids' => q{
            SELECT tenant FROM
                (SELECT tenant, count(*) n FROM meter.event_registry
                  GROUP BY 1) r
                FULL JOIN
                (SELECT tenant, count(*) n FROM meter.event
                  WHERE flags & 32 = 0 GROUP BY 1) e USING (tenant)
             WHERE r.n IS DISTINCT FROM e.n},
    );
    none("$name$_", $stack->query($rule{$_})) for sort keys %rule;
    my $page = $stack->http->get('/metrics')->{body};
    $T->is_eq(edge_metric($stack, 'edgemeter_edge_conservation_gap', $page),
        0, "${name}seen = filtered + lost + in flight + verdicts");
    $T->is_eq(edge_metric($stack, 'edgemeter_edge_gaps_total', $page),
        0, "${name}no sequence number was missing");
    return;
}

sub none {
    my ($name, @found) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 2;
    my $last = $#found < 9 ? $#found : 9;
    $T->ok(!@found, $name)
        or $T->diag(scalar @found . " offenders: @found[0 .. $last]");
    return;
}

1;
