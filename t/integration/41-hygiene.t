#!/usr/bin/perl

# 41-hygiene.t - what clients send reaches neither logs nor headers raw, and
# no token reaches any log.
#
# Line ends, terminal escapes, quotes and long texts go into every place a
# client can write to. Log lines must stay one JSON object each; a forged
# one must not appear.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use IO::Select;
use IO::Socket::INET;
use JSON::PP ();
use Test::More;
use Edgemeter::Stack;

my $stack = Edgemeter::Stack->for_test(
    yaml     => { log => '{ level: debug }' },
    settings => { log_min_duration_statement => 0, log_connections => 'on' },
)->start;
my $token = $stack->token('acme');
my $http  = $stack->http('acme');
my $json  = JSON::PP->new->utf8->canonical;

my $FORGED = '{"level":"error","message":"forged"}';
my @hostile = (
    "line\nend", "carriage\rreturn", "both\r\n$FORGED", "\e[31mred\e[0m",
    "\e]0;title\a", "\x9b31m", "back\bspace", "tab\there", "del\x7f",
    'quote"quote', "back\\slash", "\x{2028}line\x{2029}", "\x{202e}rtl",
    "null\x{0}", "%0d%0aX-Forged: yes", '${jndi:ldap://x}', "'; DROP TABLE x; --",
    '<script>alert(1)</script>', 'x' x 5000, "\n" x 300,
    "utf8 \x{1f600}" x 20,
);

# --- in every field of an event -----------------------------------------

sub event {
    my ($id, %more) = @_;
    return {
        event_id => $id, type => 'api.request', ts => '2026-09-01T12:00:00Z',
        attributes => { route => '/h' }, %more
    };
}

my $n = 0;
for my $text (@hostile) {
    my @events = (
        event("f$n", type => $text),        event($text),
        event("g$n", customer => $text),    event("h$n", resource => $text),
        event("i$n", source => $text),      event("j$n", ts => $text),
        event("k$n", quantity => $text),    event("l$n", tenant => $text),
        event("m$n", $text => 1),           event("n$n", count => $text),
        event("o$n", attributes => { route => $text }),
        event("p$n", attributes => { route => '/h', $text => $text }),
        event("q$n", attributes => $text),
    );
    $n++;
    my $got = $http->post('/v1/events', $json->encode(\@events));
    $got->{status} == 200 && @{ $got->{json}{results} } == @events
        or fail("text $n: every event has its result: $got->{status}");

    # Again: duplicates and conflicts are logged with their id.
    $http->post('/v1/events', $json->encode(\@events));
    $http->post('/v1/events', $json->encode([event($text, quantity => 7)]));
    my $escaped = Edgemeter::Http::escape($text);
    $http->get("/v1/events/$escaped");
    $http->get("/v1/counters/$escaped");
    $http->get('/v1/counters/api_requests', route => $text);
    $http->get('/v1/counters/api_requests', $text => $text);
    $http->as($text =~ s/[\r\n\0]//gr =~ s/[^\x00-\x7f]//gr)
        ->get('/v1/events/x') if length $text < 1000;
}
pass("$n texts in every field");

# --- in the head of a request -------------------------------------------

sub raw {
    my ($bytes) = @_;
    utf8::encode($bytes) if utf8::is_utf8($bytes);
    my $socket = IO::Socket::INET->new(
        PeerAddr => '127.0.0.1', PeerPort => $stack->port) or die $!;
    local $SIG{PIPE} = 'IGNORE';
    syswrite $socket, $bytes;
    my ($out, $select) = ('', IO::Select->new($socket));
    while ($select->can_read(5)) {
        sysread($socket, $out, 65536, length $out) or last;
    }
    return $out;
}

my @heads;
for my $text (@hostile) {
    my $flat = $text =~ s/\r?\n/\r\n /gr;    # as an obsolete fold, too
    for my $header ('User-Agent', 'Referer', 'Content-Type', 'Accept',
        'Idempotency-Key', 'ce-id', 'Content-Encoding', 'Authorization') {
        push @heads, raw("POST /v1/events HTTP/1.1\r\nHost: x\r\n"
                . "Connection: close\r\n$header: $flat\r\n"
                . ($header eq 'Authorization' ? ''
                    : "Authorization: Bearer $token\r\n")
                . "Content-Length: 2\r\n\r\n[]");
    }
    my $path = Edgemeter::Http::escape($text);
    push @heads, raw("GET /v1/$path HTTP/1.1\r\nHost: x\r\n"
            . "Connection: close\r\nAuthorization: Bearer $token\r\n\r\n");
}
my @split = grep {
    my ($head) = split /\r\n\r\n/, $_, 2;
    ($head // '') =~ /forged|X-Forged|\e|[^\r]\n/i
} @heads;
is scalar @split, 0, scalar(@heads) . ' answers: no header of theirs'
    or diag $split[0];
is scalar(grep { /text\/html/ } map { (split /\r\n\r\n/)[0] // '' }
        grep { !m{^HTTP/1\.1 400} } @heads), 0, 'answers are JSON';

# --- tokens in the wrong places -----------------------------------------

my ($secret) = $token =~ /^em_[^_]+_(.*)$/;
for my $header ("Bearer $token", "bearer  $token", "Basic $token", $token,
    "Bearer $token $token", "Bearer ${token}x", "Bearer $token\t",
    "Token token=$token", "Bearer " . $token x 50) {
    raw("GET /v1/events/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        . "Authorization: $header\r\n\r\n");
}
raw("GET /v1/events/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    . "Authorization: Bearer $token\r\nAuthorization: Bearer $token\r\n\r\n");
raw("POST /v1/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    . "Authorization: Bearer $token\r\nContent-Type: application/json\r\n"
    . "Content-Length: 99999999\r\n\r\n");

# While the database fails, errors are logged with their reasons.
$stack->query('REVOKE SELECT ON meter.event_registry FROM meter_reader');
$http->get('/v1/events/x');
$stack->query('GRANT SELECT ON meter.event_registry TO meter_reader');
$stack->query('ALTER FUNCTION meter.token_find(text) RENAME TO hidden');
$http->as($token =~ s/^em_./em_q/r)->get('/v1/events/x');
$stack->query('ALTER FUNCTION meter.hidden(text) RENAME TO token_find');

# --- the logs -----------------------------------------------------------

$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';

my @lines = split /\n/, $stack->log('meterd');
cmp_ok scalar @lines, '>', 100, scalar(@lines) . ' lines of log';
my (@broken, @control, @forged, @long, @values);
for my $line (@lines) {
    my $object = eval { $json->decode($line) };
    push @broken, $line
        unless ref $object eq 'HASH' && $object->{time} && $object->{level};
    push @control, $line if $line =~ /[\x00-\x1f\x7f]/;
    push @control, $line if $line =~ /\xc2[\x80-\x9f]/;
    push @forged, $line if ($object->{message} // '') eq 'forged';
    push @long, $line if length $line > 4096;
    push @values, grep { !ref && length > 1024 } values %{ $object // {} };
}
is scalar @broken, 0, 'every line is one JSON object' or diag $broken[0];
is scalar @control, 0, 'no control byte in any' or diag $control[0];
is scalar @forged, 0, 'no forged line';
is scalar @long,   0, 'no line is long' or diag $long[0];
is scalar @values, 0, 'nor a value';
like $stack->log('meterd'), qr/\\u001b\[31mred/, 'escapes are written out';

for my $name (qw(nginx-error nginx-access)) {
    my $log = $stack->log($name);
    cmp_ok length $log, '>', 100, "there is a log of $name";
    unlike $log, qr/[\x00-\x09\x0b-\x1f\x7f]/, 'without control bytes';
    unlike $log, qr/^\Q$FORGED\E/m, 'or a forged line';
}
for my $name (qw(meterd nginx-error nginx-access postgres)) {
    ok index($stack->log($name), $secret) < 0, "no token in the log of $name";
}
done_testing;
