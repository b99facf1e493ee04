#!/usr/bin/perl

# 36-spoof.t - the tenant comes from the token and from nowhere else.
#
# A client with acme's token tries to read or write as globex by headers,
# paths, bodies and broken framing, byte by byte over a plain socket. Not
# one answer may hold a byte of globex's, not one row may be globex's.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use IO::Select;
use IO::Socket::INET;
use Test::More;
use Edgemeter::Stack;

my $stack  = Edgemeter::Stack->for_test->start;
my $acme   = $stack->token('acme');
my $globex = $stack->token('globex');
my $SECRET = 'globex-secret-route';

# Bytes to nginx, all that comes back until it closes or falls silent.
sub raw {
    my ($bytes) = @_;
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

sub request {
    my ($line, @headers) = @_;
    my $body = '';
    $body = pop(@headers)->{body} if ref $headers[-1];
    push @headers, 'Content-Length: ' . length $body if length $body;
    return raw(join "\r\n", $line, 'Host: localhost', 'Connection: close',
        @headers, '', $body);
}

sub statuses { return join ' ', $_[0] =~ m{HTTP/1\.1 (\d+)}g }

sub event {
    my ($id, $more) = @_;
    $more //= '';
    return qq({"event_id":"$id","type":"api.request",)
        . qq("ts":"2026-09-01T12:00:00Z","attributes":{"route":"/a"}$more});
}

my @json = ('Content-Type: application/json');
my @auth = ("Authorization: Bearer $acme");

# What there is to steal: an event and a counter of globex.
{
    my $answer = request('POST /v1/events HTTP/1.1',
        "Authorization: Bearer $globex", @json,
        { body => event('secret', '') =~ s{"/a"}{"$SECRET"}r });
    is statuses($answer), 200, 'globex has an event';
    like request('GET /v1/events/secret HTTP/1.1',
        "Authorization: Bearer $globex"), qr/$SECRET/, 'and reads it';
}
my $plain = request('GET /v1/events/secret HTTP/1.1', @auth);
is statuses($plain), 404, 'acme does not';

# --- reading ------------------------------------------------------------

my %read = (
    'X-Tenant'            => ['X-Tenant: globex'],
    'X-Tenant-Id'         => ['X-Tenant-Id: globex'],
    'X-Meter-Tenant'      => ['X-Meter-Tenant: globex'],
    'Tenant'              => ['Tenant: globex'],
    'ce-tenant'           => ['ce-tenant: globex', 'ce-id: secret'],
    'underscore'          => ['x_tenant: globex', 'meter_tenant: globex'],
    'X-Forwarded-User'    => ['X-Forwarded-User: globex'],
    'app.current_tenant'  => ['app.current_tenant: globex'],
    'X-Original-URL'      => ['X-Original-URL: /v1/events/secret',
        'X-Rewrite-URL: /v1/events/secret'],
    'cookie'              => ['Cookie: tenant=globex; meter_tenant=globex'],
    'proxy authorization' => ["Proxy-Authorization: Bearer $acme"],
);
for my $name (sort keys %read) {
    my $answer = request('GET /v1/events/secret HTTP/1.1', @auth,
        @{ $read{$name} });
    is statuses($answer), 404, "header $name: like without it";
    unlike $answer, qr/$SECRET|globex/, 'nothing of globex';
}

my %target = (
    'argument'        => '/v1/events/secret?tenant=globex',
    'two arguments'   => '/v1/events/secret?tenant=acme&tenant=globex',
    'absolute URI'    => 'http://globex/v1/events/secret',
    'user in URI'     => 'http://globex@localhost/v1/events/secret',
    'double slash'    => '//v1//events//secret',
    'dots'            => '/v1/acme/../events/secret',
    'encoded dots'    => '/v1/%2e%2e/v1/events/secret',
    'encoded slash'   => '/v1/events%2Fsecret',
    'encoded tenant'  => '/v1/events/globex%2Fsecret',
    'tenant path'     => '/v1/globex/events/secret',
    'tenant resource' => '/v1/tenants/globex/events/secret',
    'matrix'          => '/v1/events/secret;tenant=globex',
    'matrix first'    => '/v1;tenant=globex/events/secret',
    'double encoding' => '/v1/events/%2573ecret',
    'NUL'             => '/v1/events/secret%00globex',
    'backslash'       => '/v1\\events\\secret',
    'fragment'        => '/v1/events/secret#globex',
    'semicolon'       => '/v1/events/secret%3Btenant%3Dglobex',
    'quote'           => "/v1/events/secret%27%20OR%20tenant%3D%27globex",
    'key of a scope'  => '/v1/events/globex%1Fsecret',
    'upper case'      => '/V1/EVENTS/SECRET',
    'overlong'        => '/v1/events/%c0%aesecret',
);
for my $name (sort keys %target) {
    my $answer = request("GET $target{$name} HTTP/1.1", @auth);
    like statuses($answer), qr/^(?:400|404|409|414)$/, "target $name: refused";
    unlike $answer, qr/$SECRET/, 'nothing of globex';
}
my $counter = request("GET /v1/counters/api_requests?route=$SECRET HTTP/1.1",
    @auth, 'X-Tenant: globex');
is statuses($counter), 404, "globex's counter: like one that never was";

# --- two tokens, odd tokens ---------------------------------------------

my %two = (
    'twice'           => [@auth, "Authorization: Bearer $globex"],
    'twice, one case' => [@auth, "authorization: Bearer $globex"],
    'the same twice'  => [@auth, @auth],
    'joined'          => ["Authorization: Bearer $acme, Bearer $globex"],
    'a list'          => ["Authorization: Bearer $acme,$globex"],
    'two words'       => ["Authorization: Bearer $acme $globex"],
    'underscore'      => ["author_ization: Bearer $globex"],
    'no scheme'       => ["Authorization: $globex"],
    'basic'           => ["Authorization: Basic $globex"],
    'tab'             => ["Authorization: Bearer\t$globex"],
    'padded'          => ["Authorization: Bearer $globex="],
    'folded'          => ["Authorization: Bearer\r\n $globex"],
    'cut'             => ['Authorization: Bearer ' . substr($globex, 0, -1)],
    'longer'          => ["Authorization: Bearer ${globex}A"],
    'other id'        => ['Authorization: Bearer '
        . ($acme =~ /^(em_[^_]+)/)[0] . ($globex =~ /^em_[^_]+(_.*)/)[0]],
    'other case'      => ['Authorization: Bearer ' . lc $globex],
    'in a cookie'     => ["Cookie: Authorization=Bearer $globex"],
    'as an argument'  => [],
);
for my $name (sort keys %two) {
    my $args = $name eq 'as an argument' ? '?access_token=none' : '';
    my $answer = request("GET /v1/events/secret$args HTTP/1.1",
        @{ $two{$name} });
    like statuses($answer), qr/^40[01]$/, "authorization $name: refused";
    unlike $answer, qr/$SECRET/, 'nothing of globex';
}

# --- writing ------------------------------------------------------------

my %body = (
    'member'         => ',"tenant":"globex"',
    'escaped member' => ',"ten\u0061nt":"globex"',
    'twice'          => ',"tenant":"acme","tenant":"globex"',
    'a list'         => ',"tenant":["acme","globex"]',
    'other case'     => ',"Tenant":"globex"',
    'tenant_id'      => ',"tenant_id":"globex"',
    'scope'          => ',"scope":"globex"',
    'padded'         => ',"tenant":"globex "',
    'NUL'            => ',"tenant":"globex\u0000"',
);
my $n = 0;
for my $name (sort keys %body) {
    my $answer = request('POST /v1/events HTTP/1.1', @auth, @json,
        'X-Tenant: globex', { body => event('w' . $n++, $body{$name}) });
    is statuses($answer), 400, "body $name: rejected";
}
my %write = (
    'headers'  => ['X-Tenant: globex', 'ce-tenant: globex', 'Tenant: globex'],
    'override' => ['X-HTTP-Method-Override: GET', 'X-Original-URL: /v1/x'],
);
for my $name (sort keys %write) {
    my $answer = request('POST /v1/events HTTP/1.1', @auth, @json,
        @{ $write{$name} }, { body => event('w' . $n++) });
    is statuses($answer), 200, "write with $name: taken as acme's";
}

# --- framing ------------------------------------------------------------

# The second request must never be read with the rights of the first.
my $smuggled = "GET /v1/events/secret HTTP/1.1\r\nHost: x\r\n"
    . "Connection: close\r\n\r\n";
my $post = "POST /v1/events HTTP/1.1\r\nHost: x\r\n"
    . "Authorization: Bearer $globex\r\nContent-Type: application/json\r\n";
my %frame = (
    'length and chunks' => $post . "Content-Length: 4\r\n"
        . "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n$smuggled",
    'two lengths'       => $post . "Content-Length: 2\r\n"
        . "Content-Length: 90\r\n\r\n[]$smuggled",
    'odd encoding'      => $post . "Transfer-Encoding: xchunked\r\n\r\n"
        . "0\r\n\r\n$smuggled",
    'bare line feed'    => $post . "Content-Length : 2\r\n\r\n[]$smuggled",
    'pipelined'         => $post . "Content-Length: 2\r\n\r\n[]$smuggled",
    'negative length'   => $post . "Content-Length: -1\r\n\r\n[]$smuggled",
);
for my $name (sort keys %frame) {
    my $answer = raw($frame{$name});
    like statuses($answer), qr/^(?:200 401|400|411|501|401)$/,
        "framing $name: " . statuses($answer);
    unlike $answer, qr/$SECRET/, 'nothing of globex';
}
for my $encoding (qw(deflate br compress), 'identity, gzip', 'gzip, gzip') {
    is statuses(request('POST /v1/events HTTP/1.1', @auth, @json,
        "Content-Encoding: $encoding", { body => '[]' })), 415,
        "Content-Encoding $encoding: 415";
}

# --- what came of it ----------------------------------------------------

is $stack->query("SELECT string_agg(event_id, ',') FROM meter.event"
    . " WHERE tenant = 'globex'"), 'secret', 'globex still has its one event';
is $stack->query("SELECT count(*) FROM meter.event WHERE tenant NOT IN"
    . " ('acme', 'globex')"), 0, 'and nobody else has any';
is $stack->query("SELECT count(*) FROM meter.event WHERE tenant = 'acme'"),
    scalar keys %write, 'acme has what it may write';

# A tenant whose name would be SQL where someone pasted it.
subtest 'names that look like SQL' => sub {
    for my $tenant (q(x' OR 'a'='a), q(globex'; SET ROLE meterd; --),
        q($$globex$$), q("globex"), q(\\'; RESET ROLE; --), 'globex ') {
        my ($status, $out) = $stack->meterd_command('token', 'create',
            $stack->config_arguments, '--tenant', $tenant,
            '--scopes', 'ingest,read');
        is $status, 0, "a token for $tenant";
        chomp $out;
        my $http = $stack->http->as($out);
        is $http->get('/v1/events/secret')->{status}, 404, 'sees nothing';
        is $http->post('/v1/events', event('own'))->{json}{accepted}, 1,
            'writes';
        is $http->get('/v1/events/own')->{json}{tenant}, $tenant, 'its own';
    }
};

$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
done_testing;
