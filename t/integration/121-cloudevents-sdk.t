#!/usr/bin/perl

# 121-cloudevents-sdk.t - events of the CloudEvents SDK for JavaScript, sent
# to the running stack in both modes by Node.
#
# The SDK is installed by `make packages` (a part of `make test`), exactly as
# t/js/cloudevents/package-lock.json says. Where it is not there, this fails.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Encode ();
use IPC::Open2;
use JSON::PP ();
use Test::More;
use Edgemeter::Stack;

my $root    = Edgemeter::Stack::root();
my $modules = "$root/build/js/cloudevents/node_modules";

if (!-d "$modules/cloudevents") {
    fail 'the SDK is there: run make packages';
    done_testing;
    exit;
}

my $stack = Edgemeter::Stack->for_test(rules => \<<'YAML')->start;
events:
  - { type: com.example.call, required: [route] }
counters:
  - counterName: calls
    mode: persistent
    dimensions: [route]
    rules: [ { on: com.example.call, op: increment } ]
    idempotency: { requireEventId: true, scope: globalEventId }
YAML
my $http = $stack->http('acme');
my $json = JSON::PP->new->utf8->canonical;

# --- the sender ---------------------------------------------------------

my ($from, $to);
my $node = do {
    local @ENV{qw(NODE_PATH URL TOKEN)} = (
        $modules,
        'http://127.0.0.1:' . $stack->port . '/v1/events',
        $stack->token('acme'),
    );
    open2($from, $to, 'node', "$root/t/js/cloudevents/send.js");
};

sub emit {
    my ($mode, $events, %more) = @_;
    $events = [$events] if ref $events eq 'HASH';
    print {$to} $json->encode({ mode => $mode, events => $events, %more }),
        "\n";
    $to->flush;
    my $line = <$from> // die "node has no answer\n";
    my $got  = $json->decode($line);
    $got->{json} = eval { $json->decode(Encode::encode_utf8($got->{body})) };
    return $got;
}

my $serial = 0;

sub event {
    my (%more) = @_;
    return {
        id   => 'sdk-' . ++$serial, source => '/sdk/test',
        type => 'com.example.call', time => '2026-09-01T12:00:00.000Z',
        data => { route => '/a' }, %more
    };
}

sub verdicts {
    my ($got) = @_;
    return join ' ', $got->{status},
        map { $_->{verdict} } @{ $got->{json}{results} // [] };
}

sub stored {
    my ($id) = @_;
    return $http->get('/v1/events/' . Edgemeter::Http::escape($id))->{json};
}

# --- each mode ----------------------------------------------------------

for my $mode (qw(binary structured)) {
    my $event = event(subject => "customer $mode", data => {
        route => '/a', nested => { list => [1, 2.5, 'x'], text => "\x{20ac}" }
    }, quantity => 3, resource => 'r1', traceid => 'abc');
    my $got = emit($mode, $event);
    is verdicts($got), '200 accepted', "$mode: accepted" or diag $got->{body};
    like $got->{sent}{'content-type'}, $mode eq 'binary'
        ? qr{^application/json; charset=utf-8$}i
        : qr{^application/cloudevents\+json; charset=utf-8$}i,
        "the SDK sent $got->{sent}{'content-type'}";
    is exists $got->{sent}{'ce-id'} ? 'binary' : 'structured', $mode,
        'it was that mode';

    my $stored = stored($event->{id});
    is $stored->{type}, 'com.example.call', 'type';
    is $stored->{ts}, '2026-09-01T12:00:00.000000Z', 'time is ts';
    is $stored->{customer}, "customer $mode", 'subject is the customer';
    is $stored->{source},   '/sdk/test', 'source is kept';
    is $stored->{quantity}, '3',  'quantity of the extension';
    is $stored->{resource}, 'r1', 'resource of the extension';
    is_deeply $stored->{attributes}, $event->{data},
        'data are the attributes, no extension among them';
    is_deeply $stored->{flags}, {}, 'nothing was made up';

    is verdicts(emit($mode, $event)), '200 duplicate', 'again: a duplicate';
    my $other = { %$event, data => { route => '/b' } };
    is verdicts(emit($mode, $other)), '409 conflict', 'changed: a conflict';
}

# --- one event in both modes --------------------------------------------

my @shapes = (
    ['plain'],
    ['with a subject', subject => 'c1'],
    ['with extensions', quantity => '2.50', resource => 'r', traceid => 'x'],
    ['with a time of many digits', time => '2026-09-01T12:00:00.123456Z'],
    ['with a data type',
        datacontenttype => 'application/json; charset=utf-8'],
    ['with another JSON type', datacontenttype => 'application/vnd.x+json'],
    ['with numbers', data => { route => '/n', a => 1.5, b => 1e20, c => 0 }],
);
for my $shape (@shapes) {
    my ($name, %more) = @$shape;
    for my $order (['binary', 'structured'], ['structured', 'binary']) {
        my $event = event(%more);
        is verdicts(emit($order->[0], $event)), '200 accepted',
            "$name: $order->[0]";
        is verdicts(emit($order->[1], $event)), '200 duplicate',
            "then $order->[1]: a duplicate";
        my $wrapped = emit('batch', [$event]);
        is verdicts($wrapped), '200 duplicate', 'then in a batch';
    }
}

# --- batches ------------------------------------------------------------

my @batch = map { event() } 1 .. 50;
is_deeply [emit('batch', \@batch)->{json}->@{qw(accepted rejected)}], [50, 0],
    'a batch of the SDK\'s events';
my $mixed = emit('batch', [event(), event(type => 'com.example.other'),
    $batch[0], event()]);
is verdicts($mixed), '200 accepted rejected duplicate accepted',
    'in order, one bad event harms no other';

# --- what an SDK may do besides -----------------------------------------

my $event = event();
is verdicts(emit('structured', $event,
    type => 'Application/CloudEvents+JSON;CHARSET="UTF-8"')), '200 accepted',
    'charset in another spelling';
is emit('structured', event(),
    type => 'application/cloudevents+json; charset=utf-16')->{status}, 415,
    'another charset: 415';
is emit('binary', event(), type => 'text/plain')->{status}, 415,
    'data that is no JSON: 415';
my $got = emit('binary', event(type => 'com.example.other'));
is verdicts($got), '400 rejected', 'an unknown type';
like $got->{json}{results}[0]{error}, qr/unknown event type/, 'and says so';

# The SDK makes up id and time where there are none.
my $made = event();
delete @$made{qw(id time)};
for my $mode (qw(binary structured)) {
    is verdicts(emit($mode, $made)), '200 accepted', "$mode: its own id";
}

close $to;
close $from;
waitpid $node, 0;
is $?, 0, 'node ended well';

is $stack->query("SELECT count(*) FROM meter.event WHERE tenant = 'acme'"),
    $http->get('/v1/counters/calls', sum => 'true')->{json}{sum},
    'all that was accepted was counted once';
$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
done_testing;
