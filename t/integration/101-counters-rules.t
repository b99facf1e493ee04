#!/usr/bin/perl

# 101-counters-rules.t - the counters API: what is refused and with which
# words, and that no one gets at another tenant's counters.

use strict;
use warnings;
use utf8;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use IO::Select;
use IO::Socket::INET;
use Test::More;
use Edgemeter::Counters;
use Edgemeter::Stack;

binmode Test::More->builder->$_, ':utf8'
    for qw(output failure_output todo_output);

my @WRITES = qw(increment decrement incrementSync decrementSync set);
my @READS  = qw(get sumRange);

my $stack    = Edgemeter::Stack->for_test->start;
my $acme     = Edgemeter::Counters->new($stack->http('acme'),   'acme');
my $globex   = Edgemeter::Counters->new($stack->http('globex'), 'globex');
my $NONE
    = q(404 {"error":"Counter doesn't exist for the specified bucket"});

sub told { return $acme->told(@_) }

# What a verb needs besides the defaults.
sub needs { return $_[0] eq 'set' ? (targetValue => 1) : () }

sub error {
    my ($status, $sentence) = @_;
    $sentence =~ s/"/\\"/g;
    return qq($status {"error":"$sentence"});
}

sub rows {
    return $stack->query('SELECT count(*) FROM meter.bucket_counter');
}

# --- parameters ---------------------------------------------------------

my $DURATION
    = error(400, 'durationSeconds must be an integer from 0 to 31622400000');
my $AMOUNT = error(400,
    'amount must be an integer from 1 to 9223372036854775807');
my $TARGET = error(400, 'targetValue must be an integer or a text of one,'
    . ' from 0 to 9223372036854775807');

sub instant {
    my ($name) = @_;
    return error(400, "$name must be RFC 3339, like 2026-09-01T12:00:00Z, or"
        . ' an epoch number');
}

my @NO_TIMES = ('', 'now', '2024-03-15', '2024-03-15T10:30:00',
    '2024-03-15 10:30:00Z', '2024-02-30T00:00:00Z', '2024-03-15T24:00:00Z',
    '2024-03-15T10:30:60Z', '2024-03-15T10:30:00+24:00',
    '10000-01-01T00:00:00Z', '0000-01-01T00:00:00Z', '12:00', '1e99', 'NaN',
    '253402300800000');

subtest 'durationSeconds: required, non-negative' => sub {
    my @bad = map { \$_ } '-1', '-0', '1.0', '1e3', '3600.5', '"3600"',
        'true', '[]', '{}', '31622400001', '9223372036854775808',
        '99999999999999999999';
    for my $verb (@WRITES) {
        is told($verb, 'bad', needs($verb), durationSeconds => $_), $DURATION,
            "$verb: $$_"
            for @bad;
        is told($verb, 'bad', needs($verb), durationSeconds => undef),
            error(400, 'durationSeconds is missing'), "$verb: null";
        is told($verb, 'bad', body => '{"timestamp":0}'),
            error(400, 'durationSeconds is missing'), "$verb: absent";
    }
    for my $verb (@READS) {
        is told($verb, 'bad', durationSeconds => $_), $DURATION, "$verb: '$_'"
            for '', '-1', '-0', '+1', '1.0', '1e3', ' 60', '60s', '0x10',
            '31622400001', '99999999999999999999';
        is told($verb, 'bad', durationSeconds => undef),
            error(400, 'durationSeconds is missing'), "$verb: absent";
    }
};

subtest 'timestamp: required, ISO 8601 or epoch' => sub {
    for my $verb (@WRITES) {
        is told($verb, 'bad', needs($verb), timestamp => $_),
            instant('timestamp'), "$verb: '$_'"
            for @NO_TIMES;
        is told($verb, 'bad', needs($verb), timestamp => \$_),
            instant('timestamp'), "$verb: $_"
            for 'true', '[]', '{}', '1e99', '253402300800000';
        is told($verb, 'bad', needs($verb), timestamp => undef),
            error(400, 'timestamp is missing'), "$verb: null";
    }
    for my $name (qw(startTime endTime)) {
        is told('sumRange', 'bad', $name => $_), instant($name),
            "sumRange: $name '$_'"
            for @NO_TIMES;
        is told('sumRange', 'bad', $name => undef),
            error(400, "$name is missing"), "sumRange: $name absent";
    }
    is told('get', 'bad', timestamp => $_), instant('timestamp'), "get: '$_'"
        for @NO_TIMES;
    is told('get', 'bad', timestamp => undef),
        error(400, 'timestamp is missing'), 'get: absent';
};

subtest 'amount: must be positive' => sub {
    for my $verb (grep { $_ ne 'set' } @WRITES) {
        is told($verb, 'bad', amount => \$_), $AMOUNT, "$verb: $_"
            for '0', '-1', '-0', '1.0', '1e3', '0.5', '"5"', 'true', '[1]',
            '9223372036854775808', '18446744073709551617';
        is told($verb, 'bad', targetValue => 1),
            error(400, 'unknown member "targetValue"'),
            "$verb: takes no targetValue";
    }
};

subtest 'targetValue: required, non-negative' => sub {
    is told('set', 'bad', targetValue => \$_), $TARGET, "set: $_"
        for '-1', '-0', '1.0', '1e3', '"-1"', '"1.0"', '"+1"', '" 1"', '""',
        '"x"', 'true', '[1]', '9223372036854775808',
        '"9223372036854775808"';
    is told('set', 'bad'), error(400, 'targetValue is missing'), 'absent';
    is told('set', 'bad', targetValue => undef),
        error(400, 'targetValue is missing'), 'null';
    is told('set', 'bad', targetValue => 1, amount => 1),
        error(400, 'unknown member "amount"'), 'takes no amount';
};

subtest 'expiresAt: an instant, but ignored by decrements' => sub {
    for my $verb (qw(increment incrementSync set)) {
        is told($verb, 'bad', needs($verb), expiresAt => $_),
            instant('expiresAt'), "$verb: '$_'"
            for @NO_TIMES;
    }
    for my $verb (qw(decrement decrementSync)) {
        is told($verb, 'bad', expiresAt => $_),
            error(409, 'Operation failed due to constraint violation (e.g.,'
                . ' counter cannot be negative)'), "$verb: '$_'"
            for 'nonsense', 7;
        is told($verb, 'bad', expiresAt => \'{}'),
            error(409, 'Operation failed due to constraint violation (e.g.,'
                . ' counter cannot be negative)'), "$verb: {}";
    }
};

subtest 'bodies and arguments: nothing else' => sub {
    my $unknown = error(400, 'unknown member "amuont"');
    my %body = (
        ''                 => qr/^400 .*the body is not JSON/,
        '{'                => qr/^400 .*the body is not JSON/,
        '[]'               => qr/^400 .*the body must be a JSON object/,
        '{} {}'            => qr/^400 .*the body goes on behind its JSON/,
        '{"timestamp":0,"timestamp":1}' => qr/^400 /,
        '{"tenant":"globex"}' => qr/^400 .*unknown member \\"tenant\\"/,
        '{"tenantId":"acme"}' => qr/^400 .*unknown member \\"tenantId\\"/,
    );
    for my $verb (@WRITES) {
        is told($verb, 'bad', needs($verb), amuont => 1), $unknown,
            "$verb: an unknown member";
        like told($verb, 'bad', body => $_), $body{$_}, "$verb: '$_'"
            for sort keys %body;
        my $got = $acme->http->request(Edgemeter::Counters::method_of($verb),
            $acme->path($verb, 'bad') . '?durationSeconds=0',
            Edgemeter::Counters::body_of(needs($verb)));
        is "$got->{status} $got->{body}",
            error(400, 'the path takes no query arguments'),
            "$verb: no arguments";
    }
    for my $verb (@READS) {
        is told($verb, 'bad', tenant => 'globex'),
            error(400, 'unknown argument "tenant"'),
            "$verb: an unknown argument";
        is told($verb, 'bad', durationseconds => 1),
            error(400, 'unknown argument "durationseconds"'),
            "$verb: in another case";
        my $got = $acme->http->get(
            $acme->read_path($verb, 'bad') . '&durationSeconds=60');
        is "$got->{status} $got->{body}",
            error(400, 'a query argument is given twice'), "$verb: twice";
    }
    is told('get', 'bad', startTime => 0),
        error(400, 'unknown argument "startTime"'), 'get: of the other';
    is told('sumRange', 'bad', timestamp => 0),
        error(400, 'unknown argument "timestamp"'), 'sumRange: likewise';
};

is rows(), 0, 'nothing of it was applied';

# --- names --------------------------------------------------------------

subtest 'name: URL-safe, 1-255 chars' => sub {
    my $bad = error(400, 'the name must be 1 to 255 letters, digits, ".", "_",'
        . ' "~" and "-", and not "." or ".."');
    for my $name (qw(user_logins api_calls_v2 payment_success cache_hits a),
        'A-Z.a~z_09', 'x' x 255, '...', '-', 'set', '%41%62c')
    {
        my $is = substr $name, 0, 20;
        is $acme->send('increment', $name)->{status}, 200, $is;
        is $acme->send('get', $name)->{status}, 200, "$is: get";
    }
    is told('get', 'Abc'), '200 {"net":"1","added":"1","subbed":"0"}',
        'escaped or not: one name';
    is told('get', 'abc'), $NONE, 'another case: another name';
    my $before = rows();
    my %name = (
        'a space' => 'user%20logins', 'a slash' => 'api%2Fcalls',
        'an emoji' => '%F0%9F%94%A5', 'a raw emoji' => "\xF0\x9F\x94\xA5",
        '256 characters' => 'x' x 256, 'a plus' => 'a+b', 'dot' => '%2e',
        'dots' => '%2E%2e', 'semicolon' => 'a;b', 'colon' => 'a:b',
        'percent' => 'a%25b', 'twice escaped' => '%2541', 'quote' => 'a%27b',
        'at' => 'a@b', 'line feed' => 'a%0A', 'e acute' => '%C3%A9',
        'star' => '*', 'equals' => 'a=b', 'ampersand' => 'a&b',
    );
    for my $what (sort keys %name) {
        for my $verb (@WRITES, @READS) {
            is told($verb, $name{$what}, needs($verb)), $bad, "$verb: $what";
        }
    }
    for my $name ('%00', '%zz', '%', '%C3', '%ff') {
        is $acme->send('increment', $name)->{status}, 400, "$name: 400";
    }
    for my $verb (@WRITES, @READS) {
        is told($verb, '', needs($verb)), error(404, 'no such path'),
            "$verb: an empty name is no path";
    }
    is rows(), $before, 'none was made';
};

# --- tenants ------------------------------------------------------------

# Bytes to nginx, status and body of what comes back.
sub raw {
    my ($line, @headers) = @_;
    my $body = ref $headers[-1] ? ${ pop @headers } : '';
    push @headers, 'Content-Length: ' . length $body if length $body;
    my $socket = IO::Socket::INET->new(
        PeerAddr => '127.0.0.1', PeerPort => $stack->port) or die $!;
    syswrite $socket, join "\r\n", $line, 'Host: localhost',
        'Connection: close', @headers, '', $body;
    my ($out, $select) = ('', IO::Select->new($socket));
    while ($select->can_read(5)) {
        sysread($socket, $out, 65536, length $out) or last;
    }
    return join ' ', $out =~ m{^HTTP/1\.1 (\d+).*?\r\n\r\n(.*)}s;
}

subtest 'tenantId: must match the authenticated user, else 404' => sub {
    is $globex->send('increment', 'hits', amount => 77)->{status}, 200,
        'globex has a counter';
    for my $verb (@WRITES, @READS) {
        my %answers;
        for my $tenant (qw(globex nobody Acme acme%20 acm acmee acme%2F),
            'a' x 300, '%F0%9F%94%A5')
        {
            my $as = Edgemeter::Counters->new($acme->http, $tenant);
            my $got = $as->send($verb, 'hits', needs($verb));
            $answers{"$got->{status} $got->{body} "
                . join ',', map {"$_=$got->{headers}{$_}"}
                grep { $_ ne 'date' } sort keys %{ $got->{headers} }}++;
        }
        is scalar keys %answers, 1, "$verb: one answer for all of them";
        like((keys %answers)[0], qr/^\Q$NONE\E/, 'as for no bucket');
    }
};

subtest 'tenant mismatch comes before name, arguments, body and type' => sub {
    my $as = Edgemeter::Counters->new($acme->http, 'globex');
    my @headers = ({ 'content-type' => 'text/plain' },
        { 'idempotency-key' => 'a b' }, {});
    for my $verb (@WRITES) {
        is $as->told($verb, 'hits', body => '{', header => $_), $NONE, $verb
            for @headers;
        is $as->told($verb, 'a%20b', body => 'x' x 70_000), $NONE, $verb;
        is $as->told($verb, 'hits', needs($verb),
            header => { 'idempotency-key' => 'fine' }), $NONE, $verb;
    }
    for my $verb (@READS) {
        is $as->told($verb, 'hits', nonsense => 1, durationSeconds => 'x'),
            $NONE, $verb;
        is $as->told($verb, 'a%20b'), $NONE, $verb;
    }
    is $stack->query("SELECT count(*) FROM meter.api_idempotency"), 0,
        'no key was kept';
};

subtest 'no spelling of a path or header leads to another tenant' => sub {
    my @auth = ('Authorization: Bearer ' . $stack->token('acme'),
        'Content-Type: application/json');
    my $body = Edgemeter::Counters::body_of(amount => 1000);
    my @paths = map { s/T/globex/r } (
        '//api/counters/T/hits/', '/api//counters/T/hits/',
        '/api/counters//T/hits/', '/api/counters/T//hits/',
        '/api/counters/T/hits//', '/api/counters/./T/hits/',
        '/api/counters/acme/../T/hits/', '/api/counters/acme/%2e%2e/T/hits/',
        '/api/counters/%2e/T/hits/', '/api/counters/acme;/T/hits/',
        '/api/counters/T;acme/hits/', '/api/counters/acme;T/hits/',
        '/api/counters;T/acme/../T/hits/', '/api/counters/acme/T/hits/',
        '/api/counters/acme%2F..%2FT/hits/', '/api/counters/acme%2FT/hits/',
        '/api/counters/acme/T%2Fhits/', '/api/counters/acme/..%2FT%2Fhits/',
        '/API/counters/T/hits/', '/api/Counters/T/hits/',
        '/api/counters/GLOBEX/hits/', '/api/counters/Globex/hits/',
        '/api/counters/%67lobex/hits/', '/api/counters/%2567lobex/hits/',
        '/api/counters/T%00/hits/', '/api/counters/T%20/hits/',
        '/api/counters/acme\\..\\T/hits/', '/api/counters/T/hits/../hits/',
        'http://globex/api/counters/T/hits/', '/v1/../api/counters/T/hits/',
        '/api/counters/acme/../../counters/T/hits/',
        '/api/counters/%c0%ae%c0%ae/T/hits/',
    );
    for my $path (@paths) {
        like raw("POST ${path}increment HTTP/1.1", @auth, \$body), qr/^40[045] /,
            "POST $path";
        my $read = raw("GET ${path}get?durationSeconds=3600"
                . '&timestamp=2024-03-15T10:30:00Z HTTP/1.1', @auth);
        like $read, qr/^40[045] /, "GET $path";
        unlike $read, qr/77/, 'nothing of globex';
    }
    my @names = ('X-Tenant', 'X-Tenant-Id', 'X-Meter-Tenant', 'Tenant',
        'tenantId', 'x_tenant', 'X-User-Id', 'X-Forwarded-User', 'ce-tenant',
        'X-HTTP-Method-Override', 'X-Original-URL', 'X-Rewrite-URL', 'Cookie');
    for my $name (@names) {
        my @spoof = ("$name: globex", "$name: /api/counters/globex/hits/get");
        like raw('GET /api/counters/globex/hits/get?durationSeconds=3600'
                . '&timestamp=2024-03-15T10:30:00Z HTTP/1.1', @auth, $spoof[0]),
            qr/^404 /, "$name: not globex's";
        is raw('GET /api/counters/acme/hits/get?durationSeconds=3600'
                . '&timestamp=2024-03-15T10:30:00Z HTTP/1.1', @auth, @spoof),
            $NONE, "$name: acme's own";
    }
    is $globex->told('get', 'hits'),
        '200 {"net":"77","added":"77","subbed":"0"}', 'globex has what it had';
    is $stack->query("SELECT DISTINCT tenant FROM meter.bucket_counter"
        . " WHERE name = 'hits'"), 'globex', 'and nobody else';
    is told('increment', 'hits'), '200 {"net":"1","added":"1","subbed":"0"}',
        'the same name is a counter of its own for each tenant';
};

# --- statuses -----------------------------------------------------------

sub make_token {
    my ($scopes) = @_;
    my ($status, $out, $err) = $stack->meterd_command('token', 'create',
        $stack->config_arguments, '--tenant', 'acme', '--scopes', $scopes);
    die $err if $status;
    return ($out =~ /\b(em_\w+_[\w-]+)/)[0];
}

subtest 'authentication required: yes' => sub {
    my $denied = error(401, 'a valid bearer token is needed');
    for my $token (undef, 'nonsense', $stack->token('acme') . 'x') {
        for my $tenant (qw(acme globex nobody)) {
            my $as = Edgemeter::Counters->new($acme->http->as($token),
                $tenant);
            is $as->told($_, 'hits', needs($_)), $denied, "$_ of $tenant: 401"
                for @WRITES, @READS;
            is $as->told('increment', 'a%20b', body => '{',
                header => { 'content-type' => 'x' }), $denied, 'first of all';
        }
    }
    is $acme->http->as(undef)->get($acme->read_path('get', 'hits'))
        ->{headers}{'www-authenticate'}, 'Bearer', 'WWW-Authenticate';
};

subtest 'a token without the scope: 403' => sub {
    my %scope = ((map { $_ => 'write' } @WRITES), map { $_ => 'read' } @READS);
    my %token = map { $_ => make_token($_) } 'read', 'write', 'ingest,admin';
    for my $verb (sort keys %scope) {
        for my $held (sort keys %token) {
            for my $tenant (qw(acme globex)) {
                my $as = Edgemeter::Counters->new(
                    $acme->http->as($token{$held}), $tenant);
                my $got = $as->told($verb, 'scoped', needs($verb));
                if ($held ne $scope{$verb}) {
                    is $got, error(403,
                        "the token lacks the scope \"$scope{$verb}\""),
                        "$verb of $tenant with $held";
                }
                else {
                    unlike $got, qr/^403/, "$verb of $tenant with $held";
                }
            }
        }
    }
};

subtest 'another method: 405 with Allow' => sub {
    my %allow = ((map { $_ => 'POST' } @WRITES), set => 'PUT',
        map { $_ => 'GET, HEAD' } @READS);
    for my $verb (sort keys %allow) {
        for my $method (qw(GET HEAD POST PUT PATCH DELETE OPTIONS)) {
            next if $allow{$verb} =~ /\b$method\b/;
            my $got = $acme->http->request($method,
                $acme->path($verb, 'methods'), $method =~ /^P/ ? '{}' : undef);
            is "$got->{status} " . ($got->{headers}{allow} // ''),
                "405 $allow{$verb}", "$method $verb";
        }
    }
    is told('get', 'methods'), $NONE, 'nothing was made';
    is $acme->send($_, 'methods')->{body}, '{"error":"no such path"}', $_
        for 'Increment', 'increments', 'incrementsync', 'sumrange', 'delete';
};

subtest '413 and 415' => sub {
    for my $verb (@WRITES) {
        my $large = Edgemeter::Counters::body_of(needs($verb)) . ' ' x 65536;
        is told($verb, 'sized', body => $large),
            error(413, 'the body is larger than 65536 bytes'), "$verb: 413";
        is $acme->send($verb, 'sized',
            body => substr($large, 0, 65536))->{status},
            $verb =~ /^dec/ ? 409 : 200, "$verb: 65536 bytes are fine"
            if $verb !~ /^dec/;
        for my $type ('text/plain', 'application/x-www-form-urlencoded',
            'application/jsonp', '')
        {
            is told($verb, 'typed', needs($verb),
                header => { 'content-type' => $type }),
                error(415, 'the Content-Type must be application/json'),
                "$verb: '$type'";
        }
        is $acme->send($verb, 'typed', needs($verb),
            header => { 'content-encoding' => 'gzip' })->{status}, 415,
            "$verb: compressed";
    }
    is $acme->send('increment', 'typed2', header => {
        'content-type' => 'Application/JSON; charset=utf-8' })->{status}, 200,
        'with a charset';
    is told('get', 'typed'), $NONE, 'nothing was made';
};

done_testing;
