package Edgemeter::Soak::Events;

# Events.pm - a client of the soak that posts batches of events, as fast as
# they are answered.
#
#   $clients->add("events $n", sub {
#       send_events($_[0], number => $n, tenant => ..., token => ...,
#           rate => 0);
#   });
#
# Its events are numbered from 0 without a gap, and their ids hold the number:
# time-ordered UUIDs, random UUIDs or other texts, by the client's number. A
# batch that gets no answer is sent again until it has one. In between known
# batches are repeated, and some events come with the id of another. Every
# answer can be foretold: that of a new batch, unless a try of it was not
# answered before, and that of the others always.
#
# Sums: accepted (as foretold, unknown tries included), duplicates, conflicts,
# sent (events that were answered), audit_most (events of known ids in tries
# without an answer), refused, unknown (batches).

use strict;
use warnings;
use Compress::Zlib ();
use Exporter 'import';
use POSIX ();
use Time::HiRes ();
use Edgemeter::Wait qw(now pause);

our @EXPORT_OK = qw(send_events);

use constant BATCH     => 500;
use constant CONFLICTS => 20;
use constant KNOWN     => 16;    # batches that are remembered
use constant ROUTES    => 20;

my %TYPE = (json => 'application/json', lines => 'application/x-ndjson');

sub send_events {
    my ($client, %arg) = @_;
    my ($number, @known) = (0);
    my $began = now();
    until ($client->is_over) {
        my $draw = @known < KNOWN ? 0 : rand;
        if ($draw < 0.7) {
            my @events = new_batch($arg{number}, $number);
            deliver($client, \%arg, 'new', @events);
            $number += @events;
            $client->{sums}{numbers} = $number;
            push @known, \@events;
            shift @known if @known > KNOWN;
        }
        elsif ($draw < 0.95) {
            deliver($client, \%arg, 'known', @{ $known[rand @known] });
        }
        else {
            my @some = @{ $known[rand @known] }[0 .. CONFLICTS - 1];
            s/"quantity":1\b/"quantity":7/ for @some;
            deliver($client, \%arg, 'other', @some);
        }
        if ($arg{rate}) {
            my $early = $client->{sums}{sent} / $arg{rate} - (now() - $began);
            pause($early) if $early > 0;
        }
    }
    return;
}

sub id_of {
    my ($client, $number, $ms) = @_;
    return "soak-$client-$number" if $client % 3 == 2;
    return sprintf '%08x-%04x-4%03x-8%03x-%02x%010x', rand 2**32, rand 2**16,
        rand 2**12, rand 2**12, $client, $number
        if $client % 3 == 1;
    return sprintf '%08x-%04x-7%03x-8%03x-%02x%010x', $ms >> 16,
        $ms & 0xffff, $number & 0xfff, rand 2**12, $client, $number;
}

# One batch in fifty is an hour late.
sub new_batch {
    my ($client, $number) = @_;
    my $time = Time::HiRes::time();
    my $ms   = int($time * 1000);
    my $ts   = POSIX::strftime('%Y-%m-%dT%H:%M:%S',
        gmtime($time - (rand(50) < 1 ? 3600 : 0)))
        . sprintf '.%03dZ', $ms % 1000;
    return map {
        my $n = $number + $_;
        sprintf '{"event_id":"%s","type":"api.request","ts":"%s",'
            . '"customer":"c%d","quantity":1,"attributes":'
            . '{"route":"/r%d","status":%d,"latencyMs":%d}}',
            id_of($client, $n, $ms), $ts, $n % 5, $n % ROUTES,
            $n % 7 ? 200 : 404, $n % 900;
    } 0 .. BATCH - 1;
}

sub request {
    my ($arg, @events) = @_;
    my $format = rand() < 0.5 ? 'json' : 'lines';
    my $body = $format eq 'json' ? '[' . join(',', @events) . ']'
        : join("\n", @events) . "\n";
    my $encoding = '';
    if (rand(16) < 1) {
        $body     = Compress::Zlib::memGzip($body);
        $encoding = "Content-Encoding: gzip\r\n";
    }
    return "POST /v1/events HTTP/1.1\r\nHost: soak\r\n"
        . "Authorization: Bearer $arg->{token}\r\n$encoding"
        . "Content-Type: $TYPE{$format}\r\nContent-Length: "
        . length($body) . "\r\n\r\n$body";
}

# Until it is answered.
sub deliver {
    my ($client, $arg, $sort, @events) = @_;
    my $unknown = 0;
    while (1) {
        my ($answer, $was_sent) = $client->ask(request($arg, @events));
        my $code = $answer ? $answer->{code} : 0;
        if ($code == 200) {
            check($client, $sort, $unknown, $answer->{body}, @events);
            return;
        }
        if ($code == 429 || !$was_sent) {
            $client->count(refused => 1);
        }
        elsif (!$code || $code =~ /^50[234]$/) {
            $unknown++;
            $client->count(unknown => 1, audit_most => scalar @events);
        }
        else {
            $client->wrong("$sort: $code $answer->{body}");
            return;
        }
        $client->tell if $client->is_over;
        pause(0.02);
    }
}

sub check {
    my ($client, $sort, $unknown, $body, @events) = @_;
    my ($accepted, $duplicates, $conflicts, $rejected) = $body =~
        /^\{"accepted":(\d+),"duplicates":(\d+),"conflicts":(\d+),
            "rejected":(\d+),/x;
    if (!defined $rejected) {
        $client->wrong("no sums in $body");
        return;
    }
    my $count = @events;
    my $is_right
        = $sort eq 'known' ? $duplicates == $count
        : $sort eq 'other' ? $conflicts == $count
        : $unknown         ? $accepted + $duplicates == $count
        : $accepted == $count;
    $client->wrong(
        "$sort, $count events, $unknown tries without an answer: $accepted"
            . " accepted, $duplicates duplicates, $conflicts conflicts,"
            . " $rejected rejected")
        if !$is_right;
    $client->count(
        sent       => $count,
        answers    => 1,
        accepted   => $sort eq 'new' ? $count : 0,
        duplicates => $duplicates,
        conflicts  => $conflicts,
    );
    return;
}

1;
