#!/usr/bin/perl

# 10-events.t - POST /v1/events and GET /v1/events/{id}, through nginx to
# PostgreSQL and back.

use strict;
use warnings;
use utf8;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::Stack;

binmode Test::More->builder->$_, ":utf8"
    for qw(output failure_output todo_output);

my $stack = Edgemeter::Stack->for_test(rules => \<<'YAML')->start;
events:
  - { type: account.connected, required: [masterAccountId] }
  - { type: account.disconnected }
  - { type: api.request, idempotency: { requireEventId: false } }
counters:
  - counterName: connects_total
    mode: persistent
    dimensions: [masterAccountId]
    rules: [ { on: account.connected, op: increment } ]
    idempotency: { requireEventId: true, scope: globalEventId }
YAML
my $acme   = $stack->http('acme');
my $globex = $stack->http('globex');
my $nobody = $stack->http;

sub event {
    my ($id, %more) = @_;
    return {
        event_id   => $id,
        type       => 'account.connected',
        ts         => '2026-09-01T12:00:00Z',
        attributes => { masterAccountId => 'm1' },
        %more
    };
}

sub verdicts {
    my ($answer) = @_;
    return join ' ', map { $_->{verdict} } @{ $answer->{json}{results} };
}

subtest 'one object' => sub {
    my $got = $acme->post('/v1/events', event('e1'));
    is $got->{status}, 200, 'accepted: 200';
    is_deeply $got->{json},
        {   accepted => 1, duplicates => 0, conflicts => 0, rejected => 0,
            results => [{ event_id => 'e1', verdict => 'accepted' }]
        },
        'counts and one result, no error field';
    is $stack->query("SELECT count(*) FROM meter.event"), 1, 'in the ledger';

    $got = $acme->post('/v1/events', event('e1'));
    is $got->{status}, 200, 'same again: 200';
    is verdicts($got), 'duplicate', 'a duplicate';

    $got = $acme->post('/v1/events',
        event('e1', ts => '2026-09-01T14:00:00+02:00', quantity => '1.0'));
    is verdicts($got), 'duplicate', 'the same content, spelled otherwise';

    $got = $acme->post('/v1/events', event('e1', quantity => 2));
    is $got->{status}, 409, 'other content: 409';
    is verdicts($got), 'conflict', 'a conflict';
    is $got->{json}{conflicts}, 1, 'counted as such';

    $got = $acme->post('/v1/events', event('e2', type => 'no.such.type'));
    is $got->{status}, 400, 'invalid: 400';
    is verdicts($got), 'rejected', 'rejected';
    like $got->{json}{results}[0]{error}, qr/type/, 'the reason names it';
    is $stack->query("SELECT count(*) FROM meter.event"), 1,
        'the ledger did not grow';
};

subtest 'lists' => sub {
    my @batch = (
        event('b1'), event('b2', type => 'nope'), event('b1'),
        event('b3', quantity => '0.000000001'), event('b1', quantity => 7),
        event('e1'),
    );
    my $got = $acme->post('/v1/events', \@batch);
    is $got->{status}, 200, 'a list is always 200';
    is verdicts($got),
        'accepted rejected duplicate accepted conflict duplicate',
        'one verdict each, in order';
    is_deeply [@{ $got->{json} }{qw(accepted duplicates conflicts rejected)}],
        [2, 2, 1, 1], 'the counts agree';

    $got = $acme->post('/v1/events', { events => [event('b4'), event('b3')] });
    is verdicts($got), 'accepted conflict', 'an object with events';

    $got = $acme->post('/v1/events', []);
    is $got->{status}, 200, 'an empty list is fine';
    is_deeply $got->{json}{results}, [], 'and has no results';

    my @many = map { event("many-$_") } 1 .. 5000;
    $got = $acme->post('/v1/events', \@many);
    is $got->{json}{accepted}, 5000, '5,000 at once';
    is $got->{json}{results}[4999]{event_id}, 'many-5000', 'in order';
    $got = $acme->post('/v1/events', [@many, event('too-many')]);
    is $got->{status}, 400, '5,001 are refused as a whole';
    like $got->{json}{error}, qr/5,?000/, 'the limit is named';
};

subtest 'bodies that are no events' => sub {
    for my $body ('', '7', '"x"', '{', '[{]', '{"events":7}', 'null',
        '[] []', "\xff") {
        my $got = $acme->post('/v1/events', $body);
        is $got->{status}, 400, "400 for " . (length $body ? $body : 'nothing');
        ok $got->{json} && ($got->{json}{error} || $got->{json}{results}),
            'with a reason';
    }
};

subtest 'an id that is absent' => sub {
    my $one = event(undef);
    delete $one->{event_id};
    my $got = $acme->post('/v1/events', $one);
    is $got->{status}, 400, 'rejected by default';
    is $got->{json}{results}[0]{event_id}, undef, 'null in the result';

    $one->{type} = 'api.request';
    $got = $acme->post('/v1/events', $one);
    is verdicts($got), 'accepted', 'derived where the type says so';
    my $id = $got->{json}{results}[0]{event_id};
    like $id, qr/^[\w-]{43}$/, 'the derived id is in the answer';
    is verdicts($acme->post('/v1/events', $one)), 'duplicate',
        'the same event again has the same id';
    is $acme->get("/v1/events/$id")->{json}{flags}{derived_id},
        JSON::PP::true, 'and is found by it';
};

subtest 'GET an event' => sub {
    my $got = $acme->get('/v1/events/e1');
    is $got->{status}, 200, 'found';
    my $json = $got->{json};
    is $json->{event_id}, 'e1',                          'event_id';
    is $json->{type},     'account.connected',           'type';
    is $json->{ts},       '2026-09-01T12:00:00.000000Z', 'ts';
    is $json->{tenant},   'acme',                        'tenant';
    is $json->{quantity}, '1',                           'quantity';
    is $json->{count},    '1',                           'count';
    is_deeply $json->{attributes}, { masterAccountId => 'm1' }, 'attributes';
    is_deeply $json->{flags}, {}, 'no flag is true';
    like $json->{$_}, qr/^20\d\d-.*Z$/, $_ for qw(first_seen_at recorded_at);

    is $json->{duplicate_count}, 3, 'three duplicates';
    is $json->{conflict_count},  1, 'one conflict';
    is join(' ', map { $_->{verdict} } @{ $json->{duplicates} }),
        'duplicate conflict duplicate duplicate', 'newest first';
    my ($conflict) = grep { $_->{verdict} eq 'conflict' }
        @{ $json->{duplicates} };
    is "$conflict->{payload}{quantity}", '2', 'a conflict shows what came';
    like $conflict->{seen_at}, qr/^20\d\d-.*Z$/, 'and when';

    my $head = $acme->request('HEAD', '/v1/events/e1');
    is $head->{status}, 200, 'HEAD like GET';
    is $head->{body},   '',  'without a body';

    $got = $acme->get('/v1/events/never');
    is $got->{status}, 404, 'unknown: 404';
    is $acme->get('/v1/events/' . 'x' x 300)->{status}, 404, 'too long: 404';
    is $acme->get('/v1/events/edge-' . '0' x 32 . '-1-1756728000000000')
        ->{status}, 404, 'a minted id that never was: 404';

    my $foreign = $globex->get('/v1/events/e1');
    is $foreign->{status}, 404, "another tenant's: 404";
    is $foreign->{body}, $got->{body}, 'with the same body';
};

subtest 'at most 100 audits' => sub {
    $acme->post('/v1/events', [map { event('hot') } 1 .. 131]);
    my $json = $acme->get('/v1/events/hot')->{json};
    is $json->{duplicate_count}, 130, 'all are counted';
    is scalar @{ $json->{duplicates} }, 100, 'the newest 100 are shown';
};

subtest 'ids in paths' => sub {
    for my $id ('a/b', 'a b', 'ä€', '100%', '?x', '..', "tab\there",
        '123e4567-e89b-12d3-a456-426614174000',
        '123e4567-e89b-82d3-a456-426614174000') {
        is verdicts($acme->post('/v1/events', event($id))), 'accepted', $id;
        my $path = Edgemeter::Http::escape($id);
        $path = '%2E%2E' if $id eq '..';
        my $got = $acme->get("/v1/events/$path");

        # nginx resolves dots before it looks for a location.
        next if $id eq '..';
        is $got->{status}, 200, 'found by its path';
        is $got->{json}{event_id}, $id, 'the same id';
    }
    for my $path ('%00', '%zz', '%', '%ff', '%c0%80') {
        is $acme->get("/v1/events/$path")->{status}, 400, "400 for $path";
    }
};

subtest 'tenants are apart' => sub {
    is verdicts($globex->post('/v1/events', event('e1', quantity => 9))),
        'accepted', 'the same id of another tenant is another event';
    is $globex->get('/v1/events/e1')->{json}{quantity}, '9', 'its own';
    is $acme->get('/v1/events/e1')->{json}{quantity}, '1', 'not the other';

    my $got = $acme->post('/v1/events', event('t1', tenant => 'globex'));
    is $got->{status}, 400, "a foreign tenant in the body: rejected";
    like $got->{json}{results}[0]{error}, qr/tenant/, 'for that reason';
    is verdicts($acme->post('/v1/events', event('t2', tenant => 'acme'))),
        'accepted', 'the own tenant may be named';
};

# nginx undoes %2F and ".." to choose a location, and refuses what would lead
# above the root; the query argument is no path.
subtest 'ids that look like paths' => sub {
    my @ids = ('a/b', '../up', 'a/../b', '..', '.', '/', '//a//', '/etc/passwd',
        '../../../../etc/passwd', 'a/../../../b', '%2F', 'a%2e%2e%2fb', 'a?b=c',
        'a#b', 'a&b=c', 'a b', 'a+b', ' a ', '~!@$*()', "t\tn\n", "q\"\\",
        "\x{e9}\x{20ac}\x{1f600}", 'v1/tenants', '../counters/x', '?', '#');
    my $sent = $acme->post('/v1/events', [map { event($_) } @ids])->{json};
    is $sent->{accepted} + $sent->{duplicates}, scalar @ids, 'all are taken';
    my @by_path;
    for my $id (@ids) {
        my $bytes = $id;
        utf8::encode($bytes);
        (my $escaped = $bytes) =~ s/([^A-Za-z0-9_~-])/sprintf '%%%02X', ord $1/ge;
        my $got = $acme->get("/v1/events?event_id=$escaped");
        is $got->{json}{event_id}, $id, "?event_id=$escaped";
        my $path = $acme->get("/v1/events/$escaped");
        push @by_path, $escaped if ($path->{json}{event_id} // '') ne $id;
    }
    is_deeply \@by_path, [map { s{/}{%2F}gr =~ s/\./%2E/gr }
        '../../../../etc/passwd', 'a/../../../b'],
        'all others by the path as well';

    my $error = '400 the path takes one query argument, "event_id"';
    for my $args ('', '?', '?event_id=', '?event_id', '?id=x',
        '?event_id=x&limit=1') {
        my $got = $acme->get("/v1/events$args");
        is "$got->{status} $got->{json}{error}", $error, "'$args'";
    }
    is $acme->get('/v1/events?event_id=never')->{status}, 404, 'no such event';
    is $acme->get('/v1/events?event_id=' . 'x' x 256)->{status}, 404, 'too long';
    is $nobody->get('/v1/events?event_id=a')->{status}, 401, 'no token';
    is $stack->http('globex')->get('/v1/events?event_id=a/b')->{status}, 404,
        'of another tenant';
};

subtest 'statuses before the handler' => sub {
    is $nobody->post('/v1/events', event('n1'))->{status}, 401, 'no token';
    my $wrong = $stack->token('acme');
    $wrong =~ s/(.)$/$1 eq 'A' ? 'B' : 'A'/e;
    my $got = $acme->as($wrong)->post('/v1/events', event('n1'));
    is $got->{status}, 401, 'a wrong secret';
    is $got->{headers}{'www-authenticate'}, 'Bearer', 'asks for a bearer';
    my $unknown
        = $acme->as('em_aaaaaaaaaaaaaaaa_' . 'x' x 43)->get('/v1/events/e1');
    is $unknown->{status}, 401, 'an unknown id';
    is $unknown->{body}, $got->{body}, 'the same words';
    is $nobody->get('/v1/events/e1')->{body}, $got->{body}, 'always';

    is $nobody->get('/v1/nothing')->{status}, 404, 'unknown path: 404';
    $got = $acme->request('DELETE', '/v1/events');
    is $got->{status}, 405, 'wrong method: 405';
    is $got->{headers}{allow}, 'GET, HEAD, POST', 'Allow: GET, HEAD, POST';
    $got = $acme->request('DELETE', '/v1/events/e1');
    is $got->{status}, 405, 'DELETE an event: 405';
    is $got->{headers}{allow}, 'GET, HEAD', 'Allow: GET, HEAD';

    my $json = Edgemeter::Http::encode_json(event('ct'));
    for my $type ('text/plain', 'application/jsonx', 'application/xml', '') {
        $got = $acme->request('POST', '/v1/events', $json,
            'content-type' => $type);
        is $got->{status}, 415, "415 for '$type'";
    }
    is $acme->request('POST', '/v1/events', $json,
        'content-type' => 'Application/JSON; charset=utf-8')->{status}, 200,
        'parameters and case do not matter';
    is $acme->request('POST', '/v1/events', $json,
        'content-encoding' => 'br')->{status}, 415, 'another coding: 415';
    is $acme->post('/v1/events?x=1', event('arg'))->{status}, 400,
        'arguments are no part of it';

    $got = $acme->post('/v1/events', '[' . ' ' x (17 << 20) . ']');
    is $got->{status}, 413, 'over 16 MiB: 413';
    ok $got->{json}{error}, 'as JSON';
    is $acme->post('/v1/events', '[' . ' ' x (15 << 20) . ']')->{status}, 200,
        '15 MiB pass';
};

subtest 'scopes' => sub {
    my %path = (
        ingest => sub { $_[0]->post('/v1/events', event('s1')) },
        read   => sub { $_[0]->get('/v1/events/e1') },
    );
    for my $scope (qw(ingest read admin)) {
        my ($status, $out) = $stack->meterd_command('token', 'create',
            $stack->config_arguments, '--tenant', 'acme', '--scopes', $scope);
        chomp $out;
        my $http = $acme->as($out);
        for my $needed (sort keys %path) {
            my $got = $path{$needed}->($http);
            is $got->{status}, $scope eq $needed ? 200 : 403,
                "$scope token where $needed is needed";
            like $got->{json}{error}, qr/"$needed"/, 'the scope is named'
                if $got->{status} == 403;
        }
    }
};

subtest 'past retention' => sub {
    is verdicts($acme->post('/v1/events', event('old'))), 'accepted', 'old';
    $stack->query("DELETE FROM meter.event WHERE event_id = 'old'");
    my $got = $acme->get('/v1/events/old');
    is $got->{status}, 410, 'a record that is gone: 410';
    like $got->{json}{first_seen_at}, qr/^20\d\d-.*Z$/, 'when it was seen';
    is $got->{json}{event_id}, 'old', 'which';
    is verdicts($acme->post('/v1/events', event('old'))), 'duplicate',
        'it still counts only once';
};

subtest 'health and metrics' => sub {
    is $nobody->get('/healthz')->{status}, 200, 'healthz';
    is $nobody->get('/readyz')->{status},  200, 'readyz';
    my $got = $nobody->get('/metrics');
    is $got->{status}, 200, 'metrics';
    like $got->{body}, qr/^edgemeter_events_accepted_total [1-9]/m,
        'accepted events are counted';
    my ($dropped) = $got->{body} =~ /^duplicate_event_dropped_total (\d+)/m;
    is $dropped,
        $stack->query('SELECT count(*) FROM meter.duplicate_audit'
            . ' WHERE verdict = 1'),
        'duplicates: metric and audit table agree';
};

$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
unlike $stack->log('meterd'), qr/"level":"error"/, 'no error was logged';
done_testing;
