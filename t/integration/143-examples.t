#!/usr/bin/perl

# 143-examples.t - the example configurations as they stand, and what their
# pages show.
#
# Each is started with the paths and ports of a test in place of those of a
# Debian host. The commands of its README run as they are printed: curl finds
# the hosts through a .curlrc, meterd its configuration through a wrapper. The
# command behind `sleep` is repeated until its answer is the page's. Times and
# months of the server are not compared. The example of meterd.yaml(5) is
# checked as well.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use File::Temp ();
use IO::Socket::INET;
use JSON::PP ();
use Test::More;
use Edgemeter::Backend;
use Edgemeter::Http;
use Edgemeter::Nginx;
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until poll_until);

my $ROOT = Edgemeter::Stack::root();
my $JSON = JSON::PP->new->canonical->allow_nonref;
my $tmp  = File::Temp->newdir('em-examples-XXXXXX', TMPDIR => 1);
chmod 0755, "$tmp";

my $backend = Edgemeter::Backend->start;

sub slurp {
    my ($path) = @_;
    open my $file, '<', $path or die "$path: $!\n";
    local $/;
    return scalar <$file>;
}

sub put {
    my ($name, $mode, $text) = @_;
    Edgemeter::Place::replace_file("$tmp/$name", $mode, undef, $text);
    return "$tmp/$name";
}

# --- an example as a stack ----------------------------------------------

# What stands for the API that is proxied; /hold answers when the test says.
sub api_server {
    my ($path) = @_;
    return <<"END";
    server {
        listen unix:$path;
        access_log off;
        location / { return 200 "the API\\n"; }
        location /broken { return 500; }
        location /hold { proxy_pass http://unix:$ENV{TEST_NGINX_METER_BACKEND}:/hold/api; }
    }
END
}

# The file with everything that belongs to a Debian host replaced. The rest
# is untouched, and nothing of the host may be left.
sub nginx_conf {
    my ($example, $port) = @_;
    my $text = slurp("$ROOT/examples/$example/nginx.conf");
    $text =~ s{^load_module modules/ngx_http_meter_module\.so;$}{load_module \@MODULE\@;}m;
    $text =~ s{/run/nginx\.pid}{\@RUN_DIR\@/nginx.pid};
    $text =~ s{/var/log/nginx/}{\@RUN_DIR\@/logs/nginx-}g;
    $text =~ s{unix:/run/edgemeter/}{unix:\@RUN_DIR\@/}g;
    $text =~ s{/var/lib/edgemeter/}{\@RUN_DIR\@/}g;
    $text =~ s{/etc/ssl/(?:certs|private)/}{$tmp/}g;
    $text =~ s{listen (?:80|443)\b}{listen 127.0.0.1:\@PORT\@};
    $text =~ s{listen 127\.0\.0\.1:8081;}{listen 127.0.0.1:$port;};
    $text =~ s{server 127\.0\.0\.1:9000;}{server unix:\@RUN_DIR\@/api.sock;};
    (my $code = $text) =~ s/#[^\n]*//g;
    unlike $code, qr{[\s:]/(?:etc|run|usr|var)/|\b(?:80|443|8081|9000)\b},
        'nothing of the host is left';

    my $more = join '', map {"    ${_}_temp_path \@RUN_DIR\@/tmp/$_;\n"}
        qw(client_body proxy fastcgi uwsgi scgi);
    $more =~ s{tmp/client_body}{tmp/body};
    $more .= api_server('@RUN_DIR@/api.sock');
    $text =~ s/^http \{\n/http {\n$more/m;
    return $text;
}

sub start {
    my ($example) = @_;
    my $port = Edgemeter::Stack::free_port();
    mkdir "$tmp/checkpoints";
    chmod 0777, "$tmp/checkpoints";
    my $rules = slurp("$ROOT/examples/$example/meterd.yaml");
    $rules =~ s{/var/lib/edgemeter/checkpoints}{$tmp/checkpoints};
    my $conf  = nginx_conf($example, $port);
    my $stack = Edgemeter::Stack->for_test(
        rules      => \$rules,
        nginx_conf => \$conf,
        tenants    => [],
    )->start;
    my $inside = Edgemeter::Http->new(port => $port);
    wait_until { $inside->get('/readyz')->{status} == 200 } 30, '/readyz is 200';
    is $inside->get('/healthz')->{status}, 200, 'healthy';
    like $inside->get('/metrics')->{body}, qr/^edgemeter_aggregator_up 1$/m,
        'with metrics';
    return ($stack, $port);
}

sub check {
    my ($example, $stack) = @_;
    my ($status, $out, $err) = $stack->meterd_command('check', '-c',
        $stack->place->readable("$ROOT/examples/$example/meterd.yaml", 0644));
    is $status, 0, 'meterd check takes the rules as they are'
        or diag $out . $err;
    like $out, qr/^configuration is valid: /, 'and has no remarks';
    is $err, '', 'nor errors';

    my $conf = $stack->place->path('nginx.conf');
    ($status, $out, $err) = Edgemeter::Process::capture(
        command => [Edgemeter::Nginx::find_bin(), '-t', '-q', '-p',
            $stack->place->state . '/', '-e', '/dev/null', '-c', $conf],
        user => $stack->account,
    );
    is $status, 0, 'nginx -t takes the configuration' or diag $err;
    unlike $stack->log('nginx-error'), qr/\[(?:error|crit|alert|emerg)\]/,
        'nginx started without errors';
    return;
}

# --- the commands of a page ---------------------------------------------

# [command, output] pairs of all console blocks.
sub commands_of {
    my ($example) = @_;
    my @commands;
    for my $block (slurp("$ROOT/examples/$example/README.md")
        =~ /^```console\n(.*?)^```$/msg)
    {
        for my $line (split /^/, $block) {
            if ($line =~ s/^\$ //) {
                push @commands, [$line, ''];
            }
            else {
                my $goes_on = $line =~ /^\s/ && $commands[-1][1] eq '';
                $commands[-1][ $goes_on ? 0 : 1 ] .= $line;
            }
        }
    }
    return @commands;
}

# One form for what means the same.
sub normal {
    my ($text) = @_;
    $text =~ s/"\d{4}-\d\d-\d\dT[\d:.]+Z"/"T"/g;
    $text =~ s/("period":)"\d{4}-\d\d"/$1"P"/g;
    my $value = eval { $JSON->decode($text) };
    if (ref $value) {
        delete $_->{partial} for @{ $value->{rows} // [] };
        return $JSON->encode($value);
    }
    $text =~ s/\s+\z//;
    return $text;
}

# A shell that stays, so that variables live from command to command.
sub shell {
    my ($stack, $port) = @_;
    mkdir "$tmp/bin";
    put('bin/sudo', 0755, "#!/bin/sh\nshift 2\nexec \"\$@\"\n");
    my $given = join ' ', $stack->config_arguments;
    put('bin/meterd', 0755, <<"END");
#!/bin/sh
for word; do
    shift
    case \$word in
        /etc/edgemeter/meterd.yaml) ;;
        -c) set -- "\$@" $given ;;
        *) set -- "\$@" "\$word" ;;
    esac
done
exec $stack->{program} "\$@"
END
    my $public = $stack->port;
    put('.curlrc', 0644, <<"END");
connect-to = "api.example.com:80:127.0.0.1:$public"
connect-to = "events.example.com:443:127.0.0.1:$public"
connect-to = "127.0.0.1:8081:127.0.0.1:$port"
cacert = "$tmp/events.example.com.pem"
noproxy = "*"
max-time = 30
END
    local $ENV{PATH} = "$tmp/bin:$ENV{PATH}";
    local $ENV{CURL_HOME} = "$tmp";
    pipe my $answers, my $to_test or die "pipe: $!\n";
    my $pid = open my $commands, '|-';
    die "fork: $!\n" unless defined $pid;
    if ($pid == 0) {
        open STDOUT, '>&', $to_test or die "stdout: $!\n";
        open STDERR, '>&', \*STDOUT or die "stderr: $!\n";
        close $_ for $answers, $to_test;
        exec 'bash', '-s' or die "bash: $!\n";
    }
    close $to_test;
    $commands->autoflush(1);
    return sub {
        my ($text) = @_;
        print {$commands} $text, "\nprintf '%s' '--- end ---'\n";
        local $/ = '--- end ---';
        my $answer = <$answers> // die "the shell is gone\n";
        chomp $answer;
        return $answer;
    };
}

sub run_page {
    my ($example, $stack, $port) = @_;
    my @commands = commands_of($example);
    my $shell = shell($stack, $port);
    my $late = 0;
    cmp_ok scalar(grep { $_->[0] =~ /\bcurl\b/ } @commands), '>=', 3,
        'the page shows some commands';
    for my $command (@commands) {
        my ($text, $expected) = @$command;
        my ($name) = $text =~ /^(.{1,60})/;
        if ($text =~ /^sleep\b/) {
            $late = 1;
            next;
        }
        my $got;
        poll_until {
            $got = $shell->($text);
            !$late || normal($got) eq normal($expected);
        } 20;
        $late = 0;
        is normal($got), normal($expected), $name;
    }
    return;
}

# --- the examples -------------------------------------------------------

subtest 'meter-by-key' => sub {
    my ($stack, $port) = start('meter-by-key');
    check('meter-by-key', $stack);
    run_page('meter-by-key', $stack, $port);

    my $api = $stack->http;
    my %key = ('x-api-key' => 'globex-key-1');
    is $api->request('GET', '/broken', undef, %key)->{status}, 500,
        'the API fails';
    $stack->kill_part('meterd');
    is $api->request('GET', '/x/1', undef, %key)->{status}, 200,
        'meterd is down: clients are served';
    $stack->start_part('meterd');
    my $events;
    poll_until {
        $events = join ',', $stack->query(
            "SELECT type || ' ' || (attributes::json ->> 'status')
            FROM meter.event WHERE tenant = 'globex' ORDER BY ts");
        $events =~ /request/;
    } 20;
    is $events, 'api.failed 500,api.request 200',
        'it is counted; an answer of 5xx is of the type that is not billed';
    my ($line) = $stack->log('nginx-access') =~ m{^(.*/x/1 .*)$}m;
    like $line, qr/globex recorded edge-[0-9a-f]{32}-\d+-\d+$/,
        'the access log has its id';
    ok((poll_until { scalar glob "$tmp/checkpoints/checkpoint-*" } 20),
        'a checkpoint was made');
    $stack->stop;
};

# Requests that the API answers when the gate is open.
sub hold {
    my ($port) = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port")
        or die "connect: $!\n";
    print {$socket} "GET /hold HTTP/1.1\r\nHost: api.example.com\r\n",
        "X-Api-Key: initech-key-1\r\nConnection: close\r\n\r\n";
    $socket->flush;
    return $socket;
}

subtest 'limit-by-plan' => sub {
    my ($stack, $port) = start('limit-by-plan');
    check('limit-by-plan', $stack);
    run_page('limit-by-plan', $stack, $port);

    my $api = $stack->http;
    my @held = map { hold($stack->port) } 1 .. 2;
    wait_until { (() = $backend->calls) == 2 } 20, 'two requests are held';
    my $third = $api->request('GET', '/x', undef, 'x-api-key' => 'initech-key-1');
    is $third->{status}, 429, 'a third at a time is refused';
    is $third->{headers}{'retry-after'}, 6, 'and told when to come back';
    $backend->open_gate('api');
    for my $socket (@held) {
        local $/;
        like scalar(<$socket>), qr{^HTTP/1.1 200 }, 'those held are answered';
    }
    is $api->request('GET', '/x', undef, 'x-api-key' => 'initech-key-1')->{status},
        200, 'then there is room again';
    is $api->request('GET', '/x', undef, 'x-api-key' => 'no-such')->{status}, 401,
        'a key of nobody';

    my $sum = "SELECT tenant, type, attributes::json ->> 'plan',
        attributes::json ->> 'status', count(*)
        FROM meter.event GROUP BY 1, 2, 3, 4 ORDER BY 1, 2";
    my @rows;
    poll_until {
        @rows = $stack->query($sum);
        $rows[3] && $rows[3] =~ /^initech/ && $rows[4] && $rows[4] =~ /\t3$/;
    } 20;
    is_deeply [map {tr/\t/|/r} @rows], [
        'acme|api.request|pro|200|8', 'globex|api.refused|free|429|4',
        'globex|api.request|free|200|5', 'initech|api.refused|free|429|1',
        'initech|api.request|free|200|3'
    ], 'all of it is metered with plan and status';
    $stack->stop;
};

subtest 'ingest-only' => sub {
    my ($status, $out, $err) = Edgemeter::Process::capture(command => [
        qw(openssl req -x509 -newkey rsa:2048 -nodes -days 2),
        '-subj', '/CN=events.example.com',
        '-addext', 'subjectAltName=DNS:events.example.com',
        '-keyout', "$tmp/events.example.com.key",
        '-out', "$tmp/events.example.com.pem"
    ]);
    is $status, 0, 'a certificate' or diag $err;
    chmod 0644, "$tmp/events.example.com.key", "$tmp/events.example.com.pem";
    my ($stack, $port) = start('ingest-only');
    check('ingest-only', $stack);
    run_page('ingest-only', $stack, $port);

    my $shell = shell($stack, $port);
    is $shell->('curl -s -w %{http_code} https://events.example.com/v1/usage'),
        '{"error":"no such path"}404', 'nothing else is public';
    like $shell->('curl -s -w %{http_code} https://events.example.com/v1/events -d "{}"'),
        qr/401$/, 'and events need a token';
    $stack->stop;
};

subtest 'meterd.yaml(5)' => sub {
    my ($text) = slurp("$ROOT/docs/man/meterd.yaml.5")
        =~ /^\.SH EXAMPLES\n.*?^\.nf\n(.*?)^\.fi$/ms;
    $text =~ s/\\-/-/g;
    my ($status, $out, $err) = Edgemeter::Process::capture(
        command => ["$ROOT/build/meterd", 'check', '-c',
            put('manual.yaml', 0644, $text)]);
    is $status, 0, 'meterd check takes its example' or diag $out . $err;
};

done_testing;
