package Test::Nginx::Util;

# The part of the stand-in that starts, reloads and stops nginx, and reads
# its error log. Environment as in the original: TEST_NGINX_BINARY,
# TEST_NGINX_SERVROOT, TEST_NGINX_LOAD_MODULES, TEST_NGINX_PORT,
# TEST_NGINX_USE_HUP, TEST_NGINX_USE_VALGRIND, TEST_NGINX_TIMEOUT,
# TEST_NGINX_WORKER_USER; $TEST_NGINX_* is replaced in configurations.

use strict;
use warnings;

use base 'Exporter';

use Cwd qw(cwd);
use File::Path qw(make_path remove_tree);
use IO::Socket::INET;
use POSIX ();
use Test::More ();
use Time::HiRes qw(sleep time);

our @EXPORT = qw(
    start_nginx prepare_nginx stop_nginx connect_nginx error_log_text
    wait_for_log log_matches expand bail_out log_level timeout workers
    master_on no_root_location server_root server_port add_cleanup_handler
    worker_connections env_to_nginx $RunTestHelper
);

# Runs the requests of one block, once; others may put themselves around it.
our $RunTestHelper;

my $Binary = $ENV{TEST_NGINX_BINARY} || 'nginx';
my $Root = $ENV{TEST_NGINX_SERVROOT} || cwd() . '/t/servroot';
my $Port = $ENV{TEST_NGINX_SERVER_PORT} || $ENV{TEST_NGINX_PORT} || 1984;
my $Timeout = $ENV{TEST_NGINX_TIMEOUT} || 3;
my $LogLevel = $ENV{TEST_NGINX_LOG_LEVEL} || 'debug';
my $Workers = 1;
my $Connections = 128;
my $RootLocation = 1;
my @Env;
my @Cleanup;
my ($Running, $Configured, $LogPosition, $Version);

$Version = 0;
$LogPosition = 0;

sub bail_out { Test::More::BAIL_OUT("@_") }

sub log_level { return $LogLevel if !@_; $LogLevel = shift }

sub timeout { return $Timeout if !@_; $Timeout = shift }

sub workers { return $Workers if !@_; $Workers = shift }

sub worker_connections { return $Connections if !@_; $Connections = shift }

sub master_on { }

sub no_root_location { $RootLocation = 0 }

sub server_root { return $Root }

sub server_port { return $Port if !@_; $Port = shift }

sub env_to_nginx { push @Env, @_ }

sub add_cleanup_handler { push @Cleanup, shift }

sub expand {
    my ($text) = @_;

    return undef if !defined $text;
    $text =~ s{\$(TEST_NGINX_[_A-Z0-9]+)}{
        $ENV{$1} // bail_out("no environment $1 defined")
    }ge;
    return $text;
}

# ---- configuration ---------------------------------------------------------

sub write_configuration {
    my ($block) = @_;

    make_path("$Root/conf", "$Root/logs", "$Root/html");
    write_file("$Root/html/index.html", '<html>It works!</html>');
    write_user_files($block);

    my $level = $block->log_level || $LogLevel;
    my $load = join '', map { "load_module $_;\n" }
        split ' ', $ENV{TEST_NGINX_LOAD_MODULES} || '';
    my $user = $ENV{TEST_NGINX_WORKER_USER} // ($> == 0 ? 'root' : undef);
    $user = defined $user ? "user $user;" : '';
    my $daemon = $ENV{TEST_NGINX_USE_VALGRIND} ? 'off' : 'on';
    my $main = expand($block->main_config) // '';
    my $http = expand($block->http_config) // '';
    my $config = expand($block->config) // '';
    my $temp = join "\n    ", map { "${_}_temp_path $Root/${_}_temp;" }
        qw(client_body proxy fastcgi scgi uwsgi);
    my $default = $RootLocation ? "location / { root $Root/html; }" : '';
    my $environment = join '', map { "env $_;\n" } @Env;

    write_file("$Root/conf/nginx.conf", <<"END");
$load$environment$user
worker_processes $Workers;
daemon $daemon;
error_log $Root/logs/error.log $level;
pid $Root/logs/nginx.pid;
$main
events {
    accept_mutex off;
    worker_connections $Connections;
}
http {
    access_log $Root/logs/access.log;
    $temp
    default_type text/plain;
    keepalive_timeout 68;
$http
    server {
        listen 127.0.0.1:$Port;
        server_name localhost;
        client_max_body_size 30m;
$config
        $default
    }
    server {
        listen 127.0.0.1:$Port;
        server_name test-nginx;
        location = /version { return 200 "version $Version."; }
    }
}
END
}

sub write_user_files {
    my ($block) = @_;

    my $files = expand($block->user_files) // return;
    my ($intro, @parts) = split /^>>>\s+(\S+)[^\n]*\n/m, $files;
    while (@parts) {
        my ($name, $text) = splice @parts, 0, 2;
        write_file("$Root/html/$name", $text);
    }
}

sub write_file {
    my ($path, $text) = @_;

    open my $file, '>', $path or bail_out("cannot write $path: $!");
    print $file $text;
    close $file;
}

# ---- life ------------------------------------------------------------------

# An nginx with the block's configuration: the one that runs, if it has it.
sub prepare_nginx {
    my ($block) = @_;

    my $wanted = join "\0", map { $_ // '' } $block->config,
        $block->http_config, $block->main_config, $block->user_files,
        $block->log_level;

    $LogPosition = -s "$Root/logs/error.log" || 0;
    undef $Running if $Running && !is_alive($Running);
    return 0 if $Running && $Configured eq $wanted;
    $Configured = $wanted;

    return reload_nginx($block) if $Running && $ENV{TEST_NGINX_USE_HUP};
    return start_nginx($block);
}

# Returns the exit status of nginx, which becomes a daemon on success.
sub start_nginx {
    my ($block) = @_;

    stop_nginx();
    remove_tree($Root, { keep_root => 1 });
    $LogPosition = 0;
    $Version++;
    write_configuration($block);

    my @command = ($Binary, '-p', "$Root/", '-c', "$Root/conf/nginx.conf",
        '-e', "$Root/logs/error.log");
    return start_under_valgrind(@command)
        if $ENV{TEST_NGINX_USE_VALGRIND} && !defined $block->must_die;

    my $pid = fork // bail_out("fork: $!");
    if ($pid == 0) {
        open STDOUT, '>', '/dev/null';
        open STDERR, '>', '/dev/null' if defined $block->must_die;
        exec @command or POSIX::_exit(127);
    }
    waitpid $pid, 0;
    my $status = $?;

    if ($status == 0) {
        $Running = wait_for(sub { pid_in_file() })
            or bail_out('nginx wrote no pid file');
        wait_for_version() if !defined $block->must_die;
    }
    return $status;
}

sub start_under_valgrind {
    my @command = @_;

    my @valgrind = qw(valgrind -q --leak-check=full --num-callers=30
        --show-possibly-lost=no --keep-debuginfo=yes);
    my $pid = fork // bail_out("fork: $!");
    if ($pid == 0) {
        exec @valgrind, @command or POSIX::_exit(127);
    }
    $Running = $pid;
    wait_for_version();
    return 0;
}

sub reload_nginx {
    my ($block) = @_;

    $Version++;
    write_configuration($block);
    kill 'HUP', $Running;
    wait_for_version();
    return 0;
}

sub stop_nginx {
    return if !$Running;

    my $pid = $Running;
    undef $Running;
    kill $ENV{TEST_NGINX_USE_VALGRIND} ? 'QUIT' : 'TERM', $pid;
    my $gone = sub { waitpid $pid, POSIX::WNOHANG(); !is_alive($pid) };
    return if wait_for($gone, $ENV{TEST_NGINX_USE_VALGRIND} ? 30 : 10);
    kill 'KILL', $pid;
    wait_for($gone);
}

# A daemon that nobody has waited for yet is gone, too.
sub is_alive {
    my ($pid) = @_;

    return 0 if !kill 0, $pid;
    open my $stat, '<', "/proc/$pid/stat" or return 1;
    return (<$stat> // '') !~ /^\d+ \(.*\) Z/;
}

sub pid_in_file {
    open my $file, '<', "$Root/logs/nginx.pid" or return;
    my ($pid) = (<$file> // '') =~ /^(\d+)\n/;
    return $pid;
}

# Several times in a row: an old worker may still take a connection.
sub wait_for_version {
    my $in_a_row = 0;

    wait_for(sub {
        my $socket = connect_once() or return 0;
        print $socket "GET /version HTTP/1.0\r\nHost: test-nginx\r\n\r\n";
        my $answer = do { local $/; <$socket> } // '';
        $in_a_row = $answer =~ /version $Version\./ ? $in_a_row + 1 : 0;
        return $in_a_row >= 5;
    }, 30) or bail_out("nginx does not serve configuration $Version\n"
        . error_log_text());
}

sub connect_once {
    return IO::Socket::INET->new(
        PeerAddr => '127.0.0.1', PeerPort => $Port, Timeout => 5);
}

sub connect_nginx {
    my $socket;
    wait_for(sub { $socket = connect_once() });
    return $socket;
}

sub wait_for {
    my ($condition, $seconds) = @_;

    my $deadline = time + ($seconds // 10);
    while (time < $deadline) {
        my $value = $condition->();
        return $value if $value;
        sleep 0.01;
    }
    return;
}

# ---- the error log ---------------------------------------------------------

# What was logged since this block began.
sub error_log_text {
    open my $log, '<', "$Root/logs/error.log" or return '';
    seek $log, $LogPosition, 0;
    local $/;
    return <$log> // '';
}

sub log_matches {
    my ($text, $pattern) = @_;
    $pattern = ref $pattern ? $pattern : qr/\Q$pattern\E/;
    return scalar grep { $_ =~ $pattern } split /\n/, $text;
}

# The log phase runs after the answer: give wanted lines time to come.
sub wait_for_log {
    my @patterns = @_;

    my $text = '';
    wait_for(sub {
        $text = error_log_text();
        return !grep { !log_matches($text, $_) } @patterns;
    }, 3);
    return $text;
}

END {
    my $status = $?;
    stop_nginx();
    $_->() for @Cleanup;
    $? = $status;
}

1;
