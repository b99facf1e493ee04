#!/usr/bin/perl

# 39-outages.t - why there is no database, in the log: at warn when a reason
# is new, one line for all connections, and at info when all are back. While
# nothing can be committed, edgemeter_database_up is 0, though the connections
# may stand.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use JSON::PP ();
use Test::More;
use Edgemeter::Node;
use Edgemeter::Stack;
use Edgemeter::Url;
use Edgemeter::Wait qw(wait_until poll_until);

my $secret = 'dont-log-this';
my $stack  = Edgemeter::Stack->for_test;
$stack->prepare;
$stack->start_database;
$stack->migrate;
$stack->make_tokens;
my $cluster = $stack->cluster;
my $sockets = Edgemeter::Url::encode($cluster->{sockets});
my $node    = Edgemeter::Node->start($stack, name => 'outages', yaml => {
    database => "'postgresql://meterd:$secret\@$sockets/edgemeter'"
})->wait_ready;

# What was logged since, as objects.
my $seen = 0;

sub lines {
    return map { JSON::PP::decode_json($_) }
        grep {/^\{.*\}$/} split /\n/, substr $node->log, $seen;
}

# The lines of the connections that give such a reason.
sub reasons {
    my ($why) = @_;
    return grep {
        $_->{subsystem} eq 'store' && $_->{level} eq 'warn'
            && ($_->{reason} // '') =~ $why
    } lines();
}

sub back {
    return grep {
        $_->{level} eq 'info'
            && $_->{message} eq 'all database connections are up again'
    } lines();
}

sub up  { return $node->metric('edgemeter_database_up') }
sub out { return $node->metric('edgemeter_database_connections_out') }

sub hba {
    my ($first) = @_;
    $cluster->{hba} = "$first\nlocal all all peer map=edgemeter\n";
    $cluster->write('pg_hba.conf', $cluster->{hba});
    $stack->query('SELECT pg_reload_conf()');
    return;
}

sub end_all {
    $stack->query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        . " WHERE usename = 'meterd'");
    return;
}

# All connections have met it, most of them more than once.
sub told_once {
    my ($why, $name) = @_;
    ok poll_until(sub { reasons($why) }, 10), "the log says why: $name"
        or diag $node->log;
    my $tries = $stack->log('postgres') =~ tr/\n//;
    wait_until { $stack->log('postgres') =~ tr/\n// > $tries + 10 } 20,
        'they try again';
    is scalar(reasons($why)), 1, 'one line for all connections'
        or diag join "\n", map { $_->{reason} } reasons($why);
    return;
}

sub back_ok {
    ok poll_until(sub { back() }, 10), 'the log says that they are back';
    is out(), 0, 'none is out';
    ok poll_until(sub { up() }, 5), 'edgemeter_database_up is 1';
    is scalar(back()), 1, 'which is said once';
    return;
}

subtest 'a reason, and then another one' => sub {
    $seen = length $node->log;
    $stack->query('ALTER ROLE meterd NOLOGIN');
    end_all();
    told_once(qr/"meterd" is not permitted to log in/, 'NOLOGIN');
    is up(), 0, 'edgemeter_database_up is 0';
    cmp_ok out(), '>=', 10, 'connections are out';
    hba('local all meterd reject');
    told_once(qr/pg_hba\.conf rejects connection/, 'pg_hba.conf');
    hba('local all meterd scram-sha-256');
    told_once(qr/password authentication failed for user "meterd"/,
        'password');
    is scalar(back()), 0, 'none of them was back';
    $stack->query('ALTER ROLE meterd LOGIN');
    hba('');
    $cluster->stop('fast');
    ok poll_until(sub { reasons(qr/No such file|refused/) }, 10),
        'the log says that nobody is there' or diag $node->log;
    $cluster->start;
    back_ok();
    cmp_ok scalar(reasons(qr/./)), '<', 12, 'in a few lines';
};

subtest 'too many connections of the role' => sub {
    $seen = length $node->log;
    $stack->query('ALTER ROLE meterd CONNECTION LIMIT 3');
    end_all();
    told_once(qr/too many connections for role "meterd"/, 'the limit');
    cmp_ok out(), '>=', 7, 'connections are out';
    $stack->query('ALTER ROLE meterd CONNECTION LIMIT -1');
    back_ok();
};

# Connections stand, and no event comes that would show it.
subtest 'the database takes no commits' => sub {
    $seen = length $node->log;
    my $losses = $node->metric('edgemeter_database_losses_total');
    $stack->query('ALTER SYSTEM SET default_transaction_read_only = on');
    $stack->query('SELECT pg_reload_conf()');
    ok poll_until(sub { !up() }, 15), 'edgemeter_database_up is 0';
    is $node->ask(path => '/readyz')->{status}, 503, 'not ready';
    my ($line) = grep { ($_->{sqlstate} // '') eq '25006' } lines();
    is $line->{level}, 'warn', 'the log says why';
    like $line->{reason} // '', qr/read-only/, 'in words';
    is $node->metric('edgemeter_database_losses_total'), $losses,
        'no connection was lost';
    $stack->query('SET default_transaction_read_only = off;'
        . ' ALTER SYSTEM RESET default_transaction_read_only');
    $stack->query('SELECT pg_reload_conf()');
    ok poll_until(sub { up() }, 15), 'it is 1 again';
    is $node->ask(path => '/readyz')->{status}, 200, 'ready';
};

unlike $node->log, qr/$secret/, 'the password is not logged';
ok $node->process->stop('TERM', 15), 'ends';
is $node->process->status, 0, 'with status 0';
done_testing;
