#!/usr/bin/perl

# 144-openapi.t - docs/openapi.yaml is a valid OpenAPI 3.1 document, and the
# running stack answers as it says: every operation is asked for every status
# that it documents, and each answer is validated: status, headers, body. What
# cannot be provoked is named at the end, with the reason.
#
# The validator is installed by `make packages` (a part of `make test`), exactly
# as t/js/openapi/package-lock.json says. Where it is not there, this fails.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Encode ();
use IO::Compress::Gzip ();
use IO::Socket::UNIX;
use IPC::Open2;
use JSON::PP ();
use POSIX ();
use Test::More;
use Edgemeter::Counters;
use Edgemeter::HttpClient;
use Edgemeter::Place;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

use constant QUEUE => 100;

my $root    = Edgemeter::Stack::root();
my $modules = "$root/build/js/openapi/node_modules";
my $json    = JSON::PP->new->utf8->canonical->allow_nonref;

if (!-d "$modules/ajv") {
    fail 'the validator is there: run make packages';
    done_testing;
    exit;
}

# --- the document -------------------------------------------------------

my ($from, $to);
my $node = do {
    local $ENV{NODE_PATH} = $modules;
    open2($from, $to, 'node', "$root/t/js/openapi/check.js",
        "$root/docs/openapi.yaml");
};
my $document = $json->decode(scalar(<$from>) // die "node has no answer\n");
is_deeply $document->{problems}, [],
    'the document, its schemas and its examples are valid';
my @PAIRS = @{ $document->{pairs} };
my %METHODS;    # of a path
push @{ $METHODS{ (split / /)[1] }{ (split / /)[0] } }, $_ for @PAIRS;

# --- the stack ----------------------------------------------------------

sub slurp {
    my ($path) = @_;
    open my $in, '<', $path or die "$path: $!\n";
    local $/;
    return <$in>;
}

# Beside the example's server: one whose meterd never answers and which does
# not wait for bodies, and one whose meterd talks nonsense.
my %PORT = map { $_ => Edgemeter::Stack::free_port() } qw(silent nonsense);
my $conf = slurp("$root/examples/nginx.conf");
$conf =~ s/location = \/metrics/location = \/status { meter_status; }\n$&/;
my ($server) = $conf =~ /^(    server \{.*^    \}\n)/ms;
$server =~ s/^        location \/hello \{.*?^        \}\n//ms;
$server =~ s/meter_read_timeout 2s;.*//;
my %wait   = (silent => '100ms', nonsense => '10s');
my $others = join '', map {
    $server =~ s/\@PORT\@;/$PORT{$_};
        meter_aggregator unix:\@RUN_DIR\@\/$_.sock;
        client_body_timeout $wait{$_};
        meter_read_timeout $wait{$_};/r
} sort keys %PORT;
$conf =~ s/^(    server \{)/$others$1/m;

my $rules = slurp("$root/examples/meterd.yaml");
$rules =~ s/^events:\n\K/  - { type: bulk.loaded }\n/m;
$rules =~ s/^meters:\n\K/  - { metric: bulk, on: [bulk.loaded], value: quantity,
      aggregation: sum, period: month, groupBy: [route] }\n/m;
my $stack = Edgemeter::Stack->for_test(
    nginx_conf => \$conf,
    rules      => \$rules,
    env        => { METERD_TEST_FLUSH_MS => 200 },
    yaml       => {
        limits => sprintf '{ queueEvents: %d, operationQueue: 1 }', QUEUE
    },
)->start;
$PORT{main} = $stack->port;

sub make_token {
    my ($scopes) = @_;
    my ($status, $out) = $stack->meterd_command('token', 'create',
        $stack->config_arguments, '--tenant', 'acme', '--scopes', $scopes);
    return $out =~ /\b(em_\w+_[\w-]+)/ ? $1 : die "no token\n";
}

my %TOKEN = (acme => $stack->token('acme'), admin => make_token('admin'));

my %listen = map {
    my $path = $stack->place->path("$_.sock");
    my $socket = IO::Socket::UNIX->new(Local => $path, Listen => 128)
        or die "$path: $!\n";
    chmod 0777, $path;
    ($_ => $socket);
} qw(silent nonsense);

my $talker = fork // die "$!\n";
if (!$talker) {
    close $to;
    while (my $client = $listen{nonsense}->accept) {
        sysread $client, my $request, 65536;
        syswrite $client, "this is no answer\n" x 8;
    }
    POSIX::_exit(0);
}
END { kill 'KILL', $talker if $talker }

# --- asking -------------------------------------------------------------

my %SEEN;

# Validates an exchange; %how: name, valid, response (see check.js).
sub check {
    my ($asked, $answer, %how) = @_;
    my %headers = map { /^([^:]+):\s*(.*?)\s*$/ ? (lc $1 => $2) : () }
        split /\r\n/, $answer->{head};
    my $name = delete $how{name};
    print {$to} $json->encode({
        method  => $asked->{method}, target => $asked->{target},
        sent    => $asked->{headers} // {}, content => $asked->{content},
        status  => $answer->{code}, headers => \%headers,
        body    => Encode::decode_utf8($answer->{body}), %how,
    }), "\n";
    $to->flush;
    my $got = $json->decode(scalar(<$from>) // die "node has no answer\n");
    $SEEN{ $got->{pair} }++ if !$how{response};
    is_deeply $got->{problems}, [],
        $got->{pair} . (defined $name ? ", $name" : '')
        or diag substr $answer->{body}, 0, 400;
    return { status => $answer->{code}, headers => \%headers,
        body => $answer->{body},
        json => scalar eval { $json->decode($answer->{body}) } };
}

# One exchange on a connection of its own. A body that is a reference is sent
# as JSON; sent: other bytes than the content; size: a length with no body.
sub ask {
    my ($request, %how) = @_;
    my %asked   = (%$request, %{ delete $how{with} // {} });
    my %headers = %{ $asked{headers} // {} };
    my $token   = exists $how{token} ? delete $how{token} : 'acme';
    my $port    = $PORT{ delete $how{on} // 'main' };
    my $raw     = delete $how{raw} // [];
    my $content = $asked{content};
    $content = $asked{content} = $json->encode($content) if ref $content;
    my $bytes = delete $how{sent} // $content // '';
    my $size  = delete $how{size} // length $bytes;
    $headers{'content-type'} //= 'application/json' if defined $content;
    $asked{headers} = \%headers;
    my @lines = ((map {"$_: $headers{$_}"} sort keys %headers), @$raw,
        'Connection: close');
    push @lines, "Authorization: Bearer $TOKEN{$token}"
        if defined $token && !$asked{open};
    push @lines, "Content-Length: $size" if $size || defined $content;
    my $client = Edgemeter::HttpClient->new($port);
    $client->send(Edgemeter::HttpClient::text($asked{method}, $asked{target},
        @lines) . $bytes);
    my $answer = $client->receive($asked{method})
        // { head => '', code => 0, body => '' };
    $client->close;
    return check(\%asked, $answer, %how);
}

# --- a good request of each operation -----------------------------------

my $TS      = '2026-09-01T12:00:00Z';
my $serial  = 0;
my $COUNTER = '/api/counters/acme/hits';
my %BUCKET  = (durationSeconds => 3600, timestamp => '2024-03-15T10:30:00Z');
my $QUERY   = '/v1/query?metric=requests&from=2026-09-01T12:00:00Z'
    . '&to=2026-09-01T12:03:00Z';

sub event {
    my (%more) = @_;
    return { event_id => 'e' . ++$serial, type => 'api.request', ts => $TS,
        customer => 'c1', quantity => 2,
        attributes => { route => '/a', status => 200, latencyMs => 7 }, %more };
}

sub get {
    my ($target, %headers) = @_;
    return { method => 'GET', target => $target, headers => \%headers };
}

sub post {
    my ($target, $content, %headers) = @_;
    return { method => 'POST', target => $target, content => $content,
        headers => \%headers };
}

sub zipped {
    my ($bytes) = @_;
    IO::Compress::Gzip::gzip(\$bytes => \my $out) or die "no gzip\n";
    return $out;
}

sub adjustment {
    my (%more) = @_;
    return { id => 'a' . ++$serial, metric => 'api_calls', customer => 'c1',
        group => { route => '/a' }, period => '2026-09', amount => '-1.5',
        reason => 'outage', %more };
}

my %GOOD = (
    'POST /v1/events'                 => post('/v1/events', event()),
    'GET /v1/events'                  => get('/v1/events?event_id=e1'),
    'GET /v1/events/{event_id}'       => get('/v1/events/e1'),
    'GET /v1/counters'                => get('/v1/counters'),
    'GET /v1/counters/{name}' => get('/v1/counters/api_requests?route=%2Fa'),
    'GET /v1/tenants'         => get('/v1/tenants'),
    'GET /v1/tenants/{tenant}/usage'  => get('/v1/tenants/acme/usage'),
    'GET /v1/usage' =>
        get('/v1/usage?metric=api_calls&customer=c1&period=2026-09'),
    'POST /v1/usage/close' => post('/v1/usage/close',
        { metric => 'active_accounts', period => '2020-01' }),
    'GET /v1/usage/closes' => get('/v1/usage/closes?limit=1'),
    'GET /v1/adjustments'  => get('/v1/adjustments?metric=api_calls'),
    'POST /v1/adjustments' => post('/v1/adjustments', adjustment()),
    'GET /v1/series'       => get('/v1/series'),
    'GET /v1/query'        => get("$QUERY&interval=90s"),
    'POST /v1/query'       => post('/v1/query', { metric => 'requests',
        from => $TS, rollup => '1m', to => 1788264180 }),
    'POST /v1/search' => post('/v1/search', {}),
    (map {
        ("POST /api/counters/{tenantId}/{name}/$_" =>
            post("$COUNTER/$_", {%BUCKET}))
    } qw(increment decrement incrementSync decrementSync)),
    'PUT /api/counters/{tenantId}/{name}/set' => { method => 'PUT',
        target => "$COUNTER/set", content => { %BUCKET, targetValue => '50' } },
    'GET /api/counters/{tenantId}/{name}/get' =>
        get("$COUNTER/get?durationSeconds=3600&timestamp=1710498600"),
    'GET /api/counters/{tenantId}/{name}/sumRange' => get("$COUNTER/sumRange"
        . '?durationSeconds=3600&startTime=1710498600&endTime=1710498600'),
    map { ("GET $_" => { %{ get($_) }, open => 1 }) }
        qw(/healthz /readyz /metrics),
);

my @OPERATIONS = sort keys %GOOD;
my @TOKEN      = grep { !$GOOD{$_}{open} } @OPERATIONS;
my @BODY       = grep { $GOOD{$_}{content} } @OPERATIONS;
my @WRITES = grep { /^P.* \/api/ } @OPERATIONS;
my @API    = grep { $_ ne 'GET /metrics' } @OPERATIONS;

is_deeply [sort map { my $path = $_;
        map {"$_ $path"} keys %{ $METHODS{$path} } } keys %METHODS],
    \@OPERATIONS, 'the document has these operations, and no other';

# The token of an operation, and one that lacks its scope.
sub token_of { return $_[0] eq 'GET /v1/tenants' ? 'admin' : 'acme' }
sub wrong_token { return $_[0] eq 'GET /v1/tenants' ? 'acme' : 'admin' }

# --- what is served -----------------------------------------------------

subtest 'every operation works' => sub {
    for my $name ('POST /v1/events', 'PUT /api/counters/{tenantId}/{name}/set',
        @OPERATIONS)
    {
        my $got = ask($GOOD{$name}, valid => 1, token => token_of($name));
        like $got->{status}, qr/^20[01]$/, 'is served';
        next if $name !~ /^GET/;
        my $head = ask({ %{ $GOOD{$name} }, method => 'HEAD' },
            name => 'HEAD', token => token_of($name));
        is $head->{status}, $got->{status}, 'HEAD has its status';
    }
    is ask(get('/status'), token => undef, response => 'Metrics',
        name => 'meter_status')->{status}, 200, 'metrics at another path';
};

subtest 'POST /v1/events: every format' => sub {
    my $lines = join "\n", map { $json->encode(event()) } 1 .. 3;
    my %cloud = (specversion => '1.0', source => '/g', type => 'api.request',
        time => $TS, data => { route => '/c' });
    my @rows = (
        ['a list', [event(), event(ts => 1788264000, quantity => '0.5')]],
        ['an object', { events => [event(event_id => 'same')] }],
        ['a duplicate', { events => [event(event_id => 'same')] }],
        (map { ["lines, $_", $lines, 'content-type' => $_] }
            qw(application/x-ndjson application/ndjson application/jsonl)),
        ['structured', { %cloud, id => 'ce1' },
            'content-type' => 'application/cloudevents+json; charset=utf-8'],
        ['batch', [{ %cloud, id => 'ce2', subject => 'c2', quantity => 3 }],
            'content-type' => 'application/cloudevents-batch+json'],
        ['binary', $cloud{data}, 'ce-id' => 'ce3', 'ce-source' => '/g',
            'ce-specversion' => '1.0', 'ce-type' => 'api.request',
            'ce-time' => $TS],
    );
    for my $row (@rows) {
        my ($name, @request) = @$row;
        my $got = ask(post('/v1/events', @request), valid => 1, name => $name);
        is $got->{status}, 200, 'is taken';
        is $got->{json}{rejected}, 0, 'all of it';
    }
    my $plain = $json->encode(event());
    is ask(post('/v1/events', $plain, 'content-encoding' => 'gzip'),
        sent => zipped($plain), valid => 1, name => 'gzip')
        ->{json}{accepted}, 1, 'inflated';
    is ask(post('/v1/events', "$plain\n{oops\n",
        'content-type' => 'application/x-ndjson'), name => 'a bad line')
        ->{json}{rejected}, 1, 'a bad line is rejected';
    ask(post('/v1/events', event(event_id => 'same', quantity => 5)));
    ask(post('/v1/events', event(type => 'unknown')), name => 'rejected');
    ask(post('/v1/events', '{'), name => 'no JSON');
    ask(post('/v1/events', [map { event() } 0 .. QUEUE]), name => 'full');
    ask(post('/v1/events', event(), 'content-encoding' => 'br'),
        name => 'another coding');
    ask(post('/v1/events', $plain, 'content-encoding' => 'gzip'),
        name => 'no gzip');
    my $bomb = zipped(' ' x (16 << 20) . ' ');
    ask(post('/v1/events', '', 'content-encoding' => 'gzip'), sent => $bomb,
        name => 'too large when inflated');
    ask(get('/v1/events/same'), valid => 1, name => 'with a conflict');
    ask(get('/v1/events/none'));
    ask(get('/v1/events?event_id=none'));
    $stack->query("DELETE FROM meter.event WHERE event_id = 'ce1'");
    ask(get('/v1/events/ce1'), valid => 1, name => 'past retention');
    ask(get('/v1/events?event_id=ce1'), valid => 1, name => 'likewise');
};

subtest 'lists, pages, tables' => sub {
    is ask(post('/v1/events', [
        event(attributes => { route => '/b', status => '200' }),
        event(customer => undef),
        (map { event(type => 'order.changed', customer => undef,
            attributes => { orderId => 'o1', state => $_ }) } qw(new paid)),
        event(type => 'queue.sampled',
            attributes => { queue => 'q', depth => 1.5 }),
        event(type => 'account.connected',
            attributes => { masterAccountId => 'm1' }),
        event(type => 'memory.created', attributes => { contentSize => 9 }),
        (map { event(type => 'bulk.loaded', quantity => '9' x 29,
            attributes => { route => $_ }) } '/a', '/b'),
    ]), valid => 1)->{json}{rejected}, 0, 'all is taken';
    my $tenant = $stack->http('globex')->post('/v1/events',
        event(event_id => 'g1'));
    is $tenant->{status}, 200, 'another tenant';

    my $usage = '/v1/usage?metric=api_calls&period=2026-09';
    my %asked = (
        'counters/api_requests' => [qw(?limit=1 ?sum=true ?dimension.route=/a
            ?sum=true&route=none)],
        'tenants' => ['?limit=1', '?status=active'],
        'usage'   => [map {"?metric=api_calls&period=2026-09$_"} '&groups=true',
            '&customer=c1&route=/a', '&customer=none', '&limit=1'],
        'adjustments' => ['?metric=api_calls&period=2026-09&customer=c1'],
    );
    for my $list (sort keys %asked) {
        for my $args (@{ $asked{$list} }) {
            my $token = $list eq 'tenants' ? 'admin' : 'acme';
            my $got = ask(get("/v1/$list$args"), token => $token, valid => 1,
                name => $args);
            is $got->{status}, 200, 'an answer';
            my $cursor = $got->{json}{cursor} or next;
            ask(get("/v1/$list$args&cursor=$cursor"), token => $token,
                valid => 1, name => 'the next page');
        }
    }
    ask(post('/v1/adjustments', adjustment(id => $_)), valid => 1)
        for qw(twice twice);
    for my $target ("$usage&customer=c1", "$usage&groups=true&limit=1",
        '/v1/adjustments?metric=api_calls&limit=1')
    {
        my $got = ask(get($target, accept => 'text/csv'), valid => 1,
            name => 'a table');
        is $got->{status}, 200, 'an answer';
        ok $got->{headers}{link}, 'and the next page' if $target =~ /limit/;
    }
    ask(post('/v1/adjustments', adjustment(id => 'twice', amount => 3)));
    ask(post('/v1/adjustments', adjustment(amount => '9' x 28)), valid => 1);
    ask(post('/v1/adjustments', adjustment(amount => '9' x 28)));
    ask(get('/v1/usage?metric=bulk&customer=c1&period=2026-09'), valid => 1);
    ask(post('/v1/usage/close', { metric => 'api_calls', period => '2999-01' }),
        valid => 1, name => 'not over');
    ask(post('/v1/search', { type => 'api.request', limit => 1,
        where => { route => { in => ['/a', '/b'] } },
        filter => { status => { ne => 'x' } } }), valid => 1);
};

subtest 'series: every kind, rows, arrays, tables' => sub {
    wait_until {
        $stack->http('acme')->get("$QUERY&interval=90s&where.route=%2Fa")
            ->{body} =~ /"value":"/
    } 20, 'the series are flushed';
    my $range = 'from=2026-09-01T11:59:00Z&to=2026-09-01T12:02:00Z';
    for my $metric (qw(requests latency_ms queue_depth orders)) {
        for my $more ('rollup=5s', 'interval=1m&pad=null', 'interval=1h',
            'interval=30s&format=series', 'interval=1m&format=series&pad=drop',
            'interval=1d&tz=Europe%2FBerlin', 'interval=1m&group_by=')
        {
            is ask(get("/v1/query?metric=$metric&$range&$more"), valid => 1,
                name => "$metric $more")->{status}, 200, 'an answer';
        }
        is ask(get("/v1/query?metric=$metric&$range&interval=1m",
            accept => 'text/csv'), valid => 1, name => "$metric as a table")
            ->{status}, 200, 'an answer';
    }
    ask(post('/v1/query', { metric => 'latency_ms', from => $TS, interval =>
        '90s', to => '1788264180', where => { route => ['/a', undef] },
        group_by => ['route'], quantiles => [0.5, '1'], format => 'series' }),
        valid => 1);
    for my $bad ('metric=none&rollup=1m', 'metric=requests&rollup=2m') {
        ask(get("/v1/query?$bad&$range"), name => $bad);
    }
    ask(post('/v1/query', { metric => 'none', from => $TS, rollup => '1m' }));
};

# --- what is refused ----------------------------------------------------

subtest 'refused before it is looked at' => sub {
    for my $name (@API) {
        my $token = token_of($name);
        my $good  = $GOOD{$name};
        ask($good, token => undef, name => 'two Authorization headers',
            raw => [('Authorization: Bearer x') x 2]);
        my $mark = $good->{target} =~ /\?/ ? '&' : '?';
        ask($good, token => $token,
            with => { target => "$good->{target}${mark}x=" . 'x' x 9000 });
    }
    for my $name (@TOKEN) {
        ask($GOOD{$name}, token => undef);
        ask($GOOD{$name}, token => wrong_token($name));
    }
    for my $name (@BODY) {
        my $large = $name =~ m{/v1/events} ? 17 << 20 : 65537;
        ask($GOOD{$name}, with => { content => '{' }, name => 'no JSON');
        ask($GOOD{$name}, with => { headers => { 'content-type' => 'a/b' } });
        ask($GOOD{$name}, $large > 1 << 20 ? (sent => '', size => $large)
            : (with => { content => '{' . ' ' x $large . '}' }));
        ask($GOOD{$name}, on => 'silent', sent => '', size => 10);
    }
    for my $name (qw(usage?metric=none&period=2026-09 adjustments?metric=none
        counters/none tenants/globex/usage))
    {
        ask(get("/v1/$name"), name => 'is not there');
    }
    ask(post('/v1/adjustments', adjustment(metric => 'none')), valid => 1);
    ask(get('/v1/usage/closes?metric=none&period=2026-09'), valid => 1);
    ask(get('/v1/usage/closes?metric=active_accounts&period=2020-01'),
        valid => 1);
    ask(post('/v1/usage/close', { metric => 'none', period => '2026-09' }),
        valid => 1);
    for my $list ('usage?metric=api_calls&period=2026-09',
        'adjustments?metric=api_calls', 'query?metric=requests')
    {
        ask(get("/v1/$list", accept => 'image/png'));
    }
    ask($GOOD{'POST /v1/query'}, with => { headers => { accept => 'a/b' } });
};

subtest 'other methods, other paths' => sub {
    for my $path (sort keys %METHODS) {
        my @methods = sort keys %{ $METHODS{$path} };
        my $good = $GOOD{"$methods[0] $path"};
        my $got = ask($good, with => { method => 'DELETE' },
            response => 'MethodNotAllowed', token => undef);
        is $got->{status}, 405, 'DELETE: 405';
        is $got->{headers}{allow}, join(', ', map { $_ eq 'GET'
            ? ('GET', 'HEAD') : $_ } @methods), 'Allow is as documented';
    }
    for my $path (qw(/v1/none /v1/events/a/b /api/counters/acme/hits/none)) {
        is ask(get($path), response => 'UnknownPath')->{status}, 404,
            "$path: 404";
    }
};

subtest 'the counters API: refused by what is there' => sub {
    for my $name (@WRITES) {
        ask($GOOD{$name}, name => 'another tenant', with => { target =>
            $GOOD{$name}{target} =~ s/acme/globex/r });
        my @key = (with => { headers => { 'idempotency-key' => $name =~ s/ //r }
            });
        ask($GOOD{$name}, @key, valid => 1, name => 'with a key');
        my %other = (%{ $GOOD{$name}{content} }, timestamp => 0);
        ask($GOOD{$name}, with => { content => \%other, %{ $key[1] } },
            valid => 1, name => 'the key of another request');
    }
    ask(post("$COUNTER/decrement", { %BUCKET, timestamp => 7200 }), valid => 1,
        name => 'negative');
    ask(get("$COUNTER/get?durationSeconds=60&timestamp=0"), valid => 1);
    ask(get("/api/counters/globex/x/sumRange?durationSeconds=60&startTime=0"
        . '&endTime=1'), valid => 1);

    my $counters = Edgemeter::Counters->new($stack->http('acme'), 'acme');
    my $locker   = $counters->lock_bucket($stack, 'hits');
    my @waiting  = $counters->start($stack, 'increment', 'hits');
    $counters->wait_blocked($stack);
    push @waiting, $counters->start($stack, 'increment', 'hits');
    ask($GOOD{$_}, valid => 1, name => 'full') for @WRITES;
    $counters->unlock($stack, $locker);
    is $_->receive->{status}, 200, 'the others are served' for @waiting;
};

# --- what breaks --------------------------------------------------------

sub reload {
    my ($text) = @_;
    my $reloads = sub {
        return $stack->http->get('/metrics')->{body}
            =~ /^edgemeter_config_reloads_total (\d+)/m ? $1 : -1;
    };
    my $before = $reloads->();
    Edgemeter::Place::replace_file($stack->{rules}, 0644, undef, $text);
    $stack->refresh_rules;
    kill 'HUP', $stack->part_pid('meterd');
    wait_until { $reloads->() > $before } 10, 'meterd has reloaded';
    return;
}

subtest 'what is no longer kept, and rules without it' => sub {
    $stack->query("INSERT INTO meter.partition_floor (parent, floor) VALUES"
        . " ('series_5s', '2026-09-10') ON CONFLICT (parent) DO UPDATE SET"
        . ' floor = excluded.floor');
    ask(get("$QUERY&interval=90s"), valid => 1);
    ask(post('/v1/query', { metric => 'requests', from => $TS,
        rollup => '5s', to => 1788264180 }), valid => 1);

    reload($rules =~ s/^usage:\n(?: .*\n)+//mr);
    ask($GOOD{$_}, token => token_of($_), valid => 1)
        for grep {/tenants/} @TOKEN;
    reload($rules);
};

subtest 'nginx without an answer' => sub {
    for my $name (@API) {
        ask($GOOD{$name}, token => token_of($name), on => $_, valid => 1,
            name => $_) for qw(silent nonsense);
    }
    like ask($GOOD{'GET /metrics'}, on => 'silent')->{body},
        qr/^edgemeter_aggregator_up 0$/m, 'metrics of nginx alone';
};

subtest 'a broken database' => sub {
    $stack->query(<<'SQL');
DO $$
DECLARE
    role text;
BEGIN
    FOR role IN SELECT rolname FROM pg_roles WHERE rolname ~ '^meter' LOOP
        EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA meter FROM %I',
            role);
    END LOOP;
    -- Tokens are found all the same, whenever meterd forgets one.
    GRANT SELECT ON meter.api_token TO meter_owner;
END
$$
SQL
    for my $name (grep { $_ ne 'POST /v1/events' } @TOKEN) {
        ask($GOOD{$name}, token => token_of($name), valid => 1);
    }
};

subtest 'away' => sub {
    $stack->kill_part('meterd');
    ask($GOOD{$_}, token => token_of($_), valid => 1, name => 'no meterd')
        for @OPERATIONS;
    $stack->cluster->stop('fast');
    $stack->start_part('meterd');
    $stack->wait_meterd;
    ask($GOOD{$_}, token => token_of($_), valid => 1, name => 'no database')
        for @OPERATIONS;
};

# --- the whole ----------------------------------------------------------

# 500 is for what the database refuses; without a table to read there is only
# the memory of nginx or meterd that could fail. Events wait for the database
# instead: 503. Reads of the counters API are 429 once thousands of requests are in
# flight: see 150-mux.t and 106-counters-pressure.t.
my %UNPROVOKED = map { ("$_ 500" => 1) } 'POST /v1/events',
    'GET /v1/counters', 'GET /healthz', 'GET /readyz', 'GET /metrics';
$UNPROVOKED{"GET /api/counters/{tenantId}/{name}/$_ 429"} = 1
    for qw(get sumRange);

my @missing = grep { !$SEEN{$_} } @PAIRS;
note "not asked for: $_" for @missing;
is_deeply [grep { !$UNPROVOKED{$_} } @missing], [],
    'every status of every operation was asked for, but for those named';
is_deeply [grep { $SEEN{$_} } sort keys %UNPROVOKED], [],
    'those that are named were not';

close $to;
close $from;
waitpid $node, 0;
is $?, 0, 'node ended well';
$stack->stop;
done_testing;
