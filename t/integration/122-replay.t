#!/usr/bin/perl

# 122-replay.t - `meterd replay`: events of a file count as if they had come
# by HTTP, each once: from NDJSON and CSV, with every verdict. A dry run tells
# the same and writes nothing.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use JSON::PP ();
use Test::More;
use Edgemeter::Process;
use Edgemeter::Replay;

srand 122;

my $replay  = Edgemeter::Replay->start;
my $stack   = $replay->stack;
my $node    = $replay->node;
my $mine    = $replay->state;
my $scratch = $stack->place->path('tmp');
my $JSON    = JSON::PP->new->utf8->canonical;
my $now     = $replay->now;

sub ndjson  { return Edgemeter::Replay::ndjson(@_) }
sub text_of { return Edgemeter::Replay::text_of(@_) }

sub is_same {
    my ($got, $wanted, $name) = @_;
    my %in;
    $in{$_}++ for split /\n/, $got;
    $in{$_}-- for split /\n/, $wanted;
    my @differ = map { ($in{$_} > 0 ? '+' : '-') . $_ }
        grep { $in{$_} } sort keys %in;
    ok !@differ, $name
        or diag join "\n", @differ[0 .. ($#differ < 20 ? $#differ : 20)];
    return;
}

subtest 'usage' => sub {
    my $path = $replay->file('usage.ndjson', '');
    for my $words ([], ["$scratch/usage"], ['-'], [$path, 'more'],
        [$path, '--format', 'xml'], [$path, '--text', 'a'],
        [$path, '--tenant', ''], [$path, '--nope'],
        [$path, '--tenant', 'x' x 256]) {
        my ($status, $out, $err) = $replay->run(@$words);
        is $status, 2, "@$words: status 2";
        is $out, '', 'nothing on stdout';
        isnt $err, '', 'a reason';
    }
    my ($status, $out, $err) = $replay->run('--help');
    is $status, 0, 'help';
    like $out, qr/^usage: meterd replay FILE/, 'on stdout';
    for my $missing ("$scratch/none.csv", "$scratch/none.ndjson",
        '/none.ndjson') {
        ($status, $out, $err) = $replay->run($missing);
        is $status, 2, 'no such file: 2';
        like $err, qr/\Q$missing\E: No such file/, 'and says so';
    }
    ($status, $out, $err) = $replay->run($scratch, '--format', 'csv');
    is $status, 2, 'a directory: 2';
    my @bad = (
        [''                  => qr/no header line/],
        ["e1,call,1\n"       => qr/no header.*"type" and "ts"/],
        ["type,ts,\n"        => qr/column 3 .* no name/],
        ["type,ts,type\n"    => qr/"type" twice/],
        ["type,ts,a,attributes.a\n" => qr/"a" twice/],
        [qq(type,ts,a"b\n)   => qr/quote/],
        ["type,ts,\xff\n"    => qr/not UTF-8/],
    );
    for (@bad) {
        my ($header, $reason) = @$_;
        ($status, $out, $err) = $replay->run($replay->file('bad.csv', $header));
        is $status, 2, 'a bad header: 2';
        like $err, $reason, 'and why';
    }
    ($status, $out, $err) = $replay->run($replay->file('text.csv', "type,ts\n"), '--text',
        'size');
    is $status, 2, '--text of a column that is not there: 2';
    ($status, $out, $err) = $replay->run($path);
    is "$status $out", "0 replayed: 0 accepted, 0 duplicates, 0 conflicts, 0"
        . " rejected\n", 'an empty file is done';
};

subtest 'as by HTTP' => sub {
    my @all = ($replay->events(400), map { { type => 'tick', ts => $now - $_ } } 1 .. 9);
    my @rest = @all;
    while (my @some = splice @rest, 0, 1 + rand 60) {
        is $node->post('acme', \@some)->{status}, 200, 'sent'
            or return;
    }
    my $path = $replay->file('same.ndjson', ndjson(map { { %$_, tenant => 'globex' } }
        @all));
    my ($status, $out, $err) = $replay->run($path);
    is $status, 0, 'status 0' or diag $err;
    is $out, "replayed: 409 accepted, 0 duplicates, 0 conflicts, 0 rejected\n",
        'counts';
    is $err, '', 'nothing on stderr';
    is $stack->query(q{SELECT s.last, f.upto FROM meter.writer w
        JOIN meter.writer_seq s USING (writer)
        JOIN meter.writer_flush f USING (writer)
        WHERE w.node = 'a backfill'}), "409\t409", 'its series are flushed';
    $replay->settle;
    # A derived id has the tenant in it.
    my $plain = sub { $replay->books($_[0]) =~ s/^[\w-]{43}(?=\ttick)/derived/mgr };
    is_same($plain->('globex'), $plain->('acme'), 'the same in every table');
    $replay->balance('the same');
    is scalar($replay->resumes), 0, 'no resume file is left';
    ($status, $out) = $replay->run($path);
    is "$status $out", "0 replayed: 0 accepted, 409 duplicates, 0 conflicts, 0"
        . " rejected\n", 'again: all are known';
    is_same($plain->('globex'), $plain->('acme'), 'and nothing has moved');
    ($status, $out) = $replay->run($replay->file('none.ndjson', ndjson(@all)), '--tenant',
        'globex');
    is "$status $out", "0 replayed: 0 accepted, 409 duplicates, 0 conflicts, 0"
        . " rejected\n", 'and with --tenant';
};

my $minted = 'edge-' . 'a' x 32 . '-1-1700000000000000';
my %good = (type => 'call', ts => $now, attributes => { route => '/v' });

# Line, verdict, reason; the verdicts of a dry run are the same.
my @verdicts = (
    [$JSON->encode({ %good, event_id => 'v1', tenant => 'v' })],
    ['  ' . $JSON->encode({ %good, event_id => 'v2', tenant => 'v' }) . " \r"],
    [''],
    [" \t"],
    [$JSON->encode({ %good, event_id => 'v1', tenant => 'v' })],
    [$JSON->encode({ %good, event_id => 'v1', tenant => 'v', quantity => 7 }),
        'conflict', 'event_id is known with other content'],
    [$JSON->encode({ %good, event_id => 'v1', tenant => 'w' })],
    ['{"event_id":"v3"', 'rejected', 'invalid JSON: the object has no end'],
    ['{"event_id":"v3"}}', 'rejected', 'invalid JSON: text behind the object'],
    ['{} {}', 'rejected', 'invalid JSON: text behind the object'],
    ['],[', 'rejected', 'an event must be a JSON object'],
    ['7', 'rejected', 'an event must be a JSON object'],
    ['{"event_id":}', 'rejected', qr/^invalid JSON/],
    ["{\"event_id\":\"\xff\"}", 'rejected', qr/^invalid JSON/],
    [$JSON->encode({ %good, event_id => 'v4' }), 'rejected',
        'tenant is missing'],
    [$JSON->encode({ %good, event_id => 'v4', tenant => '' }), 'rejected',
        'tenant is empty'],
    [$JSON->encode({ %good, event_id => 'v4', tenant => 7 }), 'rejected',
        'tenant must be a string'],
    [$JSON->encode({ %good, tenant => 'v' }), 'rejected',
        'event_id is missing'],
    [$JSON->encode({ %good, event_id => $minted, tenant => 'v' }), 'rejected',
        'event_id has the form of ids that only the edge makes'],
    [$JSON->encode({ %good, event_id => 'v4', tenant => 'v', count => 2 }),
        'rejected', 'count may only be set by the edge'],
    [$JSON->encode({ %good, event_id => 'v4', tenant => 'v', ts => $now
        + 86400 }), 'rejected', qr/^ts is more than/],
    [$JSON->encode({ %good, event_id => 'v4', tenant => 'v',
        type => 'nope' }), 'rejected', 'unknown event type "nope"'],
    [$JSON->encode({ event_id => 'v5', tenant => 'v', type => 'call',
        ts => $now, attributes => { route => 'x' x 70_000 } }), 'rejected',
        'the line is longer than 65536 bytes'],
    ['x' x 2_000_000, 'rejected', 'the line is longer than 65536 bytes'],
    [$JSON->encode({ %good, event_id => 'v6', tenant => 'v' })],
    [$JSON->encode({ type => 'tick', ts => $now, tenant => 'v' })],
    [$JSON->encode({ type => 'tick', ts => $now, tenant => 'v' })],
    [$JSON->encode({ %good, event_id => 'v7', tenant => 'v' })],
);
my $verdict_text = join "\n", map { $_->[0] } @verdicts;

sub rejects_are {
    my ($path, $name) = @_;
    my @lines = split /\n/, text_of($path);
    my $number = 0;
    for (@verdicts) {
        my ($line, $verdict, $reason) = @$_;
        $number++;
        next unless $verdict;
        my @got = split /\t/, shift(@lines) // '', 4;
        is "@got[0, 1]", "$number $verdict", "$name: line $number";
        ref $reason ? like($got[2], $reason, 'why') : is($got[2], $reason,
            'why');
        is $got[3], length $line > 65536 ? substr($line, 0, 1024) : $line,
            'the line itself';
    }
    is scalar @lines, 0, "$name: and no other";
    return;
}

subtest 'verdicts' => sub {
    my $path   = $replay->file('verdicts.ndjson', "\xef\xbb\xbf$verdict_text");
    my $before = $replay->row_counts;
    my ($status, $out, $err) = $replay->run($path, '--dry-run', '--rejects',
        "$mine/dry");
    is $status, 1, 'a dry run: 1' or diag $err;
    is $out, "dry run: 6 accepted, 2 duplicates, 1 conflicts, 17 rejected\n",
        'counts';
    rejects_are("$mine/dry", 'dry');
    is $replay->row_counts, $before, 'no row more or less in any table';
    is scalar($replay->resumes), 0, 'and no resume file';

    ($status, $out, $err) = $replay->run($path, '--rejects', "$mine/rejects");
    is $status, 1, 'a real one: 1' or diag $err;
    is $out, "replayed: 6 accepted, 2 duplicates, 1 conflicts, 17 rejected\n",
        'counts';
    rejects_are("$mine/rejects", 'real');
    is join(' ', sort map {s/\t/:/r} $stack->query('SELECT tenant, event_id'
            . " FROM meter.event WHERE tenant IN ('v', 'w')"
            . " AND type = 'call'")), 'v:v1 v:v2 v:v6 v:v7 w:v1', 'the ledger';

    ($status, $out) = $replay->run($path);
    is $status, 1, 'without a file for them: 1';
    like $out, qr/^line 6: conflict: event_id is known with other content$/m,
        'they are told';
    like $out, qr/^replayed: 0 accepted, 8 duplicates, 1 conflicts, 17 rej/m,
        'counts';
    ($status, $out) = $replay->run($path, '--dry-run');
    like $out, qr/^dry run: 0 accepted, 8 duplicates, 1 conflicts, 17 rej/m,
        'a dry run knows what the registry has';
    ($status, $out) = $replay->run($replay->file('many.ndjson', "x\n" x 30));
    is scalar(() = $out =~ /^line \d+: rejected/mg), 20, 'the first 20';
    like $out, qr/^more such lines are not shown/m, 'and that there are more';

    ($status, $out, $err) = $replay->run($path, '--tenant', 'v', '--rejects',
        "$mine/tenant");
    like text_of("$mine/tenant"),
        qr/^7\trejected\ttenant is not the one of --tenant\t/m,
        '--tenant is for all of them';
    ($status, $out, $err) = $replay->run($path, '--rejects', $path);
    is $status, 2, 'the file itself for its rejects: 2';
    is length(text_of($path)), 3 + length $verdict_text, 'it is left alone';
    ($status, $out, $err) = $replay->run($path, '--rejects', "$mine/no/where");
    is $status, 2, 'nowhere to write them: 2';
    like $err, qr{no/where: No such file}, 'and why';
    $replay->balance('verdicts');
};

subtest 'CSV' => sub {
    my $path = $replay->file('all.csv', join "\r\n",
        "\xef\xbb\xbfevent_id,type,ts,tenant,customer,resource,quantity,"
            . 'source,route,a.b,code,flag,attributes,attributes.type,"x ""y"""',
        'c1,call,2026-01-02T03:04:05Z,csv,cu,re,2.50,so,/a,1,007,true,'
            . '"{""deep"":{""er"":[1]},""n"":1.0}",t,"two',
        'lines, and ""quotes"""',
        "c2,call,$now,csv,,,,,/b,,12,,,,",
        "c3,call,$now,csv,,,,,,,,,,,",
        "c4,call,$now,csv",
        qq(c5,call,$now,csv,,,,,/b,,,,,,a"b),
        qq(c6,call,$now,csv,"open,,,,/b,,,,,,),
        qq(c7,call,$now,csv,,,,,/b,,,,"{",,),
        qq(c8,call,$now,csv,,,,,/b,,,,"{},""a"":{}",,),
        qq(c9,call,$now,csv,,,,,/b,,,,"{""route"":1}",,),
        "c10,call,$now,csv,,,,,\xff,,,,,,",
        '',
        qq("c11","call","$now","csv",,,,,"/b","7",,,,,),
        qq(c12,call,$now,csv,,,,,/b,1e400000,,,,,),
    );
    my @words = ($path, '--rejects', "$mine/csv", '--text', 'code');
    my $counts = "3 accepted, 0 duplicates, 0 conflicts, 9 rejected\n";
    my ($status, $out, $err) = $replay->run(@words, '--dry-run');
    is "$status $out", "1 dry run: $counts", 'a dry run' or diag $err;
    ($status, $out, $err) = $replay->run(@words);
    is "$status $out", "1 replayed: $counts", 'a real one' or diag $err;
    my @wanted = (
        [5 => 'attribute "route" is required for type "call"'],
        [6 => '4 cells, where the header has 15'],
        [7 => 'a quote stands where CSV has none'],
        [8 => 'the quotes of the line are not those of CSV'],
        [9 => 'attributes is not a JSON object'],
        [10 => 'attributes is not a JSON object'],
        [11 => qr/^invalid JSON: .*twice|^invalid JSON: .*duplicate/],
        [12 => 'the line is not UTF-8 text'],
        [15 => qr/^number with more than/],
    );
    for my $line (split /\n/, text_of("$mine/csv")) {
        my @got = split /\t/, $line;
        my ($number, $reason) = @{ shift @wanted // [0, ''] };
        is $got[0], $number, "line $number";
        ref $reason ? like($got[2], $reason, 'why')
            : is($got[2], $reason, 'why');
    }
    is_deeply \@wanted, [], 'all of them';
    my %row = map { my @cell = split /\t/; ($cell[0] => \@cell) }
        $stack->query('SELECT event_id, extract(epoch FROM ts)::bigint,'
            . ' customer, resource, quantity, source, attributes FROM'
            . " meter.event WHERE tenant = 'csv'");
    is_deeply [@{ $row{c1} }[1 .. 5]],
        [1767323045, 'cu', 're', '2.500000000', 'so'], 'the fields';
    is $row{c1}[6], '{"a.b":1,"code":"007","deep":{"er":[1]},"flag":true,'
        . '"n":1,"route":"/a","type":"t","x \"y\"":"two\r\nlines, and'
        . ' \"quotes\""}', 'the attributes';
    is "$row{c2}[1] $row{c2}[6]", qq($now {"code":"12","route":"/b"}),
        'empty is absent, --text is text';
    is $row{c11}[6], '{"a.b":7,"route":"/b"}', 'quotes make no text';
    ($status, $out) = $replay->run($path, '--rejects', "$mine/csv");
    like $out, qr/^replayed: 0 accepted, 2 duplicates, 1 conflicts/,
        'without --text the content is another one';
    $replay->balance('CSV');
};

subtest 'standard input' => sub {
    my $text = ndjson($replay->events(120, tenant => 'stdin'));
    my ($status, $out, $err) = $replay->run_with({ input => $text }, '-',
        '--format', 'ndjson');
    is "$status $out", "0 replayed: 120 accepted, 0 duplicates, 0 conflicts, 0"
        . " rejected\n", 'from a file' or diag $err;
    is scalar($replay->resumes), 0, 'no resume file';
    my $path = $replay->file('stdin.ndjson', $text . ndjson($replay->events(30,
        tenant => 'stdin')));
    my $words = join ' ', map {"'$_'"} @{ $replay->command('replay', '-', '--format', 'ndjson') };
    for my $more ('', '--dry-run') {
        (my $wait, $out, $err) = Edgemeter::Process::capture(
            command => ['/bin/sh', '-c',
                "(head -n 75 $path; sleep 0.3; tail -n +76 $path)"
                . " | $words $more"], user => $stack->account);
        is $wait, 0, "through a pipe $more" or diag $err;
        like $out, $more ? qr/^dry run: 0 accepted, 150 duplicates/
            : qr/^replayed: 30 accepted, 120 duplicates/, 'counts';
    }
    is $replay->events_of('stdin'), '150 150', 'each once';
    $replay->balance('standard input');
};

$stack->stop;
done_testing;
