#!/usr/bin/perl

# 62-link-crash.t - meterd dies while a ring's records are on their way, at
# each step; the ring comes again and everything is there once, with one
# verdict, and no replay in the audit.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::LinkClient qw(event delta lossnote);
use Edgemeter::Node;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until);

# In order; what is known of the records when the process is gone.
my @points = (
    [after_read         => 'no'],
    [link_after_data    => 'no'],
    [before_begin       => 'no'],
    [after_ledger       => 'no'],
    [before_commit      => 'no'],
    [after_commit_sent  => 'maybe'],
    [after_commit       => 'yes'],
    [before_answer      => 'yes'],
    [link_before_result => 'yes'],
    [link_after_result  => 'yes'],
);

my $rules = <<'YAML';
events:
  - { type: api.request, required: [route] }
  - { type: api.delta, delta: true }
YAML

my $stack = Edgemeter::Stack->for_test(rules => \$rules);
$stack->start_schema;

sub start {
    my (%env) = @_;
    return Edgemeter::Node->start($stack, name => 'a', env => \%env)
        ->wait_ready;
}

# Opens the ring's link on a meterd; the hello itself comes to some points.
sub open_ring {
    my ($node, $session) = @_;
    my $link = Edgemeter::LinkClient->new($node->socket, session => $session)
        or return;
    my $ack = $link->hello(head => 6) or return;
    return ($link, $ack);
}

sub records {
    my ($name) = @_;
    my %id = (event_id => $name);
    return (event(), event(%id), event(%id), lossnote(count => 3),
        delta(type => 'api.delta', count => 5, quantity => '5'));
}

sub summary {
    my ($session, $name) = @_;
    my $uuid = Edgemeter::LinkClient::uuid($session);
    return scalar $stack->query(<<"SQL");
SELECT (SELECT count(*) FROM meter.event WHERE session = '$uuid'),
    (SELECT sum(count) FROM meter.event WHERE session = '$uuid'),
    (SELECT count(*) FROM meter.duplicate_audit WHERE event_id = '$name'),
    (SELECT sum(count) FROM meter.edge_loss WHERE session = '$uuid'),
    (SELECT concat_ws(' ', last_seq, accepted, duplicate, lost)
        FROM meter.edge_session WHERE session = '$uuid')
SQL
}

my $whole = join "\t", 3, 7, 1, 3, '5 7 1 3';

# The hello comes to some points first: they are met a second time.
for my $point (@points) {
    my ($where, $committed) = @$point;
    my %hits = map { $_ => 2 } qw(before_begin before_commit
        after_commit_sent after_commit before_answer);
    my $name    = "id-$where";
    my $session = Edgemeter::LinkClient->session;

    my $node = start(METERD_CRASH_POINT => "$where:" . ($hits{$where} // 1));
    my ($link) = open_ring($node, $session);
    ok $link, "$where: the ring is open";
    $link->data(1, records($name));
    wait_until { !$node->process->alive } 10, 'meterd is gone';
    my $result = $link->receive;
    is $result && $result->{durable_upto}, $where eq 'link_after_result'
        ? 5 : undef, 'no result, or a true one';

    $node = start();
    my ($again, $ack) = open_ring($node, $session);
    my $last = $ack->{last_seq};
    if ($committed eq 'maybe') {
        ok $last == 0 || $last == 5, 'all or nothing';
    }
    else {
        is $last, $committed eq 'yes' ? 5 : 0, "committed: $committed";
    }
    is_deeply $ack->{verdicts} // [0, 0, 0, 0],
        $last ? [7, 1, 0, 0] : [0, 0, 0, 0], 'with its verdicts';
    if ($last == 0) {
        $again->data(1, records($name));
        ok $again->codes_upto(5), 'they come again';
    }
    is summary($session, $name), $whole, "$where: everything once";
    $node->process->stop('TERM', 15);
}

is $stack->query('SELECT sum(last) = (SELECT count(*) FROM meter.event)'
        . ' FROM meter.writer_seq'), 't', 'numbers are dense';
$stack->stop;
done_testing;
