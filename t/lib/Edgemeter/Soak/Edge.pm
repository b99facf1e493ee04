package Edgemeter::Soak::Edge;

# Edge.pm - a client of the soak on metered routes (those of EdgeLoad.pm).
#
#   $clients->add("edge $n", sub {
#       send_requests($_[0], number => $n, tenant => ..., rate => 500);
#   });
#
# The routes take turns: event and delta capture, values that come late, and
# ids of the client. Two clients of a pair (0 and 1, 2 and 3 ...) send the same
# ids, each of them until it is answered.
#
# Sums: "answered MODE", "unknown MODE" (sent, and no byte came back), refused
# (503, or no connection), ids (how many were answered), answered.

use strict;
use warnings;
use Exporter 'import';
use Edgemeter::EdgeLoad;
use Edgemeter::Wait qw(now pause);

our @EXPORT_OK = qw(send_requests);

sub send_requests {
    my ($client, %arg) = @_;
    my @modes = @Edgemeter::EdgeLoad::MODES;
    my $pair  = int($arg{number} / 2);
    my ($turn, $ids) = (0, 0);
    my $began = now();
    until ($client->is_over) {
        my $mode = $modes[$turn++ % @modes];
        my $n = $mode eq 'id' ? "p$pair-$ids" : "c$arg{number}-$turn";
        my $key  = $turn % 3;
        my $fate = ask($client,
            "GET /$mode?n=$n&tenant=$arg{tenant}&key=$key HTTP/1.1\r\n"
                . "Host: soak\r\n\r\n");
        while ($mode eq 'id' && $fate ne 'answered') {
            $client->count("$fate id" => 1);
            pause(0.02);
            $client->tell if $client->is_over;
            $fate = ask($client,
                "GET /id?n=$n&tenant=$arg{tenant} HTTP/1.1\r\n"
                    . "Host: soak\r\n\r\n");
        }
        $client->count("$fate $mode" => 1);
        $client->count(answered => 1) if $fate eq 'answered';
        $client->{sums}{ids} = ++$ids if $mode eq 'id';
        my $early = $turn / $arg{rate} - (now() - $began);
        pause($early) if $early > 0;
    }
    return;
}

# answered, unknown, refused; the sums of the latter two are kept as well.
sub ask {
    my ($client, $bytes) = @_;
    my ($answer, $was_sent) = $client->ask($bytes);
    return 'answered' if $answer && $answer->{code} == 200;
    my $fate = !$was_sent || $answer && $answer->{code} == 503 ? 'refused'
        : 'unknown';
    $client->wrong("a metered route: $answer->{code}")
        if $answer && $fate ne 'refused';
    $client->count($fate => 1);
    return $fate;
}

1;
