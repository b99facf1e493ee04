#!/usr/bin/perl

# 106-counters-tenants.t - a tenant that exists and one that does not are the
# same to whoever is neither: the same bytes, the same work, the same time. So
# are tokens that are wrong in one way or another.
#
# Time: requests for either alternate, and the median of their differences is
# held against what one look into the database costs here and now, which is
# measured in between. Work: the server logs every statement, and neither of
# the two has any.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use IO::Socket::INET;
use Test::More;
use Edgemeter::Counters;
use Edgemeter::SocketClient;
use Edgemeter::Stack;
use Edgemeter::Wait qw(now);

use constant ROUNDS => 150;    # a multiple of 6 is every order equally often

my @WRITES = qw(increment decrement incrementSync decrementSync set);
my @READS  = qw(get sumRange);
my @ALL    = (@WRITES, @READS);
my $NONE   = q({"error":"Counter doesn't exist for the specified bucket"});

# One of them has counters and keys, the other one has never been heard of.
my ($FOREIGN, $UNKNOWN) = qw(globex nobody);

my $stack = Edgemeter::Stack->for_test(
    settings => { log_statement => 'all', log_line_prefix => '[%a] ' },
    yaml     => { limits => '{ tokenCacheTtl: 30s }' },
)->start;
my %counters = map {
    $_ => Edgemeter::Counters->new($stack->http('acme'), $_)
} 'acme', $FOREIGN, $UNKNOWN;
my $globex = Edgemeter::Counters->new($stack->http('globex'), 'globex');

sub needs { return $_[0] eq 'set' ? (targetValue => 1) : () }

is $globex->send('increment', 'hits',
    header => { 'idempotency-key' => 'used' })->{status}, 200,
    'the one that is there has a counter and a key';
is $globex->send('set', 'quota', targetValue => 5)->{status}, 200, 'and two';

# --- bytes --------------------------------------------------------------

# All of an answer but its Date, as it comes out of nginx.
sub bytes {
    my ($tenant, $verb, $name, @headers) = @_;
    my $counters = $counters{$tenant};
    my $is_read  = $verb =~ /^(?:get|sumRange)$/;
    my $body = $is_read ? '' : Edgemeter::Counters::body_of(needs($verb));
    my $socket = IO::Socket::INET->new(
        PeerAddr => '127.0.0.1', PeerPort => $stack->port) or die $!;
    syswrite $socket, join "\r\n",
        Edgemeter::Counters::method_of($verb) . ' '
        . ($is_read ? $counters->read_path($verb, $name)
            : $counters->path($verb, $name)) . ' HTTP/1.1',
        'Host: localhost', 'Connection: close',
        'Authorization: Bearer ' . $stack->token('acme'), @headers,
        $is_read ? () : ('Content-Type: application/json',
            'Content-Length: ' . length $body), '', $body;
    my $answer = do { local $/; <$socket> };
    $answer =~ s/^Date: [^\r]+\r\n//m or die "no Date: $answer";
    return $answer;
}

subtest 'the same bytes' => sub {
    for my $verb (@ALL) {
        for my $case (['hits'], ['hits', 'Idempotency-Key: used'], ['quota'],
            ['none'], ['a%20b'])
        {
            my $foreign = bytes($FOREIGN, $verb, @$case);
            is bytes($UNKNOWN, $verb, @$case), $foreign, "$verb: @$case";
            like $foreign, qr/^HTTP\/1\.1 404 .*\r\n\r\n\Q$NONE\E$/s, 'a 404';
        }
    }
    is bytes('acme', 'get', 'none'), bytes($FOREIGN, 'get', 'hits'),
        'and those of a bucket of our own that is not there';
    my $none = bytes($UNKNOWN, 'get', 'hits');
    unlike $none, qr/globex|nobody|acme/, 'no name in it';
};

# --- work ---------------------------------------------------------------

my $client = Edgemeter::SocketClient->new($stack->socket) or die $!;

# The request as bytes, so that no time goes into making it.
sub request {
    my ($tenant, $verb, $name, $token) = @_;
    my $counters = $counters{$tenant};
    my ($path, $args) = split /\?/,
        $verb =~ /^(?:get|sumRange)$/ ? $counters->read_path($verb, $name)
        : $counters->path($verb, $name);
    return Edgemeter::SocketClient::encode(
        method => Edgemeter::Counters::method_of($verb),
        path   => $path, args => $args,
        token  => $token // $stack->token('acme'),
        defined $args ? () : (type => 'application/json',
            body => Edgemeter::Counters::body_of(needs($verb))));
}

sub ask {
    my ($bytes) = @_;
    $client->send($bytes);
    my $got = $client->receive or die "no answer\n";
    return $got->{status};
}

# Statements that the server has seen from connections of requests. The lane
# of events and the sweep have some of their own all the time.
sub statements {
    my $count = () = $stack->log('postgres')
        =~ /^\[meterd (?:bucket-\d|read\S*)\] LOG:  (?:execute|statement)/mg;
    return $count;
}

subtest 'the same work: none' => sub {
    for my $verb (@ALL) {
        my @requests = map { request($_, $verb, 'hits') } $FOREIGN, $UNKNOWN;
        my ($before, $after);

        # Once more where the token was forgotten just then.
        for (1 .. 3) {
            $before = statements();
            my @status = map { ask($_), ask($_) } @requests;
            is "@status", '404 404 404 404', "$verb: 404";
            $after = statements();
            last if $after == $before;
        }
        is $after, $before, "$verb: no statement";
        ask(request('acme', $verb, 'own'));
        cmp_ok statements(), '>', $after, 'where one of our own has some';
    }
    is $stack->query('SELECT count(*) FROM meter.bucket_counter'
            . " WHERE tenant = '$UNKNOWN'"), 0, 'nothing was made';
    is $stack->query('SELECT added FROM meter.bucket_counter'
            . " WHERE tenant = '$FOREIGN' AND name = 'hits'"), 1,
        'nor changed';
};

# --- time ---------------------------------------------------------------

sub median {
    my @sorted = sort { $a <=> $b } @_;
    return $sorted[$#sorted / 2];
}

# Seconds of each of the requests, by turns, every one first as often.
sub seconds_of {
    my ($rounds, @requests) = @_;
    my @took = map { [] } @requests;
    for my $round (1 .. $rounds) {
        my @turn = 0 .. $#requests;
        push @turn, shift @turn for 1 .. $round % @turn;
        @turn = reverse @turn if $round % 2;
        for my $i (@turn) {
            my $begun = now();
            ask($requests[$i]);
            push @{ $took[$i] }, now() - $begun;
        }
    }
    return @took;
}

# [foreign, unknown, one more look]: differences in microseconds.
sub compare {
    my ($foreign, $unknown, $lookup) = seconds_of(ROUNDS, @_);
    my $differ = median(map { $foreign->[$_] - $unknown->[$_] }
        0 .. $#$foreign);
    my $look = median(map { $lookup->[$_] - $unknown->[$_] } 0 .. $#$lookup);
    return map { 1e6 * $_ } $differ, $look;
}

# As close as chance lets two of the same be, and one look is far from that.
# Up to three times: a machine that is busy with something else may spoil one.
sub same_time {
    my ($foreign, $unknown) = @_;
    my $lookup = request('acme', 'get', 'none');
    my ($differ, $look);
    for (1 .. 3) {
        ($differ, $look) = compare($foreign, $unknown, $lookup);
        last if $look > 0 && abs $differ < $look / 4;
    }
    return ($look > 0 && abs $differ < $look / 4,
        sprintf '%.1f us apart, a look is %.1f us', $differ, $look);
}

subtest 'the same time' => sub {
    for my $verb (@ALL) {
        my ($same, $what) = same_time(map { request($_, $verb, 'hits') }
            $FOREIGN, $UNKNOWN);
        ok $same, "$verb: $what";
    }
    my ($same, $what) = same_time(request('acme', 'get', 'none'),
        request($UNKNOWN, 'get', 'none'));
    ok !$same, "a look would be seen: $what";
};

# Which of its letters is wrong, or that nobody has such a token, is nobody's
# business either.
subtest 'tokens that are wrong' => sub {
    my ($id, $secret) = $stack->token('acme') =~ /^em_([^_]+)_(.+)$/;
    my $other = sub { return $_[0] =~ tr/A-Za-z/B-ZAb-za/r };
    my %token = (
        'the first letter' => "em_${id}_" . $other->($secret =~ /^(.)/)
            . substr($secret, 1),
        'all letters' => "em_${id}_" . $other->($secret),
        'the id'      => 'em_' . $other->($id) . "_$secret",
    );
    my $right = $stack->token('acme');
    $token{$_} eq $right and delete $token{$_} for keys %token;
    my %request = map { $_ => request('acme', 'get', 'hits', $token{$_}) }
        keys %token;
    is ask($request{$_}), 401, "$_: 401" for sort keys %request;
    for my $what (sort grep { $_ ne 'all letters' } keys %request) {
        my ($same, $time) = same_time($request{$what},
            $request{'all letters'});
        ok $same, "$what: $time";
    }
    ok ask($request{$_}) == 401, "$_: still 401" for sort keys %request;
};

$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
done_testing;
