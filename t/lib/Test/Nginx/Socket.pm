package Test::Nginx::Socket;

# A small stand-in for Test::Nginx::Socket where that one is not installed:
# just the sections and functions that the tests of this project use, with
# the meaning they have there. tools/prove-nginx chooses between the two.
#
# Sections: config http_config main_config user_files request more_headers
# error_code response_body response_body_like response_headers
# raw_response_headers_like raw_response_headers_unlike error_log
# no_error_log must_die timeout abort ignore_response wait log_level.
# A request may be a string, a list of strings, or a list of packet lists.

use Test::Base -Base;

use IO::Select;
use Test::Nginx::Util;

our @EXPORT = qw(
    run_tests repeat_each no_shuffle no_long_string log_level timeout workers
    master_on no_root_location server_root server_port add_cleanup_handler
    add_block_preprocessor env_to_nginx bail_out worker_connections
);

my $Repeat = 1;
my $Shuffle = !$ENV{TEST_NGINX_NO_SHUFFLE};
my @Preprocessors;

sub repeat_each() {
    return $Repeat if !@_;
    $Repeat = $_[0] if !$ENV{TEST_NGINX_REPEAT_EACH};
}

sub no_shuffle() { $Shuffle = 0 }

sub no_long_string() { }

sub add_block_preprocessor(&) { push @Preprocessors, shift }

sub run_tests() {
    my @blocks = Test::Base::blocks();

    if ($Shuffle) {
        for (my $i = @blocks - 1; $i > 0; $i--) {
            my $j = int rand $i + 1;
            @blocks[$i, $j] = @blocks[$j, $i];
        }
    }

    for my $block (@blocks) {
        next if defined $block->SKIP;
        $_->($block) for @Preprocessors;
        $block->set_value(name => "$0 " . $block->name);
        defined $block->must_die ? run_must_die($block) : run_block($block);
    }
    stop_nginx();
}

sub run_must_die() {
    my ($block) = @_;

    for (1 .. $Repeat) {
        my $status = start_nginx($block);
        isnt($status, 0, $block->name . ' - die as expected');
        stop_nginx() if $status == 0;
        check_error_log($block);
    }
}

sub run_block() {
    my ($block) = @_;

    my $status = prepare_nginx($block);
    bail_out($block->name . " - cannot start nginx\n" . error_log_text())
        if $status != 0;

    $RunTestHelper->($block, 0, $_ - 1) for 1 .. $Repeat;
}

$RunTestHelper = sub {
    my ($block) = @_;

    my @requests = requests_of($block);
    for my $index (0 .. $#requests) {
        run_request($block, $requests[$index], $index, @requests > 1);
    }
};

sub run_request() {
    my ($block, $packets, $index, $many) = @_;

    my ($raw, $timed_out) = send_packets($block, $packets);
    fail('client socket timed out - ' . $block->name)
        if $timed_out && !defined $block->abort;

    if (!defined $block->ignore_response) {
        my $response = parse_response($raw, $packets);
        my $at = sub { indexed($block, $_[0], $index, $many) };
        check_status($block, $response, $at);
        check_headers($block, $response, $at);
        check_body($block, $response, $at);
    }

    select undef, undef, undef, $block->wait if $block->wait;
    check_error_log($block);
}

# ---- requests --------------------------------------------------------------

sub indexed() {
    my ($block, $value, $index, $many) = @_;

    return undef if !defined $value;
    return ref $value eq 'ARRAY' ? $value->[$index] : $value if !$many;
    ref $value eq 'ARRAY'
        or bail_out($block->name . ' - several requests need arrays');
    return $value->[$index];
}

# Each request as a list of packets, with the headers put in.
sub requests_of() {
    my ($block) = @_;

    return [expand($block->raw_request)] if defined $block->raw_request;

    my $request = $block->request;
    my @list = ref $request ? @$request : ($request);
    my $more = $block->more_headers // '';

    return map {
        my $headers = ref $more ? $more->[$_] : $more;
        [packets_of($headers, ref $list[$_] ? @{ $list[$_] } : $list[$_])];
    } 0 .. $#list;
}

# The headers go behind the request line. The line is wholly in the first
# packet, or else the request is in tiny pieces and goes out byte by byte.
sub packets_of() {
    my ($more, @packets) = @_;

    @packets = map { ref $_ ? { %$_ } : { value => $_ } } @packets;
    my $whole = $packets[0]{value} =~ /^\s*\S[^\n]*\n/ || @packets == 1;
    my $text = join '', map { $_->{value} } @packets;

    $text =~ s/^\s*([^\n]+)\n?//;
    my ($method, $url, $version) = split ' ', $1;
    $text =~ s/^\s+|\s+$//g if $more !~ /^Transfer-Encoding: chunked/mi;

    my $head = join(' ', $method, $url // '/', $version // 'HTTP/1.1')
        . "\r\n" . headers_of($more, length $text) . "\r\n";

    return map { { value => $_ } } split //, $head . $text if !$whole;
    return { value => $head . $text } if @packets == 1;

    $packets[0]{value} =~ s/^\s*[^\n]+\n/$head/;
    return @packets;
}

sub headers_of() {
    my ($more, $body_size) = @_;

    my $headers = '';
    for my $header (grep { length } split /\n+/, $more) {
        my ($key, $value) = split /:\s*/, $header, 2;
        $headers .= "$key: " . ($value // '') . "\r\n";
    }

    $headers .= "Content-Length: $body_size\r\n"
        if $body_size && $headers !~ /^(Content-Length|Transfer-Encoding):/mi;
    $headers = "Connection: close\r\n$headers" if $headers !~ /^Connection/mi;
    $headers = "Host: localhost\r\n$headers" if $headers !~ /^Host:/mi;
    return $headers;
}

sub send_packets() {
    my ($block, $packets) = @_;

    my $timeout = $block->timeout // timeout();
    $timeout = $timeout =~ /^\s*([\d.]+)\s*ms\s*$/ ? $1 / 1000
        : $timeout =~ /^\s*([\d.]+)/ ? $1 : 3;

    my $socket = connect_nginx()
        or bail_out($block->name . " - cannot connect: $!");
    $socket->blocking(0);

    local $SIG{PIPE} = 'IGNORE';
    my @left = map { ref $_ ? { %$_ } : { value => $_ } } @$packets;
    my ($raw, $offset) = ('', 0);
    my $select = IO::Select->new($socket);

    while (1) {
        my ($readable, $writable) = IO::Select->select(
            $select, @left ? $select : undef, undef, $timeout);
        return ($raw, 1) if !defined $readable;

        if (@$readable) {
            my $n = sysread $socket, $raw, 65536, length $raw;
            return ($raw, 0) if defined $n ? $n == 0 : !$!{EAGAIN};
        }
        next if !@left || !@$writable;

        if ($left[0]{delay_before}) {
            select undef, undef, undef, delete $left[0]{delay_before};
        }
        my $n = syswrite $socket, $left[0]{value},
            length($left[0]{value}) - $offset, $offset;
        if (defined $n) {
            $offset += $n;
        } elsif (!$!{EAGAIN}) {
            @left = ();
            next;
        }
        if ($offset == length $left[0]{value}) {
            shift @left;
            $offset = 0;
        }
    }
}

# ---- responses -------------------------------------------------------------

sub parse_response() {
    my ($raw, $packets) = @_;

    my ($head, $body) = split /\r\n\r\n/, $raw, 2;
    my %response = (code => '', head => '', body => $body // '', headers => {});
    return \%response if !defined $head || $head !~ m{^HTTP/1\.\d (\d+)};

    $response{code} = $1;
    $response{head} = "$head\r\n";
    for (split /\r\n/, $head) {
        my ($key, $value) = /^([^:]+):\s*(.*)$/ or next;
        push @{ $response{headers}{ lc $key } }, $value;
    }

    my $encoding = $response{headers}{'transfer-encoding'};
    my $length = $response{headers}{'content-length'};
    if ($encoding && $encoding->[0] eq 'chunked') {
        $response{body} = dechunk($response{body});
    } elsif ($length && length $response{body} > $length->[0]) {
        $response{body} = substr $response{body}, 0, $length->[0];
    }
    return \%response;
}

sub dechunk() {
    my ($raw) = @_;

    my $body = '';
    while ($raw =~ s/^([0-9A-Fa-f]+)\r\n//) {
        my $size = hex $1;
        return $body if $size == 0;
        $body .= substr $raw, 0, $size, '';
        $raw =~ s/^\r\n// or last;
    }
    return "$body(no last chunk)";
}

sub check_status() {
    my ($block, $response, $at) = @_;

    my $code = $at->($block->error_code) // 200;
    $code =~ s/^\s+|\s+$//g;
    is($response->{code}, $code, $block->name . ' - status code ok');
}

sub check_headers() {
    my ($block, $response, $at) = @_;

    if (defined(my $pattern = $at->($block->raw_response_headers_like))) {
        like($response->{head}, qr/$pattern/s,
            $block->name . ' - raw resp headers like');
    }
    if (defined(my $pattern = $at->($block->raw_response_headers_unlike))) {
        unlike($response->{head}, qr/$pattern/s,
            $block->name . ' - raw resp headers unlike');
    }
    defined(my $wanted = $at->($block->response_headers)) or return;

    for my $line (grep { /\S/ } split /\n/, $wanted) {
        $line =~ s/^\s+|\s+$//g;
        if ($line =~ s/^!\s*//) {
            unlike($response->{head}, qr/^\Q$line\E\s*:/mi,
                $block->name . " - header $line not present");
            next;
        }
        my ($key, $value) = split /\s*:\s*/, $line, 2;
        is(join(', ', @{ $response->{headers}{ lc $key } || [] }), $value,
            $block->name . " - header $key ok");
    }
}

sub check_body() {
    my ($block, $response, $at) = @_;

    if (defined $block->response_body) {
        my $wanted = $at->($block->response_body);
        ref $wanted
            ? like($response->{body}, $wanted, $block->name . ' - body like')
            : is(shortened($response->{body}), shortened(expand($wanted)),
                 $block->name . ' - response body');
    } elsif (defined $block->response_body_like) {
        my $pattern = $at->($block->response_body_like);
        like($response->{body}, qr/$pattern/s, $block->name . ' - body like');
    } elsif (defined $block->response_body_unlike) {
        my $pattern = $at->($block->response_body_unlike);
        unlike($response->{body}, qr/$pattern/s,
            $block->name . ' - body unlike');
    }
}

# Long bodies are compared whole but not printed whole.
sub shortened() {
    my ($text) = @_;
    return $text if !defined $text || length $text < 4096;
    require Digest::MD5;
    return substr($text, 0, 200) . '... ' . length($text) . ' bytes, md5 '
        . Digest::MD5::md5_hex($text);
}

# ---- the error log ---------------------------------------------------------

sub check_error_log() {
    my ($block) = @_;

    return if !defined $block->error_log && !defined $block->no_error_log;

    my @wanted = patterns($block->error_log);
    my $text = wait_for_log(@wanted);
    for my $pattern (@wanted) {
        ok(log_matches($text, $pattern),
            $block->name . " - \"$pattern\" matches a line in error.log")
            or diag(without_debug($text));
    }
    for my $pattern (patterns($block->no_error_log)) {
        ok(!log_matches($text, $pattern),
            $block->name . " - \"$pattern\" matches no line in error.log")
            or diag(without_debug($text));
    }
    return;
}

sub without_debug() {
    return join '', grep { !/ \[debug\] / } map { "$_\n" } split /\n/, $_[0];
}

sub patterns() {
    my ($section) = @_;

    return () if !defined $section;
    return ref $section eq 'ARRAY' ? @$section : ($section) if ref $section;
    return grep { length } split /\n+/, $section;
}
