#!/usr/bin/perl

# 70-tenant-usage.t - the usage row of a tenant: what events do to it, one by
# one and in lists, on one node and on two, and who may see it.

use strict;
use warnings;
use utf8;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use POSIX ();
use Test::More;
use Time::HiRes ();
use Edgemeter::Node;
use Edgemeter::Stack;

binmode Test::More->builder->$_, ":utf8"
    for qw(output failure_output todo_output);

my $MAX = '9223372036854775807';

my @tenants = (qw(acme globex life floor status batch over both none),
    'Ünïcode / 1');
my $stack = Edgemeter::Stack->for_test(
    tenants => [grep { !m{/} } @tenants],
    rules   => \<<'YAML')->start;
events:
  - { type: memory.created }
  - { type: memory.deleted }
  - { type: memory.archived }
  - { type: api.request }
  - { type: tenant.provisioned }
  - { type: tenant.decommissioned }
  - { type: other }
usage:
  entryCount:   { increment: [memory.created], decrement: [memory.deleted, memory.archived] }
  storageBytes: { increment: [memory.created], decrement: [memory.deleted], by: contentSize }
  apiCallCount: { increment: [api.request] }
  provisioned: tenant.provisioned
  decommissioned: tenant.decommissioned
YAML

my %http = map { $_ => $stack->http($_) } grep { !m{/} } @tenants;
my $number = 0;

# Sizes are text, so that no number is rounded on its way.
sub event {
    my ($type, $size, $id) = @_;
    $id //= 'e' . $number++;
    my $attributes = defined $size ? qq({"contentSize":$size}) : '{}';
    $type = "memory.$type" if $type =~ /^(?:created|deleted|archived)$/;
    return qq({"event_id":"$id","type":"$type","ts":"2026-09-01T12:00:00Z",)
        . qq("attributes":$attributes});
}

# Sends events as one list; gives the first letters of the verdicts.
sub send_list {
    my ($tenant, @events) = @_;
    my $got = $http{$tenant}
        ->post('/v1/events', '[' . join(',', @events) . ']');
    return $got->{status} if $got->{status} != 200;
    return join '', map { substr $_->{verdict}, 0, 1 }
        @{ $got->{json}{results} };
}

sub usage {
    my ($tenant) = @_;
    return $http{$tenant}->get("/v1/tenants/$tenant/usage");
}

# "entries bytes calls status"
sub row {
    my ($tenant) = @_;
    my $got = usage($tenant);
    return $got->{status} if $got->{status} != 200;
    return join ' ',
        @{ $got->{json} }{qw(entry_count storage_bytes api_call_count status)};
}

subtest 'the first increment makes the row' => sub {
    is usage('acme')->{status}, 404, 'no event yet, no row';
    is send_list('acme', event('created', 5)), 'a', 'one entry';
    is row('acme'), '1 5 0 active', 'a row: active';
    my $got = usage('acme');
    like delete $got->{json}{last_updated_at},
        qr/^20\d\d-\d\d-\d\dT[\d:.]+Z$/, 'last_updated_at';
    is_deeply $got->{json},
        {   tenant_id      => 'acme',
            entry_count    => '1',
            storage_bytes  => '5',
            api_call_count => '0',
            status         => 'active'
        },
        'tenant, totals as text, status';
    is $stack->query('SELECT count(*) FROM meter.tenant_usage_metrics'), 1,
        'and no other row';
};

subtest 'a decrement ends at zero' => sub {
    is send_list('floor', event('deleted', 7)), 'a', 'on a row that is not';
    is row('floor'), '0 0 0 active', 'not below';
    send_list('floor', event('created', 3));
    is send_list('floor', event('deleted', 9)), 'a', 'more than there is';
    is row('floor'), '0 0 0 active', 'not below either';
};

subtest 'life of a tenant' => sub {
    is send_list('life', event('tenant.provisioned')), 'a', 'provisioned';
    is row('life'), '0 0 0 active', 'a row of zeros';
    send_list('life', event('created', 10, 'b1'));
    send_list('life', event('created', 20, 'b2'));
    send_list('life', event('deleted', 10));
    is row('life'), '1 20 0 active', 'two made, one deleted';
    is send_list('life', event('created', 10, 'b1')), 'd', 'a repeat';
    is row('life'), '1 20 0 active', 'changes nothing';
    send_list('life', event('archived', 20));
    is row('life'), '0 20 0 active', 'archived: its bytes stay';
    send_list('life', event('api.request')) for 1 .. 3;
    is row('life'), '0 20 3 active', 'calls';
    send_list('life', event('other'));
    is row('life'), '0 20 3 active', 'another type does nothing';
};

subtest 'status' => sub {
    is send_list('status', event('created', 1)), 'a', 'an event';
    send_list('status', event('tenant.decommissioned'));
    is row('status'), '1 1 0 decommissioned', 'decommissioned';
    send_list('status', event('created', 2), event('api.request'));
    is row('status'), '2 3 1 decommissioned', 'events count all the same';
    send_list('status', event('tenant.provisioned'));
    is row('status'), '2 3 1 active', 'active again';
    send_list('status', event('tenant.decommissioned'),
        event('tenant.provisioned'), event('tenant.decommissioned'));
    is row('status'), '2 3 1 decommissioned', 'the last of a list decides';
};

subtest 'amounts' => sub {
    my $before = row('life');
    for my $bad ('-1', '0.5', '"5"', 'true', '9223372036854775808', '[1]') {
        my $got = $http{life}->post('/v1/events', event('created', $bad));
        is $got->{status}, 400, "$bad: rejected";
        is $got->{json}{results}[0]{error},
            'attribute "contentSize" is not a non-negative 64-bit integer,'
            . ' as usage storageBytes wants it', 'with a reason';
    }
    is row('life'), $before, 'with no effect';
    is send_list('life', event('created', 'null'), event('created')), 'aa',
        'none at all: 0';
    is row('life'), '2 20 3 active', 'the entries count';
};

# A list gives what its events give one by one.
subtest 'order in a list' => sub {
    is send_list('batch', event('deleted', 3), event('created', 3)), 'aa',
        'delete, then create, on nothing';
    is row('batch'), '1 3 0 active', 'is one entry';
    send_list('batch', event('deleted', 9), event('created', 4),
        event('deleted', 9), event('created', 2), event('archived'));
    is row('batch'), '0 2 0 active', 'each step is clamped';

    # Enough for COPY.
    my ($entries, $bytes) = (0, 2);
    my @events;
    srand 7;
    for (1 .. 300) {
        my $size = int rand 9;
        my $is_up = rand() < 0.45;
        push @events, event($is_up ? 'created' : 'deleted', $size);
        $entries += $is_up ? 1     : -1;
        $bytes   += $is_up ? $size : -$size;
        $_ = $_ < 0 ? 0 : $_ for $entries, $bytes;
    }
    is send_list('batch', @events), 'a' x 300, 'three hundred at random';
    is row('batch'), "$entries $bytes 0 active", 'as one by one';
};

subtest 'the ends of 64 bits' => sub {
    my $set = sub {
        $stack->query("UPDATE meter.tenant_usage_metrics SET"
            . " storage_bytes = $_[0], entry_count = $_[1]"
            . " WHERE tenant_id = 'over'");
    };
    send_list('over', event('created', 0));
    for my $more (0, 100) {
        my $others = sub { map { event('api.request') } 1 .. $more };
        my $name = $more ? 'among others: ' : '';
        $set->($MAX, 5);
        my $got = $http{over}->post('/v1/events', '['
            . join(',', event('created', 0), event('created', 1),
                event('deleted', 1), event('created', 1), $others->()) . ']');
        is join('', map { substr $_->{verdict}, 0, 1 }
                @{ $got->{json}{results} }), 'araa' . 'a' x $more,
            "${name}the one that does not fit is rejected alone";
        is $got->{json}{results}[1]{error},
            'usage storageBytes would overflow 64 bits', 'by its column';
        is +(split ' ', row('over'))[0], '6', 'with no effect on another';
        is +(split ' ', row('over'))[1], $MAX, 'the rest is exact';

        # The end of the list would fit.
        $set->($MAX, 5);
        is send_list('over', event('created', 1), event('deleted', 1),
            $others->()), 'ra' . 'a' x $more, "${name}up and back";
        is +(split ' ', row('over'))[1], '9223372036854775806',
            'only the second one counts';
    }
    $set->(5, 1);
    is send_list('over', event('deleted', $MAX), event('deleted', $MAX),
        event('created', 2)), 'aaa', 'no end below';
    is +(split ' ', row('over'))[1], '2', 'down to zero, then up';
    is $http{over}->post('/v1/events', event('created', "${MAX}0"))->{status},
        400, 'past 64 bits by itself';
};

# --- order over nodes ---------------------------------------------------

# The ledger of a tenant in the order of its transactions, folded.
sub from_ledger {
    my ($tenant) = @_;
    my ($entries, $bytes, $calls, $status) = (0, 0, 0, 'active');
    for my $line ($stack->query(
        "SELECT type, COALESCE((attributes::json ->> 'contentSize'), '0')"
            . " FROM meter.event WHERE tenant = '$tenant'"
            . " ORDER BY recorded_at, writer, writer_seq")) {
        my ($type, $size) = split /\t/, $line;
        $entries++, $bytes += $size if $type eq 'memory.created';
        $entries--, $bytes -= $size if $type eq 'memory.deleted';
        $entries-- if $type eq 'memory.archived';
        $calls++ if $type eq 'api.request';
        $status = 'active'         if $type eq 'tenant.provisioned';
        $status = 'decommissioned' if $type eq 'tenant.decommissioned';
        $_ = $_ < 0 ? 0 : $_ for $entries, $bytes;
    }
    return "$entries $bytes $calls $status";
}

# A client: lists of ups and downs, sent to one node.
sub client {
    my ($node, $name) = @_;
    my @kinds = qw(created created deleted deleted archived api.request
        tenant.provisioned tenant.decommissioned);
    my $bad = 0;
    for my $list (1 .. 6) {
        my @events = map {
            my $kind = $kinds[rand @kinds];
            JSON::PP::decode_json(event($kind, int rand 5, "$name-$list-$_"))
        } 1 .. 1 + int rand($list % 5 ? 4 : 30);
        my $got = $node->post('both', \@events);
        $bad++ if $got->{status} != 200 || $got->{json}{accepted} != @events;
    }
    return $bad;
}

# Clients of two nodes send ups and downs near zero, so that the order of
# transactions decides. Some of these dawdle between their beginning and
# their rows, so that they come to them in another order than they began.
# The ledger must tell the order in which they came; it is compared now and
# then, because a row that is at zero has forgotten what was wrong.
subtest 'two nodes at once' => sub {
    $stack->query(<<'SQL');
CREATE FUNCTION meter.dawdle() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_catalog.pg_sleep(0.01); RETURN NEW; END';
CREATE TRIGGER dawdle BEFORE INSERT ON meter.event_registry
    FOR EACH ROW WHEN (random() < 0.3) EXECUTE FUNCTION meter.dawdle();
SQL
    my @nodes = map { Edgemeter::Node->start($stack, name => "n$_") } 1 .. 2;
    $_->wait_ready for @nodes;
    my $bad = 0;
    for my $round (1 .. 12) {
        my @pids;
        for my $client (1 .. 4) {
            my $pid = fork // die "fork: $!";
            if ($pid == 0) {
                srand 100 * $round + $client;
                POSIX::_exit(client($nodes[$client % 2],
                    "both-$round-$client") ? 1 : 0);
            }
            push @pids, $pid;
        }
        for my $pid (@pids) {
            waitpid $pid, 0;
            $bad++ if $?;
        }
        is row('both'), from_ledger('both'),
            "round $round: the row is the ledger in its order";
    }
    is $bad, 0, 'every list was accepted';
    $_->process->stop('TERM', 15) for @nodes;
    $stack->query('DROP FUNCTION meter.dawdle CASCADE');
};

# A row that is newer than the transaction: the clock of another node was
# ahead, or its transaction began later and came first.
subtest 'a row from the future' => sub {
    send_list('globex', event('created', 1));
    $stack->query("UPDATE meter.tenant_usage_metrics SET last_updated_at ="
        . " now() + interval '3 seconds' WHERE tenant_id = 'globex'");
    my $future = $stack->query("SELECT last_updated_at FROM"
        . " meter.tenant_usage_metrics WHERE tenant_id = 'globex'");
    is send_list('globex', event('api.request', undef, 'unordered')), 'a',
        'a call, for which order does not matter';
    is $stack->query("SELECT last_updated_at = '$future' FROM"
        . " meter.tenant_usage_metrics WHERE tenant_id = 'globex'"), 't',
        'leaves the time as it is';
    is $stack->query("SELECT recorded_at < '$future' FROM meter.event WHERE"
        . " event_id = 'unordered'"), 't', 'and has its own';
    is send_list('globex', event('deleted', 1, 'ordered')), 'a',
        'a delete, for which it does';
    is row('globex'), '0 0 1 active', 'both count';
    is $stack->query("SELECT recorded_at > '$future' FROM meter.event WHERE"
        . " event_id = 'ordered'"), 't', 'stands behind it in the ledger';
    is $stack->query("SELECT e.recorded_at = u.last_updated_at FROM"
        . " meter.event AS e, meter.tenant_usage_metrics AS u WHERE"
        . " event_id = 'ordered' AND tenant_id = 'globex'"), 't',
        'which the row tells';
};

# --- who may see it -----------------------------------------------------

subtest 'foreign looks like unknown' => sub {
    my $http = $http{acme};
    is usage('acme')->{status}, 200, 'its own';
    my %got = map { $_ => $http->get("/v1/tenants/$_/usage") }
        qw(life nobody), 'x' x 300, 'ACME', 'acme%20', '%C3%9C';
    my $own = usage('none');
    is $own->{status}, 404, 'its own without a row';
    delete $own->{headers}{date};
    for my $tenant (sort keys %got) {
        my $name = substr $tenant, 0, 10;
        is $got{$tenant}{status}, 404, "$name: 404";
        is $got{$tenant}{body}, $own->{body}, 'the same body';
        delete $got{$tenant}{headers}{date};
        is_deeply $got{$tenant}{headers}, $own->{headers},
            'the same headers';
    }
    is $own->{body}, '{"error":"no usage of such a tenant"}', 'a sentence';

    # The same work, so about the same time; medians of interleaved reads.
    my %took;
    for (1 .. 300) {
        for my $tenant (qw(life nobody)) {
            my $begun = Time::HiRes::time();
            $http->get("/v1/tenants/$tenant/usage");
            push @{ $took{$tenant} }, Time::HiRes::time() - $begun;
        }
    }
    my ($one, $two) = map {
        (sort { $a <=> $b } @{ $took{$_} })[150] * 1e6
    } qw(life nobody);
    my $ratio = $one > $two ? $one / $two : $two / $one;
    cmp_ok $ratio, '<', 1.25,
        sprintf 'the same time (%d and %d microseconds)', $one, $two;
};

subtest 'names, methods, tokens' => sub {
    my ($status, $token) = $stack->meterd_command('token', 'create',
        $stack->config_arguments, '--tenant', 'Ünïcode / 1');
    is $status, 0, 'a token for a tenant with a slash';
    chomp $token;
    my $own = $stack->http->as($token);
    is $own->post('/v1/events', event('created', 4))->{json}{accepted}, 1,
        'an event';
    my $path = '/v1/tenants/' . Edgemeter::Http::escape('Ünïcode / 1');
    is $own->get("$path/usage")->{json}{tenant_id}, 'Ünïcode / 1', 'its row';
    is $stack->http->get('/v1/tenants/acme/usage')->{status}, 401,
        'no token: 401';
    is $http{acme}->post('/v1/tenants/acme/usage', {})->{status}, 405,
        'POST: 405';
    is $http{acme}->get('/v1/tenants/acme/usage?x=1')->{status}, 400,
        'an argument: 400';
    is $http{acme}->get('/v1/tenants/acme')->{status}, 404, 'no such path';
    ($status, $token) = $stack->meterd_command('token', 'create',
        $stack->config_arguments, '--tenant', 'acme', '--scopes', 'ingest');
    chomp $token;
    is $stack->http->as($token)->get('/v1/tenants/acme/usage')->{status},
        403, 'another scope: 403';
};

$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
done_testing;
