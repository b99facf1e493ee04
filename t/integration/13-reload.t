#!/usr/bin/perl

# 13-reload.t - SIGHUP under load: good rules are swapped in, bad ones
# change nothing, no request is lost.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use File::Temp ();
use JSON::PP ();
use POSIX ();
use Test::More;
use Edgemeter::Place;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until poll_until);

my $directory = File::Temp::tempdir('em-rules-XXXXXX', TMPDIR => 1,
    CLEANUP => 1);
chmod 0755, $directory;
my $rules = "$directory/rules.yaml";

sub write_rules {
    my ($text) = @_;
    Edgemeter::Place::replace_file($rules, 0644, undef, $text);
    return;
}

my $base = <<'YAML';
events:
  - { type: account.connected }
counters:
  - counterName: connects_total
    mode: persistent
    dimensions: [masterAccountId]
    rules: [ { on: account.connected, op: increment } ]
    idempotency: { requireEventId: true, scope: globalEventId }
YAML
write_rules($base);
my $stack = Edgemeter::Stack->for_test(rules => $rules)->start;
my $http  = $stack->http('acme');

sub metric {
    my ($name) = @_;
    my $text = $http->get('/metrics')->{body};
    return $text =~ /^$name (-?\d+)$/m ? $1 : undef;
}

# Sends the signal and waits until meterd has decided.
sub reload {
    my ($text) = @_;
    my $sum = sub {
        metric('edgemeter_config_reloads_total')
            + metric('edgemeter_config_errors_total');
    };
    my $before = $sum->();
    my $good   = metric('edgemeter_config_reloads_total');
    write_rules($text);
    kill 'HUP', $stack->part_pid('meterd');
    wait_until { $sum->() > $before } 10, 'meterd has reloaded';
    return metric('edgemeter_config_reloads_total') > $good;
}

sub post {
    my ($id, $type) = @_;
    return $http->post('/v1/events', {
        event_id => $id, type => $type, ts => '2026-09-01T12:00:00Z',
        attributes => { masterAccountId => 'm' }
    })->{json}{results}[0]{verdict};
}

subtest 'good rules' => sub {
    is post('g1', 'order.placed'), 'rejected', 'a type nobody declared';
    my $version = metric('edgemeter_config_version');
    ok reload($base =~ s/events:\n/events:\n  - { type: order.placed }\n/r),
        'accepted';
    isnt metric('edgemeter_config_version'), $version, 'another version';
    is post('g1', 'order.placed'), 'accepted', 'the new type counts';
    ok reload($base), 'back';
    is metric('edgemeter_config_version'), $version, 'the old version again';
    is post('g2', 'order.placed'), 'rejected', 'and the type is gone';
};

subtest 'bad rules' => sub {
    my $version = metric('edgemeter_config_version');
    ok !reload("$base\nevnets: []\n"), 'refused';
    is metric('edgemeter_config_version'), $version, 'the old rules stay';
    is post('b1', 'account.connected'), 'accepted', 'and work';
    my ($line) = grep {/reload refused/} split /\n/, $stack->log('meterd');
    my $json = JSON::PP::decode_json($line // '{}');
    is $json->{file}, $rules, 'the log names the file';
    is $json->{line}, 10, 'the line';
    is $json->{column}, 1, 'the column';
    like $json->{reason}, qr/evnets/, 'and what is wrong';

    ok !reload("events: [\n"), 'not even YAML';
    is post('b2', 'account.connected'), 'accepted', 'still working';
};

subtest 'what needs a restart' => sub {
    my $before = () = $stack->log('meterd') =~ /needs a restart/g;
    ok !reload("limits: { queueEvents: 7 }\n$base"), 'refused as a whole';
    my @lines = grep {/needs a restart/} split /\n/, $stack->log('meterd');
    is scalar @lines, $before + 1, 'said once';
    like $lines[-1], qr/limits\.queueEvents/, 'the option is named';
    ok reload($base), 'without it: fine';
};

subtest 'under load' => sub {
    my @children;
    my $stop = "$directory/stop";
    for my $child (1 .. 4) {
        my $pid = fork // die "fork: $!";
        if ($pid == 0) {
            my $own = $stack->http('acme');
            my ($sent, $bad) = (0, 0);
            until (-e $stop) {
                $sent++;
                my $got = $own->post('/v1/events', [map {
                    {   event_id => "load-$child-$sent-$_",
                        type => 'account.connected',
                        ts => '2026-09-01T12:00:00Z',
                        attributes => { masterAccountId => 'load' }
                    }
                } 1 .. 5]);
                $bad++ unless $got->{status} == 200
                    && $got->{json}{accepted} == 5;
            }
            open my $out, '>', "$directory/child-$child" or POSIX::_exit(2);
            print {$out} "$sent $bad\n";
            close $out;
            POSIX::_exit(0);
        }
        push @children, $pid;
    }
    my ($good, $bad, $expect) = (0, 0, 0);
    my $accepted = metric('edgemeter_events_accepted_total');
    for (my $round = 1; ; $round++) {
        last if $round > 40
            && metric('edgemeter_events_accepted_total') > $accepted + 2000;
        my $fine = $round % 3;
        $expect++ if $fine;
        reload($fine ? "$base\ndefaults: { lateness: ${round}h }\n"
                     : "$base\nbroken: $round\n") ? $good++ : $bad++;
    }
    open my $flag, '>', $stop or die $!;
    close $flag;
    waitpid $_, 0 for @children;
    is $good, $expect, "each good file was taken ($good)";
    cmp_ok $bad, '>=', 13, "each bad one refused ($bad)";
    my ($sent, $failed) = (0, 0);
    for my $child (1 .. 4) {
        open my $in, '<', "$directory/child-$child" or die $!;
        my ($n, $f) = split ' ', <$in>;
        $sent += $n;
        $failed += $f;
    }
    cmp_ok $sent, '>', 400, "there was load ($sent requests)";
    is $failed, 0, 'no request failed';
    is $http->get('/v1/counters/connects_total', masterAccountId => 'load')
        ->{json}{value}, $sent * 5, 'every event counted once';
};

$stack->stop;
is $stack->part('meterd')->status, 0, 'meterd ended well';
done_testing;
