#!/usr/bin/perl

# 44-pooler.t - pgbouncer between meterd and PostgreSQL: with pool_mode
# session all is well; with transaction or statement, where the next
# transaction has another session, meterd refuses to run and says why.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use Test::More;
use Edgemeter::Node;
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Url;
use Edgemeter::Verify qw(verify_books);
use Edgemeter::Wait qw(wait_until poll_until);

my $stack = Edgemeter::Stack->for_test;
$stack->prepare;
$stack->start_database;
$stack->migrate;
$stack->make_tokens;
my $scratch = $stack->place->path('tmp');

# The process, and the URL of meterd's role through it.
sub pooler {
    my ($mode) = @_;
    my $place = "$scratch/$mode-pool";
    mkdir $place, 0755 or die $!;
    $stack->account->own($place);
    my %file = (
        'users.txt'     => qq("meterd" ""\n),
        'pgbouncer.ini' => join("\n", '[databases]',
            'edgemeter = host=' . $stack->cluster->{sockets},
            '[pgbouncer]', 'listen_addr =', 'listen_port = 5432',
            "unix_socket_dir = $place", 'auth_type = trust',
            "auth_file = $place/users.txt", "pool_mode = $mode",
            'default_pool_size = 40', ''),
    );
    Edgemeter::Place::replace_file("$place/$_", 0644, $stack->account,
        $file{$_}) for keys %file;
    my $process = Edgemeter::Process->spawn(
        name    => "$mode-pool",
        log     => "$place/log",
        user    => $stack->account,
        command => ['/usr/sbin/pgbouncer', "$place/pgbouncer.ini"],
    );
    wait_until { -S "$place/.s.PGSQL.5432" } 10, 'pgbouncer listens';
    my $host = Edgemeter::Url::encode($place);
    return ($process, "'postgresql://meterd\@$host/edgemeter'");
}

for my $mode (qw(session transaction statement)) {
    subtest $mode => sub {
        my ($pooler, $url) = pooler($mode);
        my $node = Edgemeter::Node->start($stack, name => $mode,
            yaml => { database => $url });
        if ($mode ne 'session') {
            ok poll_until(sub { !$node->process->alive }, 20), 'meterd ends'
                or diag $node->log;
            like $node->log, qr/refused to run.*needs pool_mode = session/,
                'and says what it needs' or diag $node->log;
        }
        else {
            ok poll_until(
                sub { $node->ask(path => '/readyz')->{status} == 200 }, 20),
                'ready' or diag $node->log;
            is $node->post('acme', [map {
                {   event_id => "pooled-$_", type => 'api.request',
                    ts => '2026-09-01T12:00:00Z',
                    attributes => { route => '/p' }
                }
            } 1 .. 500])->{json}{accepted}, 500, 'events are taken, by COPY';
            verify_books($stack);
        }
        $node->discard;
        ok $pooler->stop('QUIT', 10), 'pgbouncer ends';
    };
}

done_testing;
