package Edgemeter::Http;

# Http.pm - a small JSON client with keep-alive, for tests and health checks.
#
#   my $http = Edgemeter::Http->new(port => $port, token => $token);
#   my $answer = $http->post('/v1/events', { event_id => 'e1', ... });
#   $answer->{status};            # 200; 599 when no answer came
#   $answer->{json}{accepted};    # decoded when the answer is JSON
#   $answer->{body}; $answer->{headers}{'retry-after'};
#   $http->get('/v1/counters/api_requests', route => '/a b');  # query args
#
# A body that is a reference is sent as JSON, text goes out as it is. A POST
# is never repeated by the client, so a lost answer shows as 599.

use strict;
use warnings;
use HTTP::Tiny;
use JSON::PP ();
use Socket qw(IPPROTO_TCP TCP_NODELAY);

my $JSON = JSON::PP->new->utf8->canonical->allow_nonref->allow_bignum;

sub new {
    my ($class, %arg) = @_;
    my $self = bless { port => $arg{port}, token => $arg{token} }, $class;
    $self->{tiny} = HTTP::Tiny->new(
        keep_alive => $arg{keep_alive} // 1,
        timeout    => $arg{timeout}    // 30,
        proxy      => undef,
        http_proxy => undef,
        agent      => 'edgemeter-test',
    );
    return $self;
}

# The same server with another token (undef: none).
sub as {
    my ($self, $token) = @_;
    return __PACKAGE__->new(port => $self->{port}, token => $token);
}

sub get {
    my ($self, $path, %query) = @_;
    my $args = join '&', map { escape($_) . '=' . escape($query{$_}) }
        sort keys %query;
    return $self->request('GET', length $args ? "$path?$args" : $path);
}

sub post {
    my ($self, $path, $body, %headers) = @_;
    return $self->request('POST', $path, $body, %headers);
}

sub request {
    my ($self, $method, $path, $body, %headers) = @_;
    my %options;
    $headers{authorization} //= "Bearer $self->{token}"
        if defined $self->{token};
    if (defined $body) {
        $headers{'content-type'} //= 'application/json';
        $options{content} = ref $body ? $JSON->encode($body) : $body;
    }
    $options{headers} = \%headers;

    # Head and body are two writes: without this the second one waits for
    # the server's delayed acknowledgement.
    my $kept = $self->{tiny}{handle};
    setsockopt $kept->{fh}, IPPROTO_TCP, TCP_NODELAY, 1 if $kept && $kept->{fh};
    my $got = $self->{tiny}
        ->request($method, "http://127.0.0.1:$self->{port}$path", \%options);

    my %answer = (
        status  => $got->{status},
        body    => $got->{content} // '',
        headers => $got->{headers} // {},
    );
    $answer{json} = eval { $JSON->decode($answer{body}) }
        if ($answer{headers}{'content-type'} // '') =~ /json/;
    return \%answer;
}

sub escape {
    my ($text) = @_;
    utf8::encode($text) if utf8::is_utf8($text);
    $text =~ s/([^A-Za-z0-9_.~-])/sprintf '%%%02X', ord $1/ge;
    return $text;
}

sub encode_json { return $JSON->encode($_[-1]) }

1;
