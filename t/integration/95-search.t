#!/usr/bin/perl

# 95-search.t - POST /v1/search: what is indexed, every operator against a
# model on random events, pages while events arrive, what is refused, and
# the plans.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use File::Temp ();
use JSON::PP ();
use Math::BigFloat;
use POSIX ();
use Test::More;
use Edgemeter::Place;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

use constant EVENTS => 700;
use constant ROUNDS => 150;

my $directory = File::Temp->newdir;
chmod 0755, $directory;
my $rules = "$directory/rules.yaml";

sub write_rules {
    my ($text) = @_;
    Edgemeter::Place::replace_file($rules, 0644, undef, $text);
    return;
}

my $declared = <<'YAML';
events:
  - { type: call, indexed: [route, status, who.name, flag] }
  - { type: bare }
  - { type: move, indexed: [place] }
  - { type: big, indexed: [text] }
  - { type: old, indexed: [x] }
counters:
  - counterName: places
    dimensions: [place]
    transitions: { entity: thing }
    rules: [ { on: move, op: increment } ]
YAML
write_rules("$declared\nretention: { event: forever, eventIndex: forever }\n");
my $stack = Edgemeter::Stack->for_test(rules => $rules)->start;
my $http  = $stack->http('acme');
my $other = $stack->http('globex');
my $json  = JSON::PP->new->utf8->canonical->allow_nonref;
my $serial = 0;

sub event {
    my ($type, $attributes, %more) = @_;
    return {
        event_id   => sprintf('e%d-%d', $$, $serial++), type => $type,
        ts         => '2026-09-01T12:00:00Z',
        attributes => $attributes, %more
    };
}

sub send_events {
    my ($client, @events) = @_;
    while (my @part = splice @events, 0, 200) {
        my $got = $client->post('/v1/events', \@part);
        die "not accepted: $got->{body}\n"
            if ($got->{json}{accepted} // 0) != @part;
    }
    return;
}

# One answer, or its error; a body may be JSON text.
sub search {
    my ($body, $client) = @_;
    my $got = ($client // $http)->post('/v1/search', $body);
    return "$got->{status} $got->{json}{error}" if $got->{status} != 200;
    return $got->{json};
}

sub ids { return map { $_->{event_id} } @{ $_[0]{events} } }

# The ids of all pages.
sub all_ids {
    my ($question, $client) = @_;
    my (@ids, $cursor);
    for (1 .. 10_000) {
        my $page = search(
            { %$question, defined $cursor ? (cursor => $cursor) : () },
            $client);
        die "$page\n" unless ref $page;
        push @ids, ids($page);
        $cursor = $page->{cursor};
        return @ids unless defined $cursor;
    }
    die "the pages never end\n";
}

sub index_rows {
    my ($where) = @_;
    return join "\n", $stack->query(<<"SQL");
SELECT type, attribute, value, event.event_id
FROM meter.event_index
JOIN meter.event USING (tenant, ts, part_day, writer, writer_seq, type)
WHERE $where
ORDER BY 1, 2, 3, 4
SQL
}

# --- the index ----------------------------------------------------------

subtest 'what is indexed' => sub {
    my $one = event('call',
        { route => '/a', status => 200, 'who' => { name => 'ann' },
          flag => JSON::PP::true });
    my $exact = event('call', { 'who.name' => 'exact', who => { name => 'x' } });
    my $none = event('call',
        { route => undef, status => [1], flag => { a => 1 }, other => 'o' });
    my $bare = event('bare', { route => '/a' });
    my $got = $http->post('/v1/events', [$one, $one, $exact, $none, $bare]);
    is $got->{json}{accepted}, 4, 'four events, one of them twice';
    $http->post('/v1/events', $one);
    $http->post('/v1/events', { %$one, attributes => { route => '/b' } });
    is index_rows("event.tenant = 'acme'"), join("\n",
        "call\tflag\ttrue\t$one->{event_id}",
        "call\troute\t\"/a\"\t$one->{event_id}",
        "call\tstatus\t200\t$one->{event_id}",
        "call\twho.name\t\"ann\"\t$one->{event_id}",
        "call\twho.name\t\"exact\"\t$exact->{event_id}"),
        'declared scalars of accepted events, once';
    is $stack->query('SELECT count(*) FROM meter.event_index'), 5,
        'and nothing else';
    is $stack->query(<<'SQL'), 0, 'under the day of the event';
SELECT count(*) FROM meter.event_index WHERE part_day <> '2026-09-01'
SQL
};

# The second event needs the state that the first one left: rows are locked.
subtest 'the careful path indexes too' => sub {
    my @moves = map { event('move', { thing => 't1', place => $_ }) } qw(p q);
    for my $move (@moves) {
        my $got = $http->post('/v1/events', [$move, $move]);
        is "$got->{json}{accepted} $got->{json}{duplicates}", '1 1', 'taken';
    }
    is index_rows("type = 'move'"), join("\n",
        "move\tplace\t\"p\"\t$moves[0]{event_id}",
        "move\tplace\t\"q\"\t$moves[1]{event_id}"), 'once each';
};

subtest 'long values are cut, and decided in full' => sub {
    my $common = "\x{e9}" x 200;
    my @events = map { event('big', { text => $common . $_ }) } qw(a b);
    send_events($http, @events);
    is join(' ', $stack->query(<<'SQL')), '255 255', 'whole characters';
SELECT octet_length(value) FROM meter.event_index WHERE type = 'big'
SQL
    for my $i (0, 1) {
        my $text = $events[$i]{attributes}{text};
        for my $term ($text, { in => [$text, "$text!", $common . 'c'] },
            { prefix => $text }, { gte => $text, lte => $text })
        {
            is_deeply [all_ids({ type => 'big', where => { text => $term } })],
                [$events[$i]{event_id}], 'one of the two';
        }
    }
    is scalar(all_ids({ type => 'big', where => { text => { prefix =>
        substr $common, 0, 190 } } })), 2, 'a long prefix finds both';
    is scalar(all_ids({ type => 'big', where => { text => $common } })), 0,
        'the common part is the value of none';
};

subtest 'a day past the retention of the index is in the ledger only' => sub {
    $stack->query(<<'SQL');
INSERT INTO meter.partition_floor VALUES ('event_index', '2026-08-15')
ON CONFLICT (parent) DO UPDATE SET floor = excluded.floor
SQL
    my @events = map { event('old', { x => 1 }, ts => "2026-08-$_") }
        qw(14T23:59:59Z 15T00:00:00Z);
    send_events($http, @events);
    is $stack->query(<<'SQL'), '2026-08-15', 'the kept day is indexed';
SELECT string_agg(part_day::text, ' ') FROM meter.event_index
WHERE type = 'old'
SQL
    is_deeply [all_ids({ type => 'old', where => { x => 1 } })],
        [$events[1]{event_id}], 'where finds what is indexed';
    is_deeply [all_ids({ type => 'old', filter => { x => 1 } })],
        [reverse map { $_->{event_id} } @events], 'filter finds all';
};

# --- operators ----------------------------------------------------------

my @texts = ('/a', '/a/b', '/b', '', "\"\\\n", "\x{e9}", "\x{1f600}", '1',
    'true', 'z' x 300, 'z' x 300 . '!', "\x{10ffff}", "\x{d7ff}a");
my @numbers = qw(0 -0 1 1.0 10e-1 -1 2 10 9.5 0.1 1e2 100 -3.25 1e30
    1000000000000000000000000000001 12345678901234567890.123456789);
my @names = ('route', 'status', 'who.name', 'flag');

sub pick { return $_[int rand @_] }

# Numbers as they are spelled: JSON::PP would write them its own way.
sub number { my ($lexeme) = @_; return bless \$lexeme, 'Number' }

sub random_value {
    my $kind = int rand 10;
    return pick(@texts) if $kind < 4;
    return number(pick(@numbers)) if $kind < 8;
    return pick(JSON::PP::true, JSON::PP::false);
}

sub kind_of {
    my ($value) = @_;
    return 'none' if !defined $value;
    return 'boolean' if JSON::PP::is_bool($value);
    return 'number' if ref $value && ref $value eq 'Number';
    return 'other' if ref $value;
    return 'text';
}

sub compare {
    my ($left, $right) = @_;
    my $kind = kind_of($left);
    return undef if $kind ne kind_of($right);
    return Math::BigFloat->new($$left)->bcmp(Math::BigFloat->new($$right))
        if $kind eq 'number';
    return $left <=> $right if $kind eq 'boolean';
    return undef if $kind ne 'text';
    utf8::encode($left);
    utf8::encode($right);
    return $left cmp $right;
}

sub attribute {
    my ($attributes, $name) = @_;
    return $attributes->{$name} if exists $attributes->{$name};
    return undef if $name !~ /^(\w+)\.(\w+)$/ || ref $attributes->{$1} ne 'HASH';
    return $attributes->{$1}{$2};
}

sub holds {
    my ($value, $operator, $wanted) = @_;
    my $kind = kind_of($value);
    return ($kind ne 'none') == !!$wanted if $operator eq 'exists';
    return $operator eq 'ne' if $kind eq 'none';
    return !!grep { defined && $_ == 0 } map { compare($value, $_) } @$wanted
        if $operator eq 'in';
    return $kind eq 'text' && index($value, $wanted) == 0
        if $operator eq 'prefix';
    my $order = compare($value, $wanted);
    return !defined $order || $order != 0 if $operator eq 'ne';
    return 0 if !defined $order;
    return $order == 0 if $operator eq 'eq';
    return 0 if $kind eq 'boolean';
    return { lt => $order < 0, lte => $order <= 0, gt => $order > 0,
        gte => $order >= 0 }->{$operator};
}

sub matches {
    my ($event, $question) = @_;
    for my $field (qw(type customer resource)) {
        return 0 if defined $question->{$field}
            && ($event->{$field} // "\0") ne $question->{$field};
    }
    return 0 if defined $question->{from}
        && $event->{ts} lt $question->{from};
    return 0 if defined $question->{to} && $event->{ts} ge $question->{to};
    for my $terms (map { $question->{$_} // {} } qw(where filter)) {
        for my $name (keys %$terms) {
            my $of = ref $terms->{$name} eq 'HASH' ? $terms->{$name}
                : { eq => $terms->{$name} };
            for my $operator (keys %$of) {
                return 0 unless holds(attribute($event->{attributes}, $name),
                    $operator, $of->{$operator});
            }
        }
    }
    return 1;
}

sub random_term {
    my $operator = pick(qw(eq ne in lt lte gt gte exists prefix));
    return { exists => pick(JSON::PP::true, JSON::PP::false) }
        if $operator eq 'exists';
    return { in => [map { random_value() } 0 .. int rand 7] }
        if $operator eq 'in';
    return { prefix => substr pick(@texts), 0, int rand 4 }
        if $operator eq 'prefix';
    my $value = random_value();
    return { ne => $value } if kind_of($value) eq 'boolean';
    return int rand 3 ? { $operator => $value } : $value
        if $operator eq 'eq';
    return { $operator => $value };
}

sub random_terms {
    my (@names) = @_;
    my %terms;
    for my $name (grep { !int rand @names } @names) {
        my $term = random_term();
        my $more = int rand 3 ? {} : random_term();
        $term = { %$term, ref $more eq 'HASH' ? %$more : () }
            if ref $term eq 'HASH';
        $terms{$name} = $term;
    }
    return \%terms;
}

# Names and objects survive; numbers keep their spelling.
sub body_of {
    my ($value) = @_;
    return '{' . join(',', map { $json->encode($_) . ':' . body_of($value->{$_}) }
            sort keys %$value) . '}' if ref $value eq 'HASH';
    return '[' . join(',', map { body_of($_) } @$value) . ']'
        if ref $value eq 'ARRAY';
    return $$value if kind_of($value) eq 'number';
    return $json->encode($value) if kind_of($value) ne 'text';
    return $json->encode("$value");
}

my @model;

subtest 'every operator, against a model' => sub {
    my $seed = $ENV{SEARCH_SEED} // time;
    srand $seed;
    note "SEARCH_SEED=$seed";
    my (@bodies);
    for my $n (1 .. EVENTS) {
        my %attributes = map { $_ => int rand 12 ? random_value()
                : pick(undef, [1], { a => 1 }) }
            grep { int rand 4 } qw(route status flag free);
        $attributes{who} = { name => random_value() } if int rand 2;
        $attributes{'who.name'} = random_value() if !int rand 9;
        my $event = event(pick(qw(call call call bare)), \%attributes,
            ts => sprintf('2026-10-%02dT%02d:00:%02d.%06dZ', 1 + rand 28,
                rand 3, rand 3, pick(0, 500000)),
            int rand 2 ? (customer => pick(qw(c1 c2))) : (),
            int rand 2 ? (resource => pick(qw(r1 r2))) : ());
        push @model, $event;
        push @bodies, body_of($event);
    }
    while (my @part = splice @bodies, 0, 100) {
        my $got = $http->post('/v1/events', '[' . join(',', @part) . ']');
        is $got->{json}{accepted}, scalar @part, 'events' or diag $got->{body};
    }
    my %place;
    my $rank = 0;
    $place{$_} = $rank++ for $stack->query(<<'SQL');
SELECT event_id FROM meter.event ORDER BY ts DESC, writer DESC, writer_seq DESC
SQL
    my ($wrong, $found) = (0, 0);
    for my $round (1 .. ROUNDS) {
        my %question = (from => '2026-10-01T00:00:00.000000Z');
        $question{type} = pick(qw(call call bare)) if int rand 5;
        $question{from} = sprintf '2026-10-%02dT00:00:00.500000Z', 1 + rand 28
            if !int rand 3;
        $question{to} = '2026-10-29T00:00:01.000000Z' if !int rand 3;
        $question{customer} = 'c1' if !int rand 5;
        $question{resource} = 'r2' if !int rand 5;
        $question{where} = random_terms(@names)
            if ($question{type} // '') eq 'call' && int rand 4;
        $question{filter} = random_terms(@names, 'free') if !int rand 3;
        my @expected = sort { $place{$a} <=> $place{$b} }
            map { $_->{event_id} } grep { matches($_, \%question) } @model;
        my @got;
        my $cursor;
        my $limit = pick(1000, 1 + int rand 40);
        do {
            my $page = search(body_of({ %question, limit => number($limit),
                defined $cursor ? (cursor => $cursor) : () }));
            if (!ref $page) {
                diag $page, body_of(\%question);
                $page = { events => [] };
            }
            push @got, ids($page);
            $cursor = $page->{cursor};
        } while defined $cursor && @got <= EVENTS;
        $found += @got;
        next if "@got" eq "@expected";
        $wrong++ < 3 and diag 'wrong: ', body_of(\%question), "\ngot ",
            scalar @got, ', not ', scalar @expected;
    }
    is $wrong, 0, ROUNDS . " questions, $found events found";
};

subtest 'an event looks as it does alone' => sub {
    my $event = event('call', { status => number('1.50'), deep => { a => [1] } },
        customer => 'c9', resource => 'r9', source => 'here', quantity => '2.5');
    $http->post('/v1/events', body_of($event));
    my ($found) = @{ search({ customer => 'c9' })->{events} };
    my $alone = $http->get("/v1/events/$event->{event_id}")->{json};
    delete @$alone{qw(duplicates duplicate_count conflict_count first_seen_at)};
    is_deeply $found, $alone, 'the same members';
    is_deeply search({ customer => 'c9', resource => 'r8' }),
        { events => [], cursor => undef, complete => JSON::PP::true },
        'nothing fits';
    is scalar @{ search({})->{events} }, 100, '100 by default';
};

# --- pages --------------------------------------------------------------

subtest 'no event twice and none skipped while events arrive' => sub {
    my @ids = map { $_->{event_id} } grep { $_->{type} eq 'call' } @model;
    my $child = fork // die "fork: $!";
    if ($child == 0) {
        my $own = $stack->http('acme');
        for my $turn (1 .. 5000) {
            my @new = map { {
                event_id => "n$turn-$_", type => 'call',
                ts => sprintf('2026-10-%02dT%02d:00:00Z', 1 + rand 28, rand 3),
                attributes => { route => '/new' } } } 1 .. 5;
            eval { $own->post('/v1/events', \@new); 1 } or last;
        }
        POSIX::_exit(0);
    }
    wait_until {
        $stack->query(<<'SQL') > 20
SELECT count(*) FROM meter.event_index WHERE value = '"/new"'
SQL
    } 20, 'events arrive';
    for my $where ({}, { filter => { route => { ne => '/none' } } },
        { where => { route => { gte => '' } } })
    {
        my %seen;
        $seen{$_}++ for all_ids({ type => 'call', limit => 23,
            from => '2026-10-01T00:00:00Z', %$where });
        is scalar(grep { $_ > 1 } values %seen), 0, 'none twice';
        my @wanted = exists $where->{where}
            ? map { $_->{event_id} } grep { $_->{type} eq 'call'
                && kind_of($_->{attributes}{route}) eq 'text' } @model
            : @ids;
        is scalar(grep { !$seen{$_} } @wanted), 0, 'none skipped';
    }
    my $alive = waitpid($child, POSIX::WNOHANG()) == 0;
    kill 'TERM', $child if $alive;
    waitpid $child, 0 if $alive;
    ok $alive, 'they arrived all the time';
};

subtest 'a search stops early and goes on' => sub {
    $stack->query(<<'SQL');
SELECT meter.partition_make('event', '2026-11-01');
INSERT INTO meter.event (
    tenant, event_id, type, ts, part_day, quantity, count, attributes, flags,
    writer, writer_seq, recorded_at, disposition
)
SELECT 'acme', 'm' || n, 'bulk', timestamptz '2026-11-01 00:00Z'
    + n * interval '1 ms', '2026-11-01', 1, 1, '{"n":' || n || '}', 0,
    writer, 1000000 + n, now(), 0
FROM generate_series(1, 60000) AS n, meter.writer;
SQL
    my $question = { from => '2026-11-01T00:00:00Z',
        to => '2026-11-02T00:00:00Z', filter => { n => 7 } };
    my $page = search($question);
    is scalar @{ $page->{events} }, 0, 'nothing found yet';
    ok !$page->{complete}, 'it says so';
    ok defined $page->{cursor}, 'and where to go on';
    is join(' ', all_ids($question)), 'm7', 'there it is';
};

# --- tenants and refusals -----------------------------------------------

subtest 'another tenant' => sub {
    send_events($other, event('call', { route => '/a' }, event_id => 'theirs'));
    is_deeply [all_ids({ type => 'call', where => { route => '/a' } }, $other)],
        ['theirs'], 'sees its own';
    is_deeply [all_ids({}, $other)], ['theirs'], 'and nothing else';
    is scalar(grep { $_ eq 'theirs' } all_ids({ type => 'call',
        where => { route => '/a' } })), 0, 'the first one does not see it';
    is $http->as(undef)->post('/v1/search', {})->{status}, 401, 'a token is due';
};

subtest 'cursors' => sub {
    my %question = (type => 'call', where => { route => { gte => '' } });
    my $cursor = search({ %question, limit => 3 })->{cursor};
    my $wrong = '400 the cursor does not belong to this question';
    is ref search({ %question, cursor => $cursor, limit => 7 }), 'HASH',
        'limit may change';
    is search({ %question, cursor => $cursor, type => 'move',
        where => { place => { gte => '' } } }), $wrong, 'another type';
    is search({ %question, cursor => $cursor, customer => 'c1' }), $wrong,
        'a customer';
    is search({ %question, cursor => $cursor,
        where => { route => { gt => '' } } }), $wrong, 'another operator';
    is search({ %question, cursor => $cursor, from => 0 }), $wrong, 'a from';
    is search({ %question, cursor => $cursor }, $other), $wrong,
        'another tenant';
    is search({ %question, cursor => substr $cursor, 1 }), $wrong, 'cut';
    is search({ %question, cursor => 5 }), $wrong, 'a number';
    is ref search({ %question, cursor => undef }), 'HASH', 'null: none';
};

subtest 'refused' => sub {
    my $not = 'is not indexed for type';
    my $any = '"filter" takes any attribute';
    for my $case (
        [{ type => 'call', where => { path => 1 } },
            qq(attribute "path" $not "call"; $any)],
        [{ type => 'bare', where => { route => 1 } },
            qq(attribute "route" $not "bare"; $any)],
        [{ type => 'unknown' }, 'unknown event type "unknown"'],
        [{ where => { route => 1 } },
            'where needs a type: attributes are indexed by type'],
        [{ type => 'call', were => {} }, 'unknown member "were"'],
        [{ filter => [] }, 'filter must be an object'],
        [{ filter => { a => { like => 1 } } },
            'attribute "a": unknown operator "like"'],
        [{ filter => { a => {} } }, 'attribute "a" has no operator'],
        [{ filter => { a => { lt => JSON::PP::true } } },
            'attribute "a": "lt" takes a number or a text'],
        [{ filter => { a => { in => [] } } },
            'attribute "a": "in" takes 1 to 1000 values'],
        [{ filter => { a => { in => [1 .. 1001] } } },
            'attribute "a": "in" takes 1 to 1000 values'],
        [{ filter => { a => { prefix => 1 } } },
            'attribute "a": "prefix" takes a text'],
        [{ filter => { a => { exists => 1 } } },
            'attribute "a": "exists" takes true or false'],
        [{ filter => { map { ("a$_" => 1) } 1 .. 33 } },
            'where and filter have more than 32 conditions'],
        [{ from => 'yesterday' },
            'from is not an RFC 3339 instant: "yesterday"'],
        [{ from => 1_800_000_000, to => 1_800_000_000 },
            'from must be before to'],
        [{ limit => 0 },    '"limit" must be from 1 to 1000'],
        [{ limit => 1001 }, '"limit" must be from 1 to 1000'],
        [{ limit => '5' },  '"limit" must be from 1 to 1000'],
        [{ type => 5 }, 'type must be a text'])
    {
        my ($body, $error) = @$case;
        is search($body), "400 $error", $error;
    }
    like search({ filter => { a => undef } }),
        qr/^400 attribute "a": "eq" takes a text.*"exists" asks/, 'null';
    is $http->get('/v1/search')->{status}, 405, 'GET is none';
};

# No retention job has raised the floor: nobody makes a partition for it.
subtest 'a shorter retention in the rules holds at once' => sub {
    my $metric = sub {
        my $text = $http->get('/metrics')->{body};
        return $text =~ /^edgemeter_config_reloads_total (\d+)$/m ? $1 : -1;
    };
    my $before = $metric->();
    write_rules("$declared\nretention: { event: forever, eventIndex: 5d }\n");
    kill 'HUP', $stack->part_pid('meterd');
    wait_until { $metric->() > $before } 10, 'the rules are read again';
    my $late = event('old', { x => 2 }, ts => '2026-08-20T00:00:00Z');
    send_events($http, $late, event('old', { x => 2 }, ts => time));
    is_deeply [all_ids({ type => 'old', filter => { x => 2 } })]->[1],
        $late->{event_id}, 'the late event is in the ledger';
    is scalar(all_ids({ type => 'old', where => { x => 2 } })), 1,
        'and not in the index';
    is $stack->query(<<'SQL'), 0, 'which has no partition for it';
SELECT count(*) FROM pg_class WHERE relname = 'event_index_20260820'
SQL
};

# --- plans --------------------------------------------------------------

subtest 'plans as the reader has them' => sub {
    $stack->query(join ';', map {
        my $parent = $_;
        map { "SELECT meter.partition_make('$parent', "
            . "DATE '2026-03-01' + $_)" } 1 .. 120
    } qw(event event_index));
    my %arguments = (
        ledger => q('acme', 'call', '2026-10-01', '2026-10-20',
            gen_random_uuid(), 1, 100),
        values => q('acme', 'call', '2026-10-01', '2026-10-20',
            gen_random_uuid(), 1, 100, 'route', '{"a","b"}'),
        range => q('acme', 'call', '2026-10-01', '2026-10-20',
            gen_random_uuid(), 1, 100, 'route', '"', '#', NULL, NULL),
    );
    for my $name (sort keys %arguments) {
        my $text = Edgemeter::Stack::statement("search_$name");
        my $plan = join "\n", $stack->query(<<"SQL");
SET ROLE meter_reader;
SET app.current_tenant = 'acme';
SET enable_seqscan = off;
SET jit = off;
SET plan_cache_mode = force_generic_plan;
PREPARE one AS $text
EXPLAIN (COSTS off, ANALYZE, TIMING off, SUMMARY off) EXECUTE one($arguments{$name});
SQL
        unlike $plan, qr/Seq Scan/, "$name: no table is read through";
        my @conditions = $plan =~ /Index Cond: (.*)/g;
        my @bad = grep { !/tenant/ || !/\bts\b/ } @conditions;
        is "@bad", '', 'every index from the tenant to the time';
        like $plan, qr/Subplans Removed: \d{2,}/,
            'days before are not looked at';
        like $plan, qr/Merge Append/, 'in order by itself'
            if $name ne 'range';
        note $plan if @bad;
    }
};

done_testing;
