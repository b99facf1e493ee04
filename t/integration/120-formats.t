#!/usr/bin/perl

# 120-formats.t - every form that POST /v1/events takes: NDJSON, CloudEvents
# in all modes, and gzip around each of them; their limits, and bodies that
# are meant to hurt.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use IO::Compress::Gzip ();
use Test::More;
use Edgemeter::Http;
use Edgemeter::HttpClient;
use Edgemeter::Stack;
use Edgemeter::Verify qw(verify_books);
use Edgemeter::Wait qw(wait_until);

use constant BODY_MAX => 16 << 20;
use constant BOMBS    => 48;

my $stack = Edgemeter::Stack->for_test(rules => \<<'YAML')->start;
events:
  - { type: call, required: [route] }
  - { type: tick }
counters:
  - counterName: calls
    mode: persistent
    dimensions: [route]
    rules: [ { on: call, op: increment } ]
    idempotency: { requireEventId: true, scope: globalEventId }
YAML
my $http   = $stack->http('acme');
my $NDJSON = 'application/x-ndjson';
my $CLOUD  = 'application/cloudevents+json';
my $BATCH  = 'application/cloudevents-batch+json';

sub send_as {
    my ($type, $body, %headers) = @_;
    $body = Edgemeter::Http::encode_json($body) if ref $body;
    return $http->post('/v1/events', $body, 'content-type' => $type, %headers);
}

sub verdicts {
    my ($got) = @_;
    return join ' ', $got->{status},
        map { $_->{verdict} } @{ $got->{json}{results} // [] };
}

sub gzip {
    my ($data, %options) = @_;
    my $out;
    IO::Compress::Gzip::gzip(\$data => \$out, Minimal => 1, %options)
        or die $IO::Compress::Gzip::GzipError;
    return $out;
}

sub call {
    my ($id, %more) = @_;
    return {
        event_id   => $id, type => 'call', ts => '2026-09-01T12:00:00Z',
        attributes => { route => '/a' }, %more
    };
}

sub line { return Edgemeter::Http::encode_json(call(@_)) }

sub cloud {
    my ($id, %more) = @_;
    return {
        specversion => '1.0', id => $id, source => '/s', type => 'call',
        time        => '2026-09-01T12:00:00Z', data => { route => '/a' }, %more
    };
}

sub binary {
    my ($id, %more) = @_;
    my %headers = (
        'ce-specversion' => '1.0', 'ce-id' => $id, 'ce-source' => '/s',
        'ce-type' => 'call', 'ce-time' => '2026-09-01T12:00:00Z', %more
    );
    delete $headers{$_} for grep { !defined $headers{$_} } keys %headers;
    return %headers;
}

sub stored {
    my ($id) = @_;
    return $http->get('/v1/events/' . Edgemeter::Http::escape($id))->{json};
}

sub stored_count { return $stack->query('SELECT count(*) FROM meter.event') }

sub metric {
    my ($name) = @_;
    my ($value) = $http->get('/metrics')->{body} =~ /^$name (\d+)$/m;
    return $value;
}

# --- NDJSON -------------------------------------------------------------

subtest 'lines' => sub {
    for my $type ($NDJSON, 'application/ndjson', 'application/jsonl',
        'Application/X-NDJSON; charset="UTF-8"') {
        my $id = $type =~ s/\W+/-/gr;
        is verdicts(send_as($type, line("$id-1") . "\n" . line("$id-2"))),
            '200 accepted accepted', $type;
    }
    my $got = send_as($NDJSON, "\r\n" . line('l1') . "\r\n \r\n\n"
            . line('l2') . "\r\n" . line('l3'));
    is verdicts($got), '200 accepted accepted accepted',
        'CRLF, blank lines and no end of line';
    is join(' ', map { $_->{event_id} } @{ $got->{json}{results} }),
        'l1 l2 l3', 'in order';
    is verdicts(send_as($NDJSON, line('l1') . "\n")), '200 duplicate',
        'one line is a list';
    $got = send_as($NDJSON, line('l1', quantity => 2));
    is verdicts($got), '200 conflict', 'also with a conflict';
    unlike $got->{json}{results}[0]{error}, qr/line/, 'which has an id';
    is verdicts(send_as($NDJSON, '{}')), '200 rejected', 'and a rejected one';
    for my $body ('', "\n", " \r\n\t\r\n") {
        is_deeply send_as($NDJSON, $body)->{json}, {
            accepted => 0, duplicates => 0, conflicts => 0, rejected => 0,
            results  => []
        }, 'no lines: no results';
    }
};

subtest 'broken lines' => sub {
    my $got = send_as($NDJSON, join "\n", line('b1'), '', '{"event_id":"x"',
        line('b2') . ' ]', 'junk', line('b3', type => 'nope'), line('b4'),
        "{\"event_id\":\"\xff\"}", line('b5'), '[' . line('b6') . ']');
    is verdicts($got), '200 accepted rejected rejected rejected rejected'
        . ' accepted rejected accepted rejected', 'each alone';
    my %error = map { $_ => $got->{json}{results}[$_]{error} } 1 .. 8;
    like $error{1}, qr/^line 3: invalid JSON: .+/, 'cut off';
    like $error{2}, qr/^line 4: surplus bytes behind the event/, 'too long';
    like $error{3}, qr/^line 5: an event must be a JSON object/, 'no object';
    like $error{4}, qr/^line 6: unknown event type "nope"/, 'bad content';
    like $error{6}, qr/^line 8: invalid JSON/, 'not UTF-8';
    like $error{8}, qr/^line 10: an event must be/, 'a list is no line';
    is $got->{json}{results}[1]{event_id}, 'x', 'with its id';

    $stack->query("ALTER TABLE meter.event ADD CONSTRAINT poison"
        . " CHECK (customer IS DISTINCT FROM 'poison')");
    $got = send_as($NDJSON, line('p1') . "\n\n"
            . line('p2', customer => 'poison') . "\n" . line('p3'));
    $stack->query('ALTER TABLE meter.event DROP CONSTRAINT poison');
    is verdicts($got), '200 accepted rejected accepted', 'by the database';
    like $got->{json}{results}[1]{error}, qr/^line 3: .*23514/,
        'has its line as well';
};

subtest 'limits of lines' => sub {
    my $before = stored_count();
    my $body   = join '', map { line("n$_") . "\r\n\r\n" } 1 .. 5000;
    my $got    = send_as($NDJSON, $body);
    is $got->{json}{accepted}, 5000, '5,000 events';
    is $got->{json}{results}[4999]{event_id}, 'n5000', 'in order';
    is stored_count() - $before, 5000, 'all of them';
    $got = send_as($NDJSON, $body . line('n5001'));
    is $got->{status}, 400, 'one more: refused whole';
    like $got->{json}{error}, qr/more than 5000 events/, 'and why';
    $got = send_as($NDJSON, "\n" x (BODY_MAX - 200) . line('blank'));
    is verdicts($got), '200 accepted', '16 MiB of blank lines';
    $got = send_as($NDJSON, "\n" x (BODY_MAX - 100) . 'x');
    like $got->{json}{results}[0]{error}, qr/^line 16777117: /, 'counted';
    is send_as($NDJSON, "\n" x (BODY_MAX + 1))->{status}, 413, 'not more';
    my $long = line('long', attributes => { route => '/', x => [(1) x 35000] });
    $got = send_as($NDJSON, "$long\n" . line('after'));
    is verdicts($got), '200 rejected accepted', 'an event over 64 KiB';
    like $got->{json}{results}[0]{error}, qr/^line 1: .*65536/, 'alone';
};

# --- CloudEvents --------------------------------------------------------

subtest 'structured' => sub {
    my $got = send_as($CLOUD, cloud('c1', subject => 'cust', quantity => '2.5',
        resource => 'res', other => 'x'));
    is verdicts($got), '200 accepted', 'one';
    my $event = stored('c1');
    is join('|', @$event{qw(customer resource quantity source ts)}),
        'cust|res|2.5|/s|2026-09-01T12:00:00.000000Z', 'all of it';
    is_deeply $event->{attributes}, { route => '/a' }, 'data alone';
    is verdicts(send_as($CLOUD, cloud('c1'))), '409 conflict', 'other content';
    $got = send_as($CLOUD, cloud('c2', specversion => '0.3'));
    is verdicts($got), '400 rejected', 'a single one that is bad';
    is_deeply $got->{json}{results}, [{ event_id => 'c2',
        verdict => 'rejected', error => 'specversion must be "1.0"' }],
        'with id and reason';
    is send_as($CLOUD, [cloud('c3')])->{status}, 400, 'a list is no event';
    for my $type ("$CLOUD;charset=utf-8", "$CLOUD ; CHARSET=\"Utf-8\"",
        "$CLOUD; x=\"; charset=latin1\"", uc $CLOUD) {
        is verdicts(send_as($type, cloud("t-$type"))), '200 accepted', $type;
    }
};

subtest 'batch' => sub {
    my $got = send_as("$BATCH; charset=UTF-8", [cloud('k1'), cloud('k2'),
        cloud('k3', source => ''), cloud('k1'), cloud('k1', data => {})]);
    is verdicts($got), '200 accepted accepted rejected duplicate rejected',
        'in order';
    is send_as($BATCH, cloud('k4'))->{status}, 400, 'an object is no batch';
    is verdicts(send_as($BATCH, [])), '200', 'none is a batch';
    $got = send_as($BATCH, [map { cloud("kk$_") } 1 .. 5000]);
    is $got->{json}{accepted}, 5000, '5,000';
    is send_as($BATCH, [map { cloud("kk$_") } 1 .. 5001])->{status}, 400,
        'not more';
};

subtest 'binary' => sub {
    my $data = '{ "route": "/a" }';
    is verdicts(send_as('application/json', $data, binary('m1',
        'ce-subject' => 'a%20%E2%82%AC', 'ce-quantity' => 3))),
        '200 accepted', 'one';
    my $event = stored('m1');
    is $event->{customer}, "a \x{20ac}", 'headers are decoded';
    is $event->{quantity}, '3', 'quantity';
    is verdicts(send_as($CLOUD, cloud('m1', subject => "a \x{20ac}",
        quantity => '3.0'))), '200 duplicate', 'the same in structured mode';
    is verdicts(send_as('application/json', $data, binary('m1'))),
        '409 conflict', 'other content';
    is verdicts(send_as('application/vnd.x+json', $data, binary('m2'))),
        '200 accepted', 'another JSON type';
    is verdicts(send_as('application/json', '', binary('m3',
        'ce-type' => 'tick'))), '200 accepted', 'no data';
    is verdicts($http->request('POST', '/v1/events', undef, binary('m3',
        'ce-type' => 'tick'))), '200 duplicate', 'and no type of it';
    is verdicts(send_as($CLOUD, cloud('m4'), binary('m5'))), '200 accepted',
        'structured wins over headers';
    is stored('m4')->{event_id}, 'm4', 'as its body says';

    my @bad = (
        ['specversion is missing', binary('x', 'ce-specversion' => undef)],
        ['source is missing',      binary('x', 'ce-source' => undef)],
        ['id is missing',          binary('x', 'ce-id' => undef)],
        ['type is missing',        binary('x', 'ce-type' => undef)],
        ['without two digits',     binary('x', 'ce-subject' => '5%')],
        ['is not UTF-8',           binary('x', 'ce-subject' => '%c0%a0')],
        ['is sent twice',          binary('x', 'ce-source' => ['/s', '/s'])],
        ['not an RFC 3339',        binary('x', 'ce-time' => 'now')],
    );
    for my $bad (@bad) {
        my ($reason, @headers) = @$bad;
        my $got = send_as('application/json', $data, @headers);
        is verdicts($got), '400 rejected', $reason;
        like $got->{json}{results}[0]{error}, qr/\Q$reason\E/, 'says so';
    }
    for my $type ('text/plain', $NDJSON) {
        is send_as($type, $data, binary('x'))->{status}, 415,
            "$type is no data";
    }
    is verdicts(send_as('application/json', '[1]', binary('x'))),
        '400 rejected', 'data that is no object';
};

subtest 'no time' => sub {
    my $event = cloud('now1');
    delete $event->{time};
    is verdicts(send_as($CLOUD, $event)), '200 accepted', 'it is now';
    my $stored = stored('now1');
    is_deeply $stored->{flags}, { server_time => JSON::PP::true() },
        'by the server\'s clock';
    is $stack->query("SELECT count(*) FROM meter.event WHERE event_id = 'now1'"
        . " AND abs(extract(epoch FROM ts - now())) < 60"), 1, 'of this minute';
    is verdicts(send_as($CLOUD, $event)), '200 duplicate', 'a retry';
    is verdicts(send_as('application/json', '{"route":"/other"}',
        binary('now1', 'ce-time' => undef))), '200 duplicate',
        'content is not compared without a time';
    is verdicts(send_as($CLOUD, { %$event, subject => 'x' })), '409 conflict',
        'whose it is, always';
    is verdicts(send_as('application/json', line('now2', ts => undef))),
        '400 rejected', 'plain events need one';
};

# --- gzip ---------------------------------------------------------------

subtest 'gzip around each form' => sub {
    my @forms = (
        ['application/json',   line('z1')],
        ['application/json',   '[' . line('z2') . ']'],
        [$NDJSON,              line('z3') . "\n"],
        [$CLOUD,               cloud('z4')],
        [$BATCH,               [cloud('z5')]],
        ['application/json',   '{"route":"/z"}', binary('z6')],
    );
    for my $form (@forms) {
        my ($type, $body, @headers) = @$form;
        $body = Edgemeter::Http::encode_json($body) if ref $body;
        is verdicts(send_as($type, gzip($body), @headers,
            'content-encoding' => 'gzip')), '200 accepted', "gzip $type";
        is verdicts(send_as($type, gzip($body), @headers,
            'content-encoding' => 'X-GZIP')), '200 duplicate', 'x-gzip';
        is verdicts(send_as($type, $body, @headers,
            'content-encoding' => 'identity')), '200 duplicate', 'plain';
    }
    is verdicts(send_as($NDJSON, gzip(line('z7') . "\n") . gzip(line('z8')),
        'content-encoding' => 'gzip')), '200 accepted accepted',
        'members one behind the other';
    my $many = join "\n", map { line("zz$_") } 1 .. 5000;
    is send_as($NDJSON, gzip($many), 'content-encoding' => 'gzip')
        ->{json}{accepted}, 5000, '5,000 events';
};

subtest 'gzip that is none' => sub {
    my $before = stored_count();
    my $good   = gzip(line('bad-gzip'));
    my $middle = $good;
    substr($middle, length($middle) / 2, 1) ^= "\x10";
    my @bad = (
        ['plain',            line('bad-gzip'),            'not gzip'],
        ['empty',            '',                          'cut off'],
        ['garbage behind',   $good . 'x',                 'bytes behind'],
        ['zero behind',      $good . "\0",                'bytes behind'],
        ['half a member',    $good . substr($good, 0, 9), 'cut off'],
        ['damaged',          $middle,                     'gzip'],
        ['bad checksum',     substr($good, 0, -8) . "\0" x 8, 'gzip'],
        map { ["cut at $_", substr($good, 0, $_), 'cut off'] }
            1, 9, 10, length($good) - 9, length($good) - 8, length($good) - 1,
    );
    my $refused = metric('edgemeter_unpack_refused_total');
    for my $bad (@bad) {
        my ($name, $body, $reason) = @$bad;
        my $got = send_as('application/json', $body,
            'content-encoding' => 'gzip');
        is $got->{status}, 400, "$name: 400";
        like $got->{json}{error}, qr/\Q$reason\E/, $reason;
    }
    is metric('edgemeter_unpack_refused_total') - $refused, scalar @bad,
        'all are counted';
    is stored_count(), $before, 'nothing is stored';
};

subtest 'gzip and the limit' => sub {
    my $line = line('edge-of-limit');
    my $pad  = "\n" x (BODY_MAX - length $line);
    is verdicts(send_as($NDJSON, gzip($pad . $line),
        'content-encoding' => 'gzip')), '200 accepted', '16 MiB';
    my $got = send_as($NDJSON, gzip("\n$pad$line"),
        'content-encoding' => 'gzip');
    is $got->{status}, 413, 'one byte more: 413';
    like $got->{json}{error}, qr/16 MiB when inflated/, 'and why';
    is send_as('application/json', gzip(' ' x (BODY_MAX + 1)),
        'content-encoding' => 'gzip')->{status}, 413, 'of JSON, too';
};

# A thousandfold each, and all at once: only one of them is ever inflated.
subtest 'bombs' => sub {
    my $bomb = gzip("\0" x (64 << 20), -Level => 9);
    cmp_ok length $bomb, '<', 100_000, length($bomb) . ' bytes stand for 64 MiB';
    my $memory = sub {
        open my $file, '<', '/proc/' . $stack->part_pid('meterd') . '/status'
            or die $!;
        my ($kib) = join('', <$file>) =~ /^VmHWM:\s+(\d+)/m;
        return $kib >> 10;
    };
    my $before = $memory->();
    my @clients = map { Edgemeter::HttpClient->new($stack->port) } 1 .. BOMBS;
    my $request = Edgemeter::HttpClient::text('POST', '/v1/events',
        'Authorization: Bearer ' . $stack->token('acme'),
        'Content-Type: application/json', 'Content-Encoding: gzip',
        'Content-Length: ' . length $bomb);
    $_->send($request . $bomb) for @clients;
    is verdicts(send_as('application/json', line('beside'))), '200 accepted',
        'others are served meanwhile';
    is join(' ', map { $_->receive->{code} } @clients),
        join(' ', (413) x BOMBS), BOMBS . ' bombs: 413 each';
    my $grown = $memory->() - $before;
    cmp_ok $grown, '<', 400, "at most $grown MiB more, not " . BOMBS * 16;
    is metric('edgemeter_unpack_queue'), 0, 'none is left';
};

# Whoever leaves takes his body along.
subtest 'clients that leave' => sub {
    my $body = gzip(' ' x BODY_MAX);
    for my $i (1 .. 8) {
        my $client = Edgemeter::HttpClient->new($stack->port);
        $client->send(Edgemeter::HttpClient::text('POST', '/v1/events',
            'Authorization: Bearer ' . $stack->token('acme'),
            'Content-Type: application/json', 'Content-Encoding: gzip',
            'Content-Length: ' . length $body) . $body);
        $client->close;
    }
    wait_until {
        metric('edgemeter_unpack_queue') == 0
            && metric('edgemeter_requests_in_flight') <= 1;
    } 30, 'nothing waits';
    is verdicts(send_as('application/json', line('after-leaving'))),
        '200 accepted', 'nobody minds';
};

# --- what is not taken --------------------------------------------------

subtest 'every path with a body: utf-8 alone' => sub {
    my %error = map { ($_ => 'the charset must be utf-8') }
        'utf-16', 'UTF-16LE', '"utf-16"', 'iso-8859-1', '"Latin1"', 'us-ascii';
    $error{'utf-8; charset=utf-16'} = 'the Content-Type must be application/json';
    for my $path (qw(/v1/query /v1/search /v1/adjustments /v1/usage/close),
        map {"/api/counters/acme/n/$_"}
        qw(increment decrement incrementSync decrementSync)) {
        for my $charset (sort keys %error) {
            my $got = $http->post($path, '{"nobody":1}',
                'content-type' => "application/json; charset=$charset");
            is "$got->{status} $got->{json}{error}", "415 $error{$charset}",
                "$path: $charset";
        }
        for my $charset ('utf-8', 'UTF-8', '"Utf-8"') {
            is $http->post($path, '{"nobody":1}', 'content-type' =>
                "application/json;CharSet=$charset")->{json}{error},
                'unknown member "nobody"', "$path: $charset is read";
        }
    }
};

subtest 'other types and codings' => sub {
    for my $type ('text/plain', 'application/xml', 'application/jsonx', '',
        'application/cloudevents+xml', 'application/cloudevents') {
        my $got = send_as($type, line('no'));
        is $got->{status}, 415, "415 for '$type'";
        like $got->{json}{error}, qr{\Q$_\E}, "names $_"
            for 'application/json', $NDJSON, $CLOUD, $BATCH;
    }
    for my $type ('application/json', $NDJSON, $CLOUD, $BATCH) {
        my $got = send_as("$type; charset=iso-8859-1", line('no'));
        is $got->{status}, 415, "$type in latin1";
        like $got->{json}{error}, qr/charset must be utf-8/, 'says so';
    }
    for my $coding (qw(br deflate zstd compress), 'gzip, gzip', 'gzip,br') {
        my $got = send_as('application/json', line('no'),
            'content-encoding' => $coding);
        is $got->{status}, 415, "Content-Encoding $coding";
        is $got->{headers}{'accept-encoding'}, 'gzip, identity',
            'says what is taken';
    }
    is send_as('application/json', gzip(gzip(line('no'))),
        'content-encoding' => ['gzip', 'gzip'])->{status}, 400,
        'two headers: 400';
    is $http->post('/v1/search', gzip('{}'), 'content-encoding' => 'gzip')
        ->{status}, 415, 'other paths take no gzip';
    is send_as($NDJSON, line('no'), authorization => 'Bearer x')->{status},
        401, 'and nobody without a token anything';
};

verify_books($stack);
$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
done_testing;
