#!/usr/bin/perl

# 71-tenants.t - the list of all tenants: for administrators, page by page.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use POSIX ();
use Test::More;
use Edgemeter::Stack;

my $stack = Edgemeter::Stack->for_test(rules => \<<'YAML')->start;
events:
  - { type: memory.created }
usage:
  entryCount: { increment: [memory.created] }
YAML

sub token {
    my ($stack, $scopes) = @_;
    my ($status, $token, $why) = $stack->meterd_command('token', 'create',
        $stack->config_arguments, '--tenant', 'acme', '--scopes', $scopes);
    die $why if $status;
    chomp $token;
    return $token;
}

my $http  = $stack->http;
my $admin = $http->as(token($stack, 'admin'));

sub page {
    my (%query) = @_;
    return $admin->get('/v1/tenants', %query);
}

subtest 'scopes' => sub {
    is $http->get('/v1/tenants')->{status}, 401, 'no token: 401';
    for my $scopes (qw(ingest read write), 'ingest,read,write') {
        is $http->as(token($stack, $scopes))->get('/v1/tenants')->{status},
            403, "$scopes: 403";
    }
    my $got = page();
    is $got->{status}, 200, 'admin: 200';
    is $got->{body}, '{"tenants":[]}', 'nobody yet';
    is $admin->post('/v1/tenants', {})->{status}, 405, 'POST: 405';
};

subtest 'a row' => sub {
    is $stack->http('globex')->post('/v1/events', {
        event_id => 'e1', type => 'memory.created',
        ts => '2026-09-01T12:00:00Z'
    })->{json}{accepted}, 1, 'an event of globex';
    my $got = page();
    like delete $got->{json}{tenants}[0]{last_updated_at}, qr/^20.*Z$/,
        'last_updated_at';
    is_deeply $got->{json},
        {   tenants => [{
                tenant_id      => 'globex',
                entry_count    => '1',
                storage_bytes  => '0',
                api_call_count => '0',
                status         => 'active'
            }]
        },
        'as the tenant itself sees it; there is no next page';
};

# The database looks at the token again: one that meterd still remembers does
# not list, nor does a read as meter_reader that forgets whose it is.
subtest 'the second lock' => sub {
    my $token = token($stack, 'admin,read');
    my $other = $http->as($token);
    is $other->get('/v1/tenants')->{status}, 200, 'an administrator lists';
    my ($id) = $token =~ /^em_([^_]+)_/;
    $stack->query('UPDATE meter.api_token SET revoked_at = now()'
        . " WHERE token_id = '$id'");
    is $other->get('/v1/tenants/acme/usage')->{status}, 404,
        'revoked: meterd still remembers it';
    my $got = $other->get('/v1/tenants');
    is "$got->{status} $got->{json}{error}",
        '401 a valid bearer token is needed', 'and lists no longer';

    my @functions = $stack->query(<<'SQL');
SELECT format('%s(%s)', proc.oid::regproc, string_agg(
    format('NULL::%s', format_type(argument.type, NULL)), ', '
    ORDER BY argument.place))
FROM pg_proc AS proc
CROSS JOIN LATERAL unnest(proc.proargtypes::oid[])
    WITH ORDINALITY AS argument (type, place)
WHERE proc.prosecdef
    AND proc.pronamespace = 'meter'::regnamespace
    AND has_function_privilege('meter_reader', proc.oid, 'EXECUTE')
GROUP BY proc.oid
SQL
    cmp_ok scalar @functions, '>', 1, 'functions that run as the owner';
    for my $function (@functions) {
        my @rows = eval { $stack->query('BEGIN; SET LOCAL ROLE meter_reader;'
            . " SELECT meter.set_tenant('acme'); SELECT * FROM $function;"
            . ' ROLLBACK') };
        unlike "@rows", qr/globex/, "$function shows no other tenant";
    }
};

# Many, most of them of one status, and the others at the end of all names.
$stack->query(<<'SQL');
INSERT INTO meter.tenant_usage_metrics
SELECT
    't' || lpad(n::text, 6, '0'),
    n,
    9223372036854775807,
    0,
    CASE WHEN n > 99950 OR n % 10000 = 0 THEN 'decommissioned'
        ELSE 'active' END
FROM generate_series(1, 100000) AS n;
SQL
$stack->query('ANALYZE meter.tenant_usage_metrics');

# All names, by pages of a size.
sub walk {
    my (%query) = @_;
    my ($pages, @names) = (0);
    while (1) {
        my $got = page(%query);
        return "status $got->{status}" if $got->{status} != 200;
        push @names, map { $_->{tenant_id} } @{ $got->{json}{tenants} };
        $pages++;
        last unless defined $got->{json}{cursor};
        return 'no end' if $pages > 300;
        $query{cursor} = $got->{json}{cursor};
    }
    return ($pages, @names);
}

subtest 'pages' => sub {
    my $got = page();
    is scalar @{ $got->{json}{tenants} }, 100, 'a hundred, unless told';
    is $got->{json}{tenants}[0]{tenant_id}, 'globex', 'by name';
    is $got->{json}{tenants}[1]{storage_bytes}, '9223372036854775807',
        'numbers are exact';
    ok defined $got->{json}{cursor}, 'and a cursor';

    my ($pages, @names) = walk(limit => 1000);
    is $pages, 101, 'pages of a thousand';
    is scalar @names, 100001, 'everybody';
    is join(' ', @names), join(' ', sort @names), 'in order, each once';

    my @gone = $stack->query("SELECT tenant_id FROM"
        . " meter.tenant_usage_metrics WHERE status = 'decommissioned'"
        . ' ORDER BY tenant_id');
    for my $limit (1, 7, 59, 60, 1000) {
        ($pages, @names) = walk(status => 'decommissioned', limit => $limit);
        is_deeply \@names, \@gone, "by status, pages of $limit";
        is $pages, POSIX::ceil(@gone / $limit), 'no page is empty';
    }
    ($pages, @names) = walk(status => 'active', limit => 1000);
    is scalar @names, 100001 - @gone, 'the other status';
};

subtest 'questions that cannot be answered' => sub {
    my $error = sub {
        my ($args) = @_;
        my $got = $admin->get("/v1/tenants?$args");
        return "$got->{status} $got->{json}{error}";
    };
    for my $status ('', 'gone', 'Active', 'active%20') {
        is $error->("status=$status"),
            '400 "status" must be active or decommissioned',
            "status=$status";
    }
    for my $limit ('', '0', '-1', '1001', '1e2', '99999999999999999999', 'x')
    {
        is $error->("limit=$limit"), '400 "limit" must be from 1 to 1000',
            "limit=$limit";
    }
    my $cursor = page(status => 'active', limit => 1)->{json}{cursor};
    is +page(status => 'active', cursor => $cursor)->{status}, 200,
        'a cursor';
    for my $bad ('', 'x', '!', 'dDAwMDAwMQ', substr($cursor, 1),
        substr($cursor, 0, -1), "${cursor}A", 'A' x 5000) {
        like $error->("status=active&cursor=$bad"), qr/^400 .*cursor/,
            'cursor=' . substr $bad, 0, 20;
    }
    like $error->("status=decommissioned&cursor=$cursor"),
        qr/^400 .*cursor/, "another question's cursor";
    is $error->('stauts=active'), '400 unknown argument "stauts"',
        'an unknown argument is named';
    like $error->('limit=1&limit=2'), qr/^400 .*twice/, 'twice';
    is $error->('tenant=acme'), '400 unknown argument "tenant"',
        'there is no other filter';
};
$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';

# --- rules without usage ------------------------------------------------

subtest 'rules without usage' => sub {
    my $plain = Edgemeter::Stack->for_test(rules => \<<'YAML')->start;
events:
  - { type: memory.created }
YAML
    my $plain_http = $plain->http;
    my $told = '404 the rules declare no usage';
    my $ask = sub {
        my ($http, $path) = @_;
        my $got = $http->get($path);
        return "$got->{status} $got->{json}{error}";
    };
    is $ask->($plain_http->as(token($plain, 'admin')), '/v1/tenants'), $told,
        'the list';
    is $ask->($plain->http('acme'), '/v1/tenants/acme/usage'), $told,
        'a tenant';
    is $plain_http->get('/v1/tenants/acme/usage')->{status}, 401,
        'only behind the token';
    is $plain_http->as(token($plain, 'read'))->get('/v1/tenants')->{status},
        403, 'and its scope';
    $plain->stop;
};
done_testing;
