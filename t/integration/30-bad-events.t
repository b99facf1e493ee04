#!/usr/bin/perl

# 30-bad-events.t - one bad event never harms its neighbours.
#
# Every kind of t/unit/bad_events.txt is strewn over lists of 5,000 events:
# all good ones are accepted, each bad one is rejected for its own reason.
# Kinds that break the outline of a body refuse it whole. At last the
# database itself refuses events that looked fine.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::Stack;
use Edgemeter::Verify qw(verify_books);

my $rounds = $ENV{BAD_EVENTS_ROUNDS} || 2;
my $seed   = $ENV{BAD_EVENTS_SEED}   || 20260901;

my $stack = Edgemeter::Stack->for_test(rules => \<<'YAML')->start;
events:
  - { type: api.request, required: [route] }
counters:
  - counterName: api_requests
    mode: persistent
    dimensions: [route]
    rules: [ { on: api.request, op: increment } ]
    idempotency: { requireEventId: true, scope: globalEventId }
YAML
my $http = $stack->http('acme');

my $random = $seed;

sub pick {
    my ($below) = @_;
    $random = ($random * 1103515245 + 12345) % 2147483648;
    return int($random / 65536) % $below;
}

# See the head of the file: \xHH is a byte, \*N<text> is text N times.
sub unescape {
    my ($text) = @_;
    my $byte = sub { $_[0] =~ s/\\x([0-9a-f]{2})/chr hex $1/ger };
    my $out = '';
    while (length $text) {
        if ($text =~ s/^\\\*(\d+)<([^>]*)>//) {
            my ($turns, $piece) = ($1, $2);
            $out .= $byte->($piece =~ s/#/$_/gr) for 0 .. $turns - 1;
        }
        elsif ($text =~ s/^((?:(?!\\\*).)+)//s) {
            $out .= $byte->($1);
        }
    }
    return $out;
}

sub bad_events {
    my $path = Edgemeter::Stack::root() . '/t/unit/bad_events.txt';
    open my $file, '<:raw', $path or die "$path: $!";
    my @kinds;
    while (<$file>) {
        next if /^#/;
        chomp;
        my ($name, $element, $reason) = split /\t/, $_, 3;
        my $breaks = $reason =~ s/^!//;
        push @kinds, {
            name   => $name, element => unescape($element),
            reason => $reason, breaks => $breaks
        };
    }
    return @kinds;
}

sub good {
    my ($id, $more) = @_;
    $more //= '';
    my $route = pick(16);
    return qq({"event_id":"$id","type":"api.request",)
        . qq("ts":"2026-09-01T12:00:00Z","attributes":{"route":"/r$route"}$more});
}

sub stored { return $stack->query('SELECT count(*) FROM meter.event') }

my @kinds = bad_events();
my @alone = grep { !$_->{breaks} } @kinds;
cmp_ok scalar @alone, '>=', 60, scalar(@alone) . ' kinds are rejected alone';

for my $round (1 .. $rounds) {
    subtest "5,000 events, round $round" => sub {
        my @at = map { undef } 1 .. 5000;
        for my $kind (@alone) {
            my $i = pick(5000);
            $i = ($i + 1) % 5000 while defined $at[$i];
            $at[$i] = $kind;
        }
        my $body = '[' . join(',', map {
            $at[$_] ? $at[$_]{element} : good("round$round-$_")
        } 0 .. 4999) . ']';
        my $before = stored();
        my $got    = $http->post('/v1/events', $body);
        is $got->{status}, 200, 'answered' or return diag $got->{body};
        my $json = $got->{json};
        is $json->{rejected}, scalar @alone, 'as many rejected as were bad';
        is $json->{accepted}, 5000 - @alone, 'all others are accepted';
        is scalar @{ $json->{results} }, 5000, 'one result for each';
        is stored() - $before, 5000 - @alone, 'and are in the ledger';

        my @wrong;
        for my $i (0 .. 4999) {
            my ($result, $kind) = ($json->{results}[$i], $at[$i]);
            if (!$kind) {
                push @wrong, "good $i: $result->{verdict}"
                    if $result->{verdict} ne 'accepted'
                    || $result->{event_id} ne "round$round-$i";
                next;
            }
            my $error = $result->{error} // '';
            utf8::encode($error);
            push @wrong, "$kind->{name}: $result->{verdict} $error"
                unless $result->{verdict} eq 'rejected'
                && index($error, $kind->{reason}) >= 0;
            push @wrong, "$kind->{name}: answered as $result->{event_id}"
                if $kind->{element} =~ /"event_id":"bad-\Q$kind->{name}\E"/
                && ($result->{event_id} // "bad-$kind->{name}")
                ne "bad-$kind->{name}";
        }
        is scalar @wrong, 0, 'each has its own verdict and reason'
            or diag join "\n", @wrong[0 .. ($#wrong < 9 ? $#wrong : 9)];
    };
}

subtest 'bodies without an outline' => sub {
    my $before = stored();
    for my $kind (grep { $_->{breaks} } @kinds) {
        my $got = $http->post('/v1/events', '[' . join(',',
            (map { good("outline-$kind->{name}-$_") } 1 .. 3),
            $kind->{element}, good("outline-$kind->{name}-4")) . ']');
        is $got->{status}, 400, "$kind->{name}: refused whole";
        like $got->{json}{error}, qr/\Q$kind->{reason}\E/, 'with its reason';
    }
    is stored(), $before, 'nothing of them is stored';
};

# What validation cannot foresee: the database refuses rows. Small lists go
# by INSERT, long ones by COPY.
for my $size (20, 500) {
    subtest "the database refuses some of $size" => sub {
        $stack->query("ALTER TABLE meter.event ADD CONSTRAINT poison"
            . " CHECK (customer IS DISTINCT FROM 'poison$size')");
        my %poison = map { $_ => 1 } 0, $size - 1, pick($size);
        my $got = $http->post('/v1/events', '[' . join(',', map {
            good("db$size-$_", $poison{$_} ? qq(,"customer":"poison$size") : '')
        } 0 .. $size - 1) . ']');
        is $got->{json}{accepted}, $size - keys %poison, 'the good ones stay';
        is join(' ', grep {
            $got->{json}{results}[$_]{verdict} eq 'rejected'
        } 0 .. $size - 1), join(' ', sort { $a <=> $b } keys %poison),
            'only the offenders are rejected';
        like $got->{json}{results}[0]{error}, qr/23514/, 'with the reason';
        like $http->get('/metrics')->{body},
            qr/^edgemeter_batches_bisected_total [1-9]/m, 'by halves';
        $stack->query('ALTER TABLE meter.event DROP CONSTRAINT poison');
        $got = $http->post('/v1/events', '['
            . good("db$size-0", qq(,"customer":"poison$size")) . ']');
        is $got->{json}{accepted}, 1, 'a rejected id is not taken';
    };
}

verify_books($stack);
$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
done_testing;
