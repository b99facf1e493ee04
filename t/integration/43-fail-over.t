#!/usr/bin/perl

# 43-fail-over.t - more than one host in the URL: meterd finds the primary,
# whatever target_session_attrs says, past a standby and past a host that is
# silent.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use IO::Socket::UNIX;
use Test::More;
use Edgemeter::Cluster;
use Edgemeter::Node;
use Edgemeter::Stack;
use Edgemeter::Url;
use Edgemeter::Wait qw(wait_until poll_until);

my $stack = Edgemeter::Stack->for_test;
$stack->prepare;
$stack->start_database;
$stack->migrate;
$stack->make_tokens;
my $cluster = $stack->cluster;
my $scratch = $stack->place->path('tmp');

# Accepts connections, and says nothing.
mkdir "$scratch/silent" or die $!;
my $silent = IO::Socket::UNIX->new(
    Local => "$scratch/silent/.s.PGSQL.5432", Listen => 64) or die $!;
chmod 0777, "$scratch/silent/.s.PGSQL.5432";

# A copy that stays a standby until it is promoted.
sub make_standby {
    $cluster->stop('fast');
    my $data = "$cluster->{data}.standby";
    system('cp', '-a', $cluster->{data}, $data) == 0 or die "cp failed\n";
    $cluster->start;
    open my $signal, '>', "$data/standby.signal" or die $!;
    close $signal;
    mkdir "$scratch/standby" or die $!;
    $stack->account->own("$data/standby.signal", "$scratch/standby");
    return Edgemeter::Cluster->new(
        data    => $data,
        sockets => "$scratch/standby",
        log     => "$scratch/standby.log",
        account => $stack->account,
    );
}

# The option's value: these directories in turn.
sub hosts {
    my ($more, @directories) = @_;
    return q('postgresql://meterd@)
        . join(',', map { Edgemeter::Url::encode($_) } @directories)
        . "/edgemeter$more'";
}

sub start {
    my ($name, $database, %yaml) = @_;
    return Edgemeter::Node->start($stack, name => $name,
        yaml => { database => $database, %yaml });
}

sub ready { return $_[0]->ask(path => '/readyz')->{status} == 200 }

my $standby = make_standby();
$standby->start;

subtest 'target_session_attrs' => sub {
    my @good = map {
        start($_, hosts("?target_session_attrs=$_", $cluster->{sockets}))
    } qw(any read-write primary);
    my @bad = map {
        start($_, hosts("?target_session_attrs=$_", $cluster->{sockets}))
    } qw(standby read-only prefer-standby);
    for my $node (@good) {
        ok poll_until(sub { ready($node) }, 20), "$node->{name}: ready"
            or diag $node->log;
        $node->discard;
    }
    for my $node (@bad) {
        ok poll_until(sub { !$node->process->alive }, 10),
            "$node->{name}: ends";
        like $node->log, qr/refused to run.*must be any, read-write or primary/,
            'and says what is accepted';
    }
};

subtest 'hosts that do not serve come first' => sub {
    my $silent_first = start('silent',
        hosts('?connect_timeout=2', "$scratch/silent", $cluster->{sockets}));
    my $standby_first = start('standby-first',
        hosts('', $standby->{sockets}, $cluster->{sockets}));
    my $read_write = start('standby-attrs',
        hosts('?target_session_attrs=read-write', $standby->{sockets},
            $cluster->{sockets}));
    for my $node ($silent_first, $standby_first, $read_write) {
        ok poll_until(sub { ready($node) }, 20), "$node->{name}: ready"
            or diag $node->log;
    }
    unlike $standby_first->log, qr/"level":"warn".*standby/,
        'a standby in front is no trouble';

    # Back to the one that served, without asking the silent one first.
    $stack->query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        . " WHERE application_name = 'meterd lane-0'");
    wait_until { $silent_first->log =~ /up again/ } 10, 'back';
    unlike $silent_first->log, qr/no answer within/,
        'without waiting for the silent one again';
    $_->discard for $silent_first, $standby_first, $read_write;

    my $none = start('none',
        hosts('?connect_timeout=2', "$scratch/silent", $standby->{sockets}));
    ok poll_until(sub {
        $none->log =~ /no answer within 2 s; the server is a standby/
    }, 15), 'none serves: the log has the reason of each'
        or diag $none->log;
};

$standby->stop('fast');
done_testing;
