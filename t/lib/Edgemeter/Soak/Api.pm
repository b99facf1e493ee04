package Edgemeter::Soak::Api;

# Api.pm - clients of the soak that write counters and that read.
#
#   $clients->add('writes', sub {
#       write_counters($_[0], tenant => ..., token => ..., connections => 4);
#   });
#   $clients->add('reads', sub {
#       read_all($_[0], tenant => ..., token => ...);
#   });
#
# Writes: of two increments one has a key, and is repeated until it is
# answered. Sums: keyed (what must be stored), plain and plain_unknown (between
# the one and both together), answered, unknown, refused.
#
# Reads: a counter, its keys and their sum, the usage row, a meter, series,
# search, an event, a bucket, /metrics. A sum that is read never gets smaller.
# Sums: answered, unknown, refused.

use strict;
use warnings;
use Exporter 'import';
use JSON::PP ();
use POSIX ();
use Edgemeter::CounterClients qw(run_clients write_request);
use Edgemeter::Wait qw(pause);

our @EXPORT_OK = qw(write_counters read_all);

my $AT     = '2026-01-01T00:00:00Z';
my $BUCKET = "durationSeconds=0&timestamp=$AT";
my $JSON   = JSON::PP->new->utf8;

# --- writes -------------------------------------------------------------

sub write_counters {
    my ($client, %arg) = @_;
    run_clients(map { writer($client, \%arg, $_) }
            0 .. $arg{connections} - 1);
    return;
}

sub writer {
    my ($client, $arg, $number) = @_;
    my ($write, $wait, $count) = (undef, 0, 0);
    return {
        port  => $client->{port},
        token => $arg->{token},
        next  => sub {
            if ($wait) {
                $wait = 0;
                return 0.02;
            }
            return if $client->is_over && !$write;
            $count++ if !$write;
            $write //= write_request('increment', $arg->{tenant},
                $count % 2 ? 'soak-keyed' : 'soak-plain', 0, $AT,
                amount => 1 + $count % 9,
                $count % 2 ? (key => "soak-$$-$number-$count") : ());
            return { %$write, amount => 1 + $count % 9 };
        },
        told => sub {
            my ($request, $answer) = @_;
            my $fate = write_fate($client, $request, $answer);
            $wait = $fate ne 'answered';
            $write = undef
                if !defined $request->{key} || $fate eq 'answered';
        },
    };
}

sub write_fate {
    my ($client, $request, $answer) = @_;
    my $status = $answer->{status};
    my $amount = $request->{amount};
    if ($status == 200) {
        $client->count(answered => 1,
            (defined $request->{key} ? 'keyed' : 'plain') => $amount);
        return 'answered';
    }
    $client->wrong("$request->{path}: $status $answer->{body}")
        if $status && $status !~ /^(?:429|502|503|504)$/;
    if ($status =~ /^(?:429|503)$/ || !$status && !$answer->{sent}) {
        $client->count(refused => 1);
        return 'refused';
    }
    $client->count(unknown => 1,
        defined $request->{key} ? () : (plain_unknown => $amount));
    return 'unknown';
}

# --- reads --------------------------------------------------------------

sub read_all {
    my ($client, %arg) = @_;
    my %most;
    until ($client->is_over) {
        my $now   = time;
        my $month = POSIX::strftime('%Y-%m', gmtime $now);
        my $from  = POSIX::strftime('%Y-%m-%dT%H:%M:%SZ', gmtime $now - 600);
        my $sum   = get($client, \%arg, '/v1/counters/api_requests?sum=true');
        at_least($client, \%most, 'api_requests', $sum->{sum}) if $sum;
        my $bucket = get($client, \%arg,
            "/api/counters/$arg{tenant}/soak-keyed/get?$BUCKET", 404);
        at_least($client, \%most, 'soak-keyed', $bucket->{net})
            if $bucket && defined $bucket->{net};
        get($client, \%arg, $_, 404) for
            '/v1/counters/api_requests?route=%2Fr1',
            '/v1/counters/edge_requests',
            "/v1/tenants/$arg{tenant}/usage",
            "/v1/usage?metric=api_calls&customer=c1&period=$month";
        get($client, \%arg, $_) for
            '/v1/counters/api_requests?limit=5',
            "/v1/query?metric=requests&interval=10s&from=$from",
            "/v1/query?metric=requests&interval=1m&from=$from&group_by=route",
            "/v1/query?metric=latency_ms&interval=1m&from=$from";
        search($client, \%arg, $from);
        get($client, \%arg, '/metrics') if rand() < 0.2;
    }
    return;
}

sub search {
    my ($client, $arg, $from) = @_;
    my $found = ask($client, $arg, 'POST', '/v1/search',
        qq({"type":"api.request","from":"$from","limit":50,)
            . '"where":{"route":"/r' . int(rand 20) . '"}}') or return;
    my $event = $found->{events}[0] or return;
    get($client, $arg, "/v1/events/$event->{event_id}");
    return;
}

sub at_least {
    my ($client, $most, $name, $value) = @_;
    $client->wrong("$name was $most->{$name}, and is $value now")
        if defined $most->{$name} && $value < $most->{$name};
    $most->{$name} = $value;
    return;
}

sub get {
    my ($client, $arg, $path, @other) = @_;
    return ask($client, $arg, 'GET', $path, undef, @other);
}

# The answer, decoded; none: not answered, or with another code that is fine.
sub ask {
    my ($client, $arg, $method, $path, $body, @other) = @_;
    my $more = defined $body ? "Content-Type: application/json\r\n"
        . 'Content-Length: ' . length($body) . "\r\n" : '';
    my ($answer, $was_sent) = $client->ask("$method $path HTTP/1.1\r\n"
            . "Host: soak\r\nAuthorization: Bearer $arg->{token}\r\n"
            . "$more\r\n" . ($body // ''), $method);
    my $code = $answer ? $answer->{code} : 0;
    if ($code == 200 || grep { $_ == $code } @other) {
        $client->count(answered => 1);
        return $code == 200 && $path ne '/metrics'
            ? $JSON->decode($answer->{body}) : undef;
    }
    if ($code && $code !~ /^(?:429|502|503|504)$/) {
        $client->wrong("$path: $code $answer->{body}");
    }
    $client->count(($was_sent && $code != 429 && $code != 503 ? 'unknown'
            : 'refused') => 1);
    pause(0.02);
    return;
}

1;
