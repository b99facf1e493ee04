#!/usr/bin/perl

# 79-checkpoint.t - `meterd checkpoint`: what cannot be recomputed is saved
# while events arrive, and comes back exactly, with what was recorded since,
# after tables and the oldest days of the ledger are lost. The daemon does it
# by itself: 79-checkpoint-job.t.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Digest::SHA qw(sha256_hex);
use JSON::PP ();
use List::Util qw(sum0);
use POSIX ();
use Test::More;
use Edgemeter::Node;
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::Stack;

my $rules = <<'YAML';
events:
  - { type: call }
  - { type: opened }
  - { type: closed }
  - { type: up }
  - { type: down }
counters:
  - counterName: all_events
    dimensions: []
    rules: [ { on: call, op: increment }, { on: opened, op: increment },
      { on: closed, op: increment }, { on: up, op: increment },
      { on: down, op: increment } ]
  - counterName: calls
    dimensions: [route]
    rules: [ { on: call, op: increment, by: size } ]
  - counterName: open
    dimensions: [route]
    floorAtZero: true
    rules: [ { on: opened, op: increment }, { on: closed, op: decrement } ]
  - counterName: online
    dimensions: [route]
    transitions: { entity: device }
    rules: [ { on: up, op: increment }, { on: down, op: decrement } ]
usage:
  entryCount: { increment: [opened], decrement: [closed] }
  storageBytes: { increment: [opened], decrement: [closed], by: size }
  apiCallCount: { increment: [call] }
YAML

my $stack = Edgemeter::Stack->for_test(rules => \$rules);
$stack->prepare;
$stack->start_database;
$stack->migrate;
$stack->make_tokens;
my $scratch = $stack->place->path('tmp');
my %node    = map {
    $_ => Edgemeter::Node->start($stack, name => $_)->wait_ready
} qw(a b);
my $JSON = JSON::PP->new->utf8->canonical;
my $rules_path = ($stack->config_arguments)[1];

# --- events -------------------------------------------------------------

srand 79;
my $count = 0;

# Events of all types, of the day that is so many days ago.
sub events {
    my ($how_many, $days) = @_;
    my $ts = time - $days * 86_400;
    return map {
        my $type = (qw(call opened closed up down))[int rand 5];
        {   event_id => sprintf('event-%d', ++$count),
            type => $type, ts => $ts,
            attributes => {
                route  => '/' . int(rand 4),
                device => 'd' . int(rand 6),
                size   => int rand 9_000_000,
            } }
    } 1 .. $how_many;
}

# To both nodes and for both tenants, some at a time.
sub load {
    my ($how_many, $days) = @_;
    my @all = events($how_many, $days);
    while (my @some = splice @all, 0, 17) {
        my $name   = (qw(a b))[int rand 2];
        my $tenant = (qw(acme globex))[int rand 2];
        my $answer = $node{$name}->post($tenant, \@some);
        die "not accepted: $answer->{status} $answer->{body}\n"
            if $answer->{status} != 200
            || grep { ($_->{verdict} // $_->{status} // '') ne 'accepted' }
                @{ $JSON->decode($answer->{body})->{results} };
    }
    return;
}

# --- tables and files ---------------------------------------------------

my %TABLES = (
    counter => 'tenant, counter_name, dimension_key, dimensions, value,'
        . ' updated_at',
    counter_keys => 'tenant, counter_name, keys',
    entity_state => 'tenant, owner, entity, dimension_key, dimensions,'
        . ' updated_at',
    tenant_usage_metrics => 'tenant_id, entry_count, storage_bytes,'
        . ' api_call_count, status, last_updated_at',
);

# An entity that is counted nowhere is as good as one that is not known.
my %WHERE = (entity_state => 'WHERE dimension_key IS NOT NULL');

sub tables {
    return join "\n", map {
        ("-- $_", $stack->query("SELECT $TABLES{$_} FROM meter.$_ "
                . ($WHERE{$_} // '') . ' ORDER BY 1, 2, 3'))
    } sort keys %TABLES;
}

sub tables_empty {
    $stack->query('TRUNCATE meter.counter, meter.counter_keys,'
        . ' meter.entity_state, meter.tenant_usage_metrics');
    return;
}

sub directory {
    my ($name) = @_;
    my $path = "$scratch/$name";
    mkdir $path, 0750 or die "$path: $!";
    $stack->account->own($path);
    return $path;
}

sub names {
    my ($directory) = @_;
    opendir my $opened, $directory or die "$directory: $!";
    my @names = sort grep { !/^\./ } readdir $opened;
    return @names;
}

sub slurp {
    my ($path) = @_;
    open my $file, '<:raw', $path or die "$path: $!";
    local $/;
    return <$file>;
}

sub spew {
    my ($path, $text) = @_;
    Edgemeter::Place::replace_file($path, 0644, $stack->account, $text);
    return $path;
}

# The lines of a file, decoded; and a file of such lines, signed.
sub decoded { return map { $JSON->decode($_) } split /\n/, slurp($_[0]) }

sub signed {
    my ($path, @lines) = @_;
    my $text = join '', map { $JSON->encode($_) . "\n" } @lines;
    return spew($path, $text . $JSON->encode({ rows => '' . (@lines - 1),
                sha256 => sha256_hex($text) }) . "\n");
}

sub command {
    my ($words, %arg) = @_;
    return [$stack->{program}, 'checkpoint', @$words, '-c',
        $arg{rules} // $rules_path, '-c', "$scratch/a.yaml"];
}

sub checkpoint {
    my ($words, %arg) = @_;
    my ($status, $out, $err) = Edgemeter::Process::capture(
        command => command($words, %arg), user => $stack->account,
        env => $arg{env});
    return ($status & 127 || $status >> 8, $out, $err);
}

my $NAME = qr/checkpoint-\d{8}T\d{6}Z\.ndjson/;

# --- the drill ----------------------------------------------------------

my $files = directory('files');
my $file;

subtest 'words' => sub {
    for my $words ([], ['exprot'], ['import'], ['show'], ['export'],
        ['export', 'x', 'y'], ['export', 'x', '-o', $files],
        ['export', '--dry-run', 'x'], ['import', '-o', $files, 'x'],
        ['export', '--keep', '0', '-o', $files],
        ['export', '--keep', '1x', '-o', $files])
    {
        is +(checkpoint($words))[0], 2, "@$words: usage";
    }
    my ($status, $out) = checkpoint(['--help']);
    is $status, 0, 'help';
    like $out, qr/^usage: meterd checkpoint export/, 'text';
    is +(checkpoint(['show', "$files/none"]))[0], 1, 'no file: 1';
    is +(checkpoint(['export', "$files/none/x"]))[0], 1, 'no directory: 1';
    is_deeply [names($files)], [], 'nothing is written';
};

subtest 'export and show' => sub {
    load(600, 40);
    load(400, 0);
    my ($status, $out, $err) = checkpoint(['export', '-o', $files]);
    is $status, 0, 'status' or diag $err;
    is $err, '', 'no word of complaint';
    my @names = names($files);
    is @names, 1, 'one file';
    like $names[0], qr/^$NAME$/, 'named by its time';
    $file = "$files/$names[0]";
    my ($header, @rows) = decoded($file);
    my $trailer = pop @rows;
    like $out, qr/^\Q$file\E: @{[scalar @rows]} rows in [\d.]+ s$/, 'told';
    is $trailer->{rows}, @rows, 'as many as it says';
    is sprintf('%o', (stat $file)[2] & 07777), '640', 'not for everyone';
    is_deeply $header->{writers}, { map { split /\t/ } $stack->query(
            'SELECT writer, last FROM meter.writer_seq WHERE last > 0') },
        'numbers of the writers';
    is sum0(map { $_->{value} } grep { ($_->{counter} // '') eq 'all_events' }
            @rows), 1000, 'and rows that stand for them';
    is_deeply [sort map { join "\t", @$_{qw(tenant owner entity)},
                $_->{key} // '' } grep { exists $_->{owner} } @rows],
        [$stack->query("SELECT tenant, owner, entity, COALESCE(encode("
                . "dimension_key, 'hex'), '') FROM meter.entity_state"
                . ' ORDER BY (tenant || chr(9) || owner || chr(9) || entity)'
                . ' COLLATE "C"')], 'entities';
    ($status, $out) = checkpoint(['show', $file]);
    is $status, 0, 'show';
    like $out, qr/^rows +\d+, complete and unchanged$/m, 'says that it is whole';
    like $out, qr/^acme +\d+ +\d+ +1$/m, 'and what each tenant has';
    my $named = "$scratch/by-name";
    $status = (checkpoint(['export', $named]))[0];
    is $status, 0, 'to a name of its own';
    is join("\n", (split /\n/, slurp($named))[1 .. @rows]),
        join("\n", (split /\n/, slurp($file))[1 .. @rows]), 'the same rows';
};

my $before;    # what the tables are after all events

subtest 'restored when tables and days are lost' => sub {
    load(500, 0);
    $before = tables();
    my ($day) = $stack->query('SELECT min(part_day) FROM meter.event');
    my $old = $stack->query(
        "SELECT count(*) FROM meter.event WHERE part_day = '$day'");
    is $old, 600, 'the oldest day has events';
    my ($status, $out, $err) = checkpoint(['import', $file, '--dry-run']);
    is $status, 0, 'nothing is lost yet' or diag $err;
    like $out, qr/500 events .*: 0 rows would change/, 'and it agrees';

    $stack->query("INSERT INTO meter.partition_floor VALUES ('event',"
        . " date '$day' + 1) ON CONFLICT (parent) DO UPDATE"
        . ' SET floor = excluded.floor');
    $stack->query('DROP TABLE meter.event_' . $day =~ tr/-//dr);
    tables_empty();
    ($status, $out) = checkpoint(['import', $file, '--dry-run']);
    is $status, 0, 'a look first';
    like $out, qr/^acme: \w+ \S.* no row -> /m, 'shows what is missing';
    unlike tables(), qr/acme/, 'and changes nothing';

    ($status, $out, $err) = checkpoint(['import', $file]);
    is $status, 0, 'import' or diag $err;
    is tables(), $before, 'everything is as it was';
    for my $again (1, 2) {
        ($status, $out) = checkpoint(['import', $file]);
        is $status, 0, 'again';
        like $out, qr/: 0 rows changed/, 'changes nothing';
        is tables(), $before, 'and it is as it was';
    }
};

subtest 'what is wrong is put right' => sub {
    $stack->query("UPDATE meter.counter SET value = value + 1000 WHERE"
        . " tenant = 'acme' AND counter_name = 'all_events'");
    $stack->query("DELETE FROM meter.entity_state WHERE tenant = 'globex'");
    $stack->query("INSERT INTO meter.counter (tenant, counter_name,"
        . " dimension_key, dimensions, value, updated_at) VALUES ('nobody',"
        . " 'calls', sha256('x'), '{}', 5, now())");
    my ($status, $out) = checkpoint(['import', $file]);
    is $status, 0, 'import';
    unlike $out, qr/: 0 rows changed/, 'tells that there was something';
    is tables(), $before, 'all is as it should be';
};

subtest 'and goes on from there' => sub {
    load(300, 0);
    my $after = tables();
    isnt $after, $before, 'events count again';
    tables_empty();
    is +(checkpoint(['import', $file]))[0], 0, 'the same file once more';
    is tables(), $after, 'with all that came since';
    $before = $after;
};

# --- what is refused ----------------------------------------------------

sub refused {
    my ($words, $why, $name, %arg) = @_;
    my ($status, $out, $err) = checkpoint($words, %arg);
    is $status, 1, "$name: refused";
    like $err, $why, 'with the reason';
    is tables(), $before, 'and nothing is touched';
    return;
}

subtest 'files that are none' => sub {
    my $text = slurp($file);
    my $bad = spew("$scratch/bad", substr $text, 0, length($text) - 200);
    refused(['import', $bad], qr/cut short/, 'cut short');
    $text =~ s/("value":")(\d)/$1 . ($2 + 1) % 10/e;
    spew($bad, $text);
    refused(['import', $bad], qr/was changed/, 'a digit changed');
    is +(checkpoint(['show', $bad]))[0], 1, 'show says so too';
    my ($header, @rows) = decoded($file);
    pop @rows;
    signed($bad, { %$header, version => 2 }, @rows);
    refused(['import', $bad], qr/another version/, 'another version');
    spew($bad, "{}\n");
    refused(['import', $bad, '--force'], qr/no checkpoint/, 'anything else');
};

subtest 'files of others' => sub {
    my ($header, @rows) = decoded($file);
    pop @rows;
    my $other = "$scratch/other";
    signed($other, { %$header, salt_sha256 => 'ab' x 32 }, @rows);
    refused(['import', $other], qr/another database/, 'another salt');
    signed($other, { %$header,
            incarnation => $header->{incarnation} =~ s/.$/7/r }, @rows);
    refused(['import', $other], qr/restored or failed over/, 'a fail-over');
    my ($status, $out, $err) = checkpoint(['import', $other, '--force']);
    is $status, 0, 'by force' or diag $err;
    like $out, qr/: 0 rows changed/, 'it is the same after all';

    my ($writer) = sort keys %{ $header->{writers} };
    my %ahead = (%{ $header->{writers} }, $writer => '99999999');
    signed($other, { %$header, writers => \%ahead }, @rows);
    refused(['import', $other, '--force'], qr/does not have/, 'of the future');
    my %more = (%{ $header->{writers} }, 'f' x 8 . '-0000-4000-8000-'
            . '0' x 12 => '1');
    signed($other, { %$header, writers => \%more }, @rows);
    refused(['import', $other, '--force'], qr/does not have/,
        'with a writer that is not known');
    signed($other, { %$header, schema => 9999 }, @rows);
    refused(['import', $other], qr/newer schema/, 'of a newer program');
};

subtest 'a ledger with a gap' => sub {
    $stack->query('CREATE TABLE public.gap AS SELECT * FROM meter.event'
        . ' ORDER BY recorded_at DESC, writer_seq DESC LIMIT 1');
    $stack->query('DELETE FROM meter.event AS event USING public.gap WHERE'
        . ' gap.writer = event.writer AND gap.writer_seq = event.writer_seq');
    refused(['import', $file], qr/ledger lacks 1 events/,
        'an event is missing');
    refused(['import', $file, '--force'], qr/ledger lacks 1 events/,
        'also by force');
    $stack->query('INSERT INTO meter.event SELECT * FROM public.gap');
    my ($status) = checkpoint(['import', $file]);
    is $status, 0, 'it is back';
};

subtest 'rules that do not know it' => sub {
    my $fewer = spew("$scratch/fewer.yaml",
        $rules =~ s/  - counterName: open\n(?:    .*\n)*//r);
    refused(['import', $file], qr/rules do not know/, 'a counter is gone',
        rules => $fewer);
    my $no_usage = spew("$scratch/no-usage.yaml", $rules =~ s/^usage:.*//msr);
    refused(['import', $file], qr/rules do not know/, 'no usage',
        rules => $no_usage);
    is +(checkpoint(['import', $file, '--force'], rules => $fewer))[0], 0,
        'the others by force';
    is tables(), $before, 'rows that no rule knows are left alone';
};

# --- while events arrive ------------------------------------------------

subtest 'under load' => sub {
    my $busy = directory('busy');
    my $stop = "$scratch/stop";
    my $pid  = fork // die "fork: $!";
    if ($pid == 0) {
        $count = 1_000_000;
        my $good = eval {
            load(100, 0) until -e $stop;
            1;
        };
        print STDERR $@ unless $good;
        POSIX::_exit($good ? 0 : 1);
    }
    my ($different, $wrong, $last) = (0, 0, 0);
    for my $turn (1 .. 12) {
        my $path = "$busy/$turn";
        my ($status, $out, $err) = checkpoint(['export', $path]);
        is $status, 0, "export $turn" or diag $err;
        my ($header, @rows) = decoded($path);
        my $events = sum0(values %{ $header->{writers} });
        my $rows = sum0(map { $_->{value} // 0 } grep {
                ($_->{counter} // '') eq 'all_events' } @rows);
        $wrong++ if $rows != $events;
        $different++ if $events > $last;
        $last = $events;
        if ($turn % 4 == 0) {
            ($status, $out, $err) = checkpoint(['import', $path]);
            is $status, 0, "import $turn" or diag $err;
            like $out, qr/: 0 rows changed/, 'no row was wrong';
        }
    }
    is $wrong, 0, 'numbers and rows are of one moment';
    cmp_ok $different, '>', 3, 'of different moments';
    $stack->query("UPDATE meter.counter SET value = 0 WHERE counter_name"
        . " = 'all_events'");
    my ($status, $out, $err) = checkpoint(['import', "$busy/1"]);
    is $status, 0, 'what is lost is restored while they arrive' or diag $err;
    open my $mark, '>', $stop or die $!;
    waitpid $pid, 0;
    is $?, 0, 'every event was accepted';
    is $stack->query("SELECT sum(value) FROM meter.counter WHERE"
            . " counter_name = 'all_events'"),
        $stack->query('SELECT sum(last) FROM meter.writer_seq'),
        'and counted once';
    ($status, $out) = checkpoint(['import', $file, '--dry-run']);
    like $out, qr/: 0 rows would change/, 'as the first file says';
    $before = tables();
};

# --- a killed export ----------------------------------------------------

subtest 'killed on the way' => sub {
    my $killed = directory('killed');
    for my $point (qw(checkpoint_row:3 checkpoint_written checkpoint_synced)) {
        is +(checkpoint(['export', '-o', $killed],
                env => { METERD_CRASH_POINT => $point }))[0], 9,
            "$point: killed";
    }
    my @left = names($killed);
    is_deeply [grep { /^$NAME$/ } @left], [], 'there is no file';
    is @left, 3, 'but what it left';
    my ($status, $out, $err) = checkpoint(
        ['export', '-o', $killed, '--keep', '2']);
    is $status, 0, 'the next one is made' or diag $err;
    is scalar(grep { /^$NAME$/ } names($killed)), 1, 'and there';
    utime 1, 1, map {"$killed/$_"} @left;
    is +(checkpoint(['export', '-o', $killed, '--keep', '2']))[0], 0, 'another';
    is_deeply [grep { !/^$NAME$/ } names($killed)], [],
        'what was left long ago is removed';
    my $full = "$killed/" . (names($killed))[0];
    my $text = slurp($full);
    is +(checkpoint(['export', $full],
            env => { METERD_CRASH_POINT => 'checkpoint_row:3' }))[0], 9,
        'killed over a file';
    is slurp($full), $text, 'that is still the old one';
};

subtest 'no database' => sub {
    $_->process->stop('TERM', 20) for values %node;
    $stack->cluster->stop('fast');
    my ($status, $out, $err) = checkpoint(['export', '-o', $files]);
    is $status, 1, 'export: 1';
    like $err, qr/connection/, 'why';
    is +(checkpoint(['import', $file]))[0], 1, 'import: 1';
    is +(checkpoint(['show', $file]))[0], 0, 'show does not need one';
};

$stack->stop;
done_testing;
