package Edgemeter::Soak::Verify;

# Verify.pm - what the clients of the soak were answered against what the
# database holds, and what the logs say. Each rule is one TAP assertion.
#
#   verify_counts($stack, $clients, \%tenant_of);   # client name -> tenant
#   verify_logs($stack);

use strict;
use warnings;
use Exporter 'import';
use Test::More ();
use Edgemeter::EdgeLoad;
use Edgemeter::EdgeVerify qw(verify_sessions);
use Edgemeter::Verify qw(verify_books);

our @EXPORT_OK = qw(verify_counts verify_logs);

my $T = Test::More->builder;

# What a kill leaves in the log of nginx, and what the end of the server or of
# its client leaves in that of PostgreSQL. Ids that come twice at once are told
# apart by the unique index.
my $NGINX_FINE    = qr/exited on signal 9/;
my $POSTGRES_FINE = qr/the\ database\ system\ is\ (?:starting\ up
    |shutting\ down|in\ recovery\ mode|not\ yet\ accepting\ connections)
    |terminating\ connection\ (?:due\ to|because)
    |duplicate\ key\ value\ violates\ unique\ constraint\ "event_registry_pkey"
    |unexpected\ EOF\ on\ client\ connection|connection\ to\ client\ lost
    |could\ not\ send\ data\ to\ client
    |canceling\ statement\ due\ to\ user\ request/x;

sub verify_counts {
    my ($stack, $clients, $tenant_of) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    none('every client was answered as it had to be', $clients->all_wrong);
    verify_events($stack, $clients, $tenant_of);
    verify_audit($stack, $clients);
    verify_edge($stack, $clients, $tenant_of);
    verify_ids($stack, $clients, $tenant_of);
    verify_counters($stack, $clients);
    verify_sessions($stack);
    verify_books($stack);
    return;
}

sub named {
    my ($clients, $begin) = @_;
    my $sums = $clients->sums;
    return map { [$_, $sums->{$_}] } grep {/^$begin /} sort keys %$sums;
}

# The numbers of each client are there from 0 on, each once.
sub verify_events {
    my ($stack, $clients, $tenant_of) = @_;
    my %stored = map { /^(\S+\t\S+)\t(.*)$/ } $stack->query(q{
        SELECT tenant, client, count(*), count(DISTINCT number), min(number),
            max(number), sum(quantity)::bigint
        FROM (
            SELECT tenant, quantity,
                CASE WHEN event_id LIKE 'soak-%'
                    THEN split_part(event_id, '-', 2)::integer
                    ELSE ('x' || substr(event_id, 25, 2))::bit(8)::integer
                END AS client,
                CASE WHEN event_id LIKE 'soak-%'
                    THEN split_part(event_id, '-', 3)::bigint
                    ELSE ('x' || substr(event_id, 27, 10))::bit(40)::bigint
                END AS number
            FROM meter.event WHERE type = 'api.request'
        ) AS of_clients
        GROUP BY 1, 2});
    my @wrong;
    for my $client (named($clients, 'events')) {
        my ($name, $sums) = @$client;
        my ($number) = $name =~ /(\d+)$/;
        my $count = $sums->{numbers} // 0;
        my $found = delete $stored{"$tenant_of->{$name}\t$number"} // 'none';
        my $right = join "\t", $count, $count, 0, $count - 1, $count;
        push @wrong, "$name: $found, not $right" if $found ne $right;
    }
    none('every event is in the ledger once', @wrong,
        map {"nobody sent: $_ $stored{$_}"} sort keys %stored);
    return;
}

sub verify_audit {
    my ($stack, $clients) = @_;
    my $found = $stack->query(q{SELECT count(*) FROM meter.duplicate_audit
        WHERE event_id LIKE 'soak-%' OR length(event_id) = 36});
    my $least = $clients->total('duplicates', 'events')
        + $clients->total('conflicts', 'events');
    between('every repeat is in the audit', $found, $least,
        $least + $clients->total('audit_most', 'events'));
    return;
}

# answered <= counted <= answered + unknown, for each mode and tenant.
sub verify_edge {
    my ($stack, $clients, $tenant_of) = @_;
    my %stored;
    for my $row ($stack->query(q{
        SELECT tenant,
            CASE WHEN type <> 'edge.request' THEN substr(type, 6)
                WHEN attributes::json ->> 'sent' IS NULL THEN 'event'
                ELSE 'slot' END,
            sum(count), sum(quantity)::bigint,
            count(*) - count(DISTINCT attributes::json ->> 'n')
        FROM meter.event
        WHERE type LIKE 'edge.%'
            AND (type <> 'edge.request' OR flags & 32 <> 0)
        GROUP BY 1, 2}))
    {
        my ($tenant, $mode, @figures) = split /\t/, $row;
        $stored{"$tenant $mode"} = \@figures;
    }
    for my $mode (grep { $_ ne 'id' } @Edgemeter::EdgeLoad::MODES) {
        for my $tenant (sort { $a cmp $b } tenants($tenant_of)) {
            my ($answered, $unknown) = (0, 0);
            for my $client (named($clients, 'edge')) {
                next if $tenant_of->{ $client->[0] } ne $tenant;
                $answered += $client->[1]{"answered $mode"} // 0;
                $unknown  += $client->[1]{"unknown $mode"}  // 0;
            }
            my ($count, $quantity, $twice)
                = @{ $stored{"$tenant $mode"} // [0, 0, 0] };
            between("$mode of $tenant", $count, $answered,
                $answered + $unknown);
            my $each = $mode eq 'delta' ? 2 : 1;
            $T->is_num($quantity, $each * $count,
                "$mode of $tenant: quantities go with it");
            $T->is_num($twice, 0, "$mode of $tenant: none is there twice")
                if $mode eq 'event' || $mode eq 'slot';
        }
    }
    return;
}

sub tenants {
    my ($tenant_of) = @_;
    my %seen = map { $_ => 1 } values %$tenant_of;
    return keys %seen;
}

# Both of a pair send the same ids from 0 on, each until it is answered.
sub verify_ids {
    my ($stack, $clients, $tenant_of) = @_;
    my (%most, @wrong);
    my ($answered, $unknown) = (0, 0);
    for my $client (named($clients, 'edge')) {
        my ($name, $sums) = @$client;
        my $pair = int(($name =~ /(\d+)$/)[0] / 2);
        my $key  = "$tenant_of->{$name}\tp$pair";
        my $ids  = $sums->{ids} // 0;
        $most{$key} = $ids if $ids > ($most{$key} // 0);
        $answered += $sums->{'answered id'} // 0;
        $unknown  += $sums->{'unknown id'}  // 0;
    }
    my %stored = map { /^(\S+\t\S+)\t(.*)$/ } $stack->query(q{
        SELECT tenant, split_part(event_id, '-', 1), count(*),
            count(DISTINCT event_id),
            max(split_part(event_id, '-', 2)::bigint)
        FROM meter.event
        WHERE type = 'edge.request' AND flags & 32 = 0 GROUP BY 1, 2});
    for my $key (sort keys %most) {
        my $right = join "\t", $most{$key}, $most{$key}, $most{$key} - 1;
        my $found = delete $stored{$key} // 'none';
        push @wrong, "$key: $found, not $right" if $found ne $right;
    }
    none('every id of a metered route is in the ledger once', @wrong,
        map {"nobody sent: $_ $stored{$_}"} sort keys %stored);
    my ($seen) = $stack->query(q{
        SELECT (SELECT count(*) FROM meter.event
                 WHERE type = 'edge.request' AND flags & 32 = 0)
            + (SELECT count(*) FROM meter.duplicate_audit
                WHERE event_id ~ '^p\d+-')});
    between('and its repeats are in the audit', $seen, $answered,
        $answered + $unknown);
    return;
}

sub verify_counters {
    my ($stack, $clients) = @_;
    my %added = map { split /\t/ } $stack->query(
        'SELECT name, sum(added)::bigint FROM meter.bucket_counter'
            . ' GROUP BY 1');
    $T->is_num($added{'soak-keyed'} // 0, $clients->total('keyed'),
        'increments with a key have counted once');
    my $plain = $clients->total('plain');
    between('increments without one', $added{'soak-plain'} // 0, $plain,
        $plain + $clients->total('plain_unknown'));
    return;
}

# --- logs ---------------------------------------------------------------

sub verify_logs {
    my ($stack) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    none('nginx wrote no alert',
        grep { /\[(?:alert|crit|emerg)\]/ && !/$NGINX_FINE/ }
            lines_of($stack, 'nginx-error'));
    none('meterd wrote no error, and no sanitizer anything',
        grep {/"level":"error"|Sanitizer|runtime error:|invariant broken/i}
            lines_of($stack, 'meterd'));
    none('PostgreSQL wrote no error but what its stops explain',
        grep { /\b(?:ERROR|FATAL|PANIC):/ && !/$POSTGRES_FINE/ }
            lines_of($stack, 'postgres'));
    return;
}

sub lines_of {
    my ($stack, $name) = @_;
    my $path = $stack->log_path($name);
    open my $file, '<', $path or die "$path: $!\n";
    my @lines;
    while (my $line = <$file>) {
        push @lines, $line if $line =~ /\[|ERROR|FATAL|PANIC|error|invariant/;
    }
    return @lines;
}

# --- assertions ---------------------------------------------------------

sub between {
    my ($name, $found, $least, $most) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 2;
    $T->ok($found >= $least && $found <= $most,
        "$name: $least <= $found <= $most");
    return;
}

sub none {
    my ($name, @found) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 2;
    chomp @found;
    my $last = $#found < 9 ? $#found : 9;
    $T->ok(!@found, $name)
        or $T->diag(scalar @found . " offenders:\n"
            . join "\n", @found[0 .. $last]);
    return;
}

1;
