#!/usr/bin/perl

# 12-tokens.t - bearer tokens: made, listed, revoked, and kept secret.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Digest::SHA qw(sha256_hex);
use Test::More;
use Edgemeter::Stack;
use Edgemeter::Wait qw(poll_until);

my $stack = Edgemeter::Stack->for_test(
    yaml => { limits => '{ tokenCacheTtl: 2s }', log => '{ level: debug }' },
)->start;
my @config = $stack->config_arguments;
my $http   = $stack->http;
my @secrets;

sub token {
    my (@words) = @_;
    my ($status, $out, $err) = $stack->meterd_command('token', @words);
    return ($status >> 8, $out, $err);
}

sub create {
    my (@words) = @_;
    my ($status, $out, $err) = token('create', @words, @config);
    is $status, 0, 'created';
    is $err, '', 'nothing on stderr';
    chomp $out;
    push @secrets, $out =~ /^em_[^_]+_(.*)$/ if $out =~ /^em_/;
    return $out;
}

subtest 'create' => sub {
    my $text = create('--tenant', 'acme', '--label', 'ci "x"');
    like $text, qr/^em_[a-z2-7]{16}_[A-Za-z0-9_-]{43}$/, 'one line, one token';
    isnt create('--tenant', 'acme'), $text, 'another one differs';

    my ($id, $secret) = $text =~ /^em_([^_]+)_(.*)$/;
    is $stack->query("SELECT encode(digest, 'hex'), tenant, label,"
            . " array_to_string(scopes, ',') FROM meter.api_token"
            . " WHERE token_id = '$id'"),
        join("\t", sha256_hex($secret), 'acme', 'ci "x"', 'ingest,read'),
        'the database has a digest, the label and the default scopes';
    is $http->as($text)->get('/v1/events/none')->{status}, 404, 'it is valid';
};

subtest 'create refuses' => sub {
    my @bad = (
        ['no tenant'],
        ['empty tenant',    '--tenant', ''],
        ['long tenant',     '--tenant', 'x' x 256],
        ['control byte',    '--tenant', "a\nb"],
        ['no UTF-8',        '--tenant', "\xff"],
        ['unknown scope',   '--tenant', 'acme', '--scopes', 'root'],
        ['empty scopes',    '--tenant', 'acme', '--scopes', ''],
        ['long label',      '--tenant', 'acme', '--label', 'x' x 256],
        ['an argument',     '--tenant', 'acme', 'surplus'],
        ['unknown option',  '--tenant', 'acme', '--nope'],
        ['no expiry',       '--tenant', 'acme', '--expires', ''],
        ['a bare number',   '--tenant', 'acme', '--expires', '90'],
        ['no time at all',  '--tenant', 'acme', '--expires', '0d'],
        ['a date',          '--tenant', 'acme', '--expires', '2999-01-01'],
        ['too long',        '--tenant', 'acme', '--expires', '36501d'],
        ['a time gone by',  '--tenant', 'acme', '--expires',
            '2020-01-01T00:00:00Z'],
    );
    my $before = $stack->query('SELECT count(*) FROM meter.api_token');
    for my $case (@bad) {
        my ($name, @words) = @$case;
        my ($status, $out, $err) = token('create', @words, @config);
        is $status, 2, "$name: status 2";
        is $out, '', 'no token';
        isnt $err, '', 'a reason';
    }
    is((token('create', '--tenant', 'acme'))[0], 2, 'no configuration');
    is((token('frobnicate', @config))[0], 2, 'no such verb');
    is((token('list', '--expires', '90d', @config))[0], 2, 'not of list');
    is $stack->query('SELECT count(*) FROM meter.api_token'), $before,
        'nothing was made';
};

subtest 'list' => sub {
    my $text = create('--tenant', 'initech', '--scopes', 'admin,ingest',
        '--label', 'for the list');
    my ($id) = $text =~ /^em_([^_]+)_/;
    my ($status, $out) = token('list', @config);
    is $status, 0, 'status 0';
    like $out, qr/^ID +TENANT +SCOPES +CREATED +EXPIRES +REVOKED +LABEL$/m,
        'a head';
    like $out, qr/^$id +initech +ingest admin +20\S+Z +- +- +for the list$/m,
        'a row: it expires never, and is not revoked';
    like $out, qr/ acme /, 'all tenants';
    ($status, $out) = token('list', '--tenant', 'initech', @config);
    unlike $out, qr/ acme /, 'or one of them';
    like $out, qr/^$id /m, 'its token';
};

subtest 'revoke' => sub {
    my $text = create('--tenant', 'acme');
    my ($id) = $text =~ /^em_([^_]+)_/;
    my $own = $http->as($text);
    is $own->get('/v1/events/none')->{status}, 404, 'valid before';
    my ($status, $out) = token('revoke', $id, @config);
    is $status, 0, 'revoked';
    like $out, qr/\b$id\b/, 'says which';
    my $answer;
    ok poll_until(
        sub { ($answer = $own->get('/v1/events/none'))->{status} == 401 }, 5),
        'refused within the cache time';
    is $answer->{body},
        $http->as('em_aaaaaaaaaaaaaaaa_' . 'x' x 43)
        ->get('/v1/events/none')->{body}, 'like one that never was';
    is((token('revoke', $id, @config))[0], 0, 'twice is no error');
    is((token('revoke', $text, @config))[0], 0, 'the whole token will do');
    is((token('revoke', 'aaaaaaaaaaaaaaaa', @config))[0], 1, 'unknown: 1');
    is((token('revoke', @config))[0], 2, 'no id: 2');
    like +(token('list', @config))[1], qr/^$id .* 20\S+Z +- +20\S+Z/m,
        'the list says when';
};

subtest 'expiry' => sub {
    my $text = create('--tenant', 'acme', '--expires',
        '2999-01-31T12:00:00+02:00');
    my ($id) = $text =~ /^em_([^_]+)_/;
    like +(token('list', @config))[1],
        qr/^$id .* 2999-01-31T10:00:00\.000000Z +- *$/m, 'the list tells it';
    is $http->as($text)->get('/v1/events/none')->{status}, 404, 'valid';

    $text = create('--tenant', 'acme', '--expires', '90d');
    ($id) = $text =~ /^em_([^_]+)_/;
    my $row = "FROM meter.api_token WHERE token_id = '$id'";
    is $stack->query("SELECT expires_at - created_at $row"), '90 days',
        'ninety days, counted by the database';
    my $own = $http->as($text);
    is $own->get('/v1/events/none')->{status}, 404, 'valid until then';
    $stack->query("UPDATE meter.api_token SET expires_at = now(),"
        . " created_at = now() - interval '90 days' WHERE token_id = '$id'");
    my $answer;
    ok poll_until(
        sub { ($answer = $own->get('/v1/events/none'))->{status} == 401 }, 5),
        'refused within the cache time after it';
    is $answer->{body},
        $http->as('em_aaaaaaaaaaaaaaaa_' . 'x' x 43)
        ->get('/v1/events/none')->{body}, 'like one that never was';
};

subtest 'a token that is not there yet is not unknown for ever' => sub {
    my $text = create('--tenant', 'acme');
    my ($id) = $text =~ /^em_([^_]+)_/;
    $stack->query("UPDATE meter.api_token SET revoked_at = now()"
        . " WHERE token_id = '$id'");
    my $own = $http->as($text);
    is $own->get('/v1/events/none')->{status}, 401, 'refused';
    $stack->query("UPDATE meter.api_token SET revoked_at = NULL"
        . " WHERE token_id = '$id'");
    ok poll_until(sub { $own->get('/v1/events/none')->{status} == 404 }, 5),
        'valid when the cache has forgotten';
};

subtest 'the cache spares the database' => sub {
    my $text = create('--tenant', 'acme');
    my $own  = $http->as($text);
    my $lookups = sub {
        return $http->get('/metrics')->{body}
            =~ /^edgemeter_token_lookups_total (\d+)/m ? $1 : undef;
    };
    my $before = $lookups->();
    is $own->get('/v1/events/none')->{status}, 404, 'asked' for 1 .. 50;
    my $made = $lookups->() - $before;
    cmp_ok $made, '>=', 1, 'looked up';
    cmp_ok $made, '<=', 5, "but not fifty times ($made)";
};

$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
for my $name (qw(meterd nginx-error nginx-access postgres)) {
    my $log   = $stack->log($name);
    my @found = grep { index($log, $_) >= 0 } @secrets,
        map { $stack->token($_) =~ /^em_[^_]+_(.*)$/ } qw(acme globex);
    is scalar @found, 0, "no secret in the log of $name";
}
cmp_ok length $stack->log('meterd'), '>', 1000, 'and there is a log';
done_testing;
