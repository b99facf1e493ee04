package Edgemeter::Capture;

# Capture.pm - test blocks about metered requests, and what became of them.
#
#   block's requests -> nginx -> ring -> fake aggregator -> its ledger
#   sentinel request -> the same way, behind them --------> compared
#
#   our $edge = Edgemeter::Capture->start;    # behind `use Test::Nginx::Socket`
#
# Sections, beside those of Test::Nginx:
#
#   --- events      what must have arrived, one line an event, in order, and
#                   nothing else. A line is NAME=VALUE words: kind (event)
#                   type tenant customer resource quantity id count flags
#                   verdict ts, and @NAME for an attribute. Only named fields
#                   are compared; a NAME alone means: absent. id=minted,
#                   ts=now, ts=bucket; NAME~REGEX. Bytes outside of !..~ and %
#                   are %XX.
#   --- unordered   ... in any order
#   --- seal        nginx is reloaded first, which ends all open deltas;
#                   deltas of one key are shown as one
#   --- client      Perl instead of `request`, or after it; see main's new
#                   functions below
#   --- alerts      a pattern: lines of the error log that may be there
#
# Every block also checks that the fake had nothing to complain of and that
# the error log has no [crit], [alert] or [emerg].
#
# That nothing else arrives is not waited for: a ring keeps its order, so an
# event behind the block's own ends the matter. It is sent once nginx has no
# other connection open; a server of ours behind a unix socket takes it.

use strict;
use warnings;

use Cwd ();
use File::Basename qw(dirname);
use File::Spec;
use Math::BigInt;
use Time::HiRes qw(sleep time);

BEGIN {
    require(dirname(File::Spec->rel2abs(__FILE__)) . "/$_.pm")
        for qw(FakeAggregator Backend HttpClient H2Client);
}

use constant { SECONDS => 10, BUCKET_US => 5_000_000 };

# What a block without http_config gets.
my $HTTP = <<'_EOC_';
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
    meter_outbox $TEST_NGINX_METER_OUTBOX 1m;
    meter_event request;
    meter_tenant acme;
    meter_attribute path $uri;
    meter_attribute status $status;
    meter_attribute fake $arg_fake;
_EOC_

# Behind a block's own; it overrides whatever is set above it.
my $SENTINEL = <<'_EOC_';
    server {
        listen unix:$TEST_NGINX_METER_EDGE;
        location = /idle { meter off; access_log off; stub_status; }
        location = /metrics { meter off; access_log off; meter_status; }
        location = /sentinel {
            access_log off;
            meter on;
            meter_event sentinel;
            meter_tenant sentinel;
            meter_event_id "";
            meter_customer $arg_n;
            meter_resource "";
            meter_quantity 1;
            meter_attribute sentinel yes;
            meter_capture event;
            meter_overflow pass;
            meter_if 1;
            return 204;
        }
    }
_EOC_

my $Sentinels = 0;

sub start {
    my ($class, %arg) = @_;

    my $self = bless {
        fake => Edgemeter::FakeAggregator->start,
        backend => Edgemeter::Backend->start,
        http => $HTTP . ($arg{http} // ''), blocks => 0, forgiven => 0,
    }, $class;
    my $dir = $self->{dir} = $self->{fake}{dir};
    $ENV{TEST_NGINX_METER_EDGE} = $self->{edge} = "$dir/edge.sock";
    $ENV{TEST_NGINX_METER_H2} = "$dir/h2.sock";
    $ENV{TEST_NGINX_METER_OUTBOX} = "$dir/outbox";
    $ENV{TEST_NGINX_SERVER_PORT} //= main::server_port();

    main::master_on();
    main::no_root_location();
    &main::add_block_preprocessor(sub { $self->prepare($_[0]) });
    my $run = $Test::Nginx::Util::RunTestHelper
        or die "no test helper: use Test::Nginx::Socket first\n";
    $Test::Nginx::Util::RunTestHelper = sub { $self->run($run, @_) };
    $self->lend;
    return $self;
}

sub fake    { return $_[0]{fake} }
sub backend { return $_[0]{backend} }
sub ledger  { return $_[0]{fake}->ledger }
sub http    { return $_[0]{http} }

# What code in `client` may call.
sub lend {
    my ($self) = @_;

    no strict 'refs';
    *{'main::client'} = sub {
        Edgemeter::HttpClient->new(main::server_port(), @_);
    };
    *{'main::get'} = sub {
        my ($path, @headers) = @_;
        return main::client()->get($path, 'Connection: close', @headers);
    };
    *{'main::metric'} = sub { $self->metric(@_) };
    *{'main::metrics'} = sub { $self->metrics };
    *{'main::wait_until'} = \&wait_until;
    *{'main::reload'} = sub { $self->reload(@_) };
    *{'main::flush_ring'} = sub { $self->sentinel };
    *{'main::forgive'} = sub { $self->forgive };
    *{'main::settle'} = sub { $self->settle };
    *{'main::arrived'} = sub { $self->arrived };
    return;
}

# ---- one block ------------------------------------------------------------

sub prepare {
    my ($self, $block) = @_;

    $block->set_value(config => '') if !defined $block->config;
    return if defined $block->must_die;
    $self->{log} = main::server_root() . '/logs/error.log';
    $self->{log_mark} = mark($self->{log});

    # Every block has an nginx of its own, or at least a reload; one that is
    # reloaded keeps its outbox, a new one begins with an empty one.
    my $number = ++$self->{blocks};
    $ENV{TEST_NGINX_METER_LOG} = "$self->{dir}/access-$number.log";
    $ENV{TEST_NGINX_METER_OUTBOX} = "$self->{dir}/outbox-$number"
        if !$ENV{TEST_NGINX_USE_HUP};
    $block->set_value(http_config => "# block $number\n"
        . ($block->http_config // $self->{http}) . $SENTINEL);
    return;
}

sub run {
    my ($self, $run, $block, @more) = @_;

    my $name = $block->name;
    wait_for_workers();
    $self->{forgiven} = 0 if !$ENV{TEST_NGINX_USE_HUP};
    $self->ledger->calm;
    $self->{from} = $self->ledger->position;
    $self->{since_us} = int((time - 1) * 1e6);

    # The first answer tells which database it is; until then a zone forgets.
    $self->settle if $block->http_config =~ /meter_zone/;

    $run->($block, @more)
        if defined $block->request || defined $block->raw_request;
    if (defined $block->client) {
        my $ok = eval "package main; use strict; use warnings;\n#line 1 "
            . "\"client\"\n" . $block->client . "\n;1";
        main::diag("$name - client: $@") if !$ok;
        main::ok($ok, "$name - client");
    }
    $self->check_events($block) if defined $block->events;
    $self->restore;

    my @wrong = map { $_->{error} . "\n" }
        grep { $_->{kind} eq 'error' } @{ $self->ledger->lines($self->{from}) };
    my $allowed = $block->alerts;
    push @wrong, grep {
        / \[(crit|alert|emerg)\] / && !(defined $allowed && /$allowed/)
    } lines_since($self->{log}, $self->{log_mark});
    $self->{log_mark} = mark($self->{log});
    main::is(join('', @wrong), '', "$name - nothing went wrong");
    return;
}

# Whose log it is, and how long.
sub mark { return { master => master() // 0, size => -s $_[0] // 0 } }

# From the mark on; all of it when another nginx writes it by now.
sub lines_since {
    my ($path, $mark) = @_;

    open my $file, '<', $path or return;
    seek $file, $mark->{size}, 0
        if $mark->{master} == (master() // $mark->{master});
    return <$file>;
}

# ---- events ---------------------------------------------------------------

sub check_events {
    my ($self, $block) = @_;

    my $name = $block->name;
    $self->reload if defined $block->seal;
    my $why = eval { $self->sentinel; 1 } ? '' : $@;
    my @wanted = grep { /\S/ } split /\n/, $block->events;
    s/^\s+|\s+$//g for @wanted;
    my @got = @{ $self->arrived };
    @got = merged(@got) if defined $block->seal;

    my @lines = map {
        $self->rendered($got[$_], split ' ', $wanted[$_] // $wanted[-1] // '')
    } 0 .. $#got;
    if (defined $block->unordered) {
        @lines = $self->matched(\@got, \@wanted);
    }
    main::is(join("\n", @lines, $why), join("\n", @wanted, ''),
        "$name - events");
    return;
}

# Records that came since the block began, sentinels aside.
sub arrived {
    my ($self) = @_;
    return [
        grep { defined $_->{seq} && ($_->{tenant} // '') ne 'sentinel' }
            @{ $self->ledger->lines($self->{from}) }
    ];
}

# An event in the words of a line; words that hold come back as they are.
sub rendered {
    my ($self, $event, @words) = @_;

    my @named = grep { !/^(kind|again)\b/ } @words ? @words
        : qw(type= tenant=);
    my @shown;
    push @shown, "kind=$event->{kind}"
        if $event->{kind} ne 'event' || grep { /^kind=/ } @words;
    push @shown, 'again' if $event->{again};
    for my $word (@named) {
        my ($name, $how, $wanted) = $word =~ /^([@\w.-]+)([=~]?)(.*)$/s
            or die "bad word in events: $word\n";
        my $value = $self->value($event, $name, $wanted);
        push @shown, !defined $value ? $name
            : $how eq '~' && $value =~ /$wanted/ ? $word
            : "$name=" . escaped($value);
    }
    return join ' ', @shown;
}

sub value {
    my ($self, $event, $name, $wanted) = @_;

    if ($name =~ /^@(.*)/) {
        my @values = map { $_->[1] } grep { $_->[0] eq $1 }
            @{ $event->{attributes} // [] };
        return @values > 1 ? join('|', @values) : $values[0];
    }
    if ($name eq 'id') {
        return length($event->{event_id} // '') ? $event->{event_id}
            : 'minted';
    }
    if ($name eq 'attributes') {
        return join ',', map { $_->[0] } @{ $event->{attributes} // [] };
    }
    if ($name eq 'ts') {
        my $ts = $event->{ts};
        my $us = int(time * 1e6) + 1_000_000;
        return 'bucket' if $wanted eq 'bucket' && $ts % BUCKET_US == 0
            && $ts > $self->{since_us} - BUCKET_US && $ts < $us;
        return $ts > $self->{since_us} && $ts < $us ? 'now' : $ts;
    }
    my $value = $event->{$name};
    return ref $value ? join(',', @$value) : $value;
}

sub escaped {
    my ($text) = @_;
    $text =~ s/([^!-\$&-~])/sprintf '%%%02X', ord $1/ge;
    return $text;
}

# Each wanted line takes the first event left that renders as it.
sub matched {
    my ($self, $got, $wanted) = @_;

    my @left = @$got;
    my @lines;
    for my $line (@$wanted) {
        my @words = split ' ', $line;
        for my $i (0 .. $#left) {
            next if $self->rendered($left[$i], @words) ne $line;
            push @lines, $line;
            splice @left, $i, 1;
            last;
        }
    }
    return @lines, map { $self->rendered($_, split ' ', $wanted->[0] // '') }
        @left;
}

# Deltas of one key as one, in order of their first; two of one bucket and
# ring stay apart: they should have been one.
sub merged {
    my @events = @_;

    my (%first, @merged);
    for my $event (@events) {
        my $key = join "\0", map { $_ // '-' } @$event{
            qw(kind tenant type customer resource)},
            map { @$_ } @{ $event->{attributes} // [] };
        my $known = $first{$key};
        if ($event->{kind} ne 'delta' || !$known
            || $known->{seen}{"$event->{session} $event->{ts}"}++)
        {
            push @merged, $first{$key} = { %$event,
                seen => { "$event->{session} $event->{ts}" => 1 } };
            next;
        }
        $known->{count} += $event->{count};
        $known->{quantity} = sum($known->{quantity}, $event->{quantity});
    }
    return @merged;
}

# Two decimals, exactly.
sub sum {
    my ($a, $b) = @_;

    my $nanos = Math::BigInt->new(0);
    for my $text ($a, $b) {
        my ($sign, $whole, $fraction) = $text =~ /^(-?)(\d+)(?:\.(\d+))?$/
            or return "$a + $b";
        my $one = Math::BigInt->new($whole
            . substr(($fraction // '') . '0' x 9, 0, 9));
        $nanos += $sign ? -$one : $one;
    }
    my $digits = sprintf '%010s', $nanos->copy->babs->bstr;
    $digits =~ s/^(\d+)(\d{9})$/$1.$2/;
    $digits =~ s/\.?0+$//;
    return ($nanos < 0 ? '-' : '') . $digits;
}

# ---- nginx ----------------------------------------------------------------

sub wait_until {
    my ($what, $condition, $seconds) = @_;

    my $deadline = time + ($seconds // SECONDS);
    while (time < $deadline) {
        my $value = $condition->();
        return $value if $value;
        sleep 0.01;
    }
    die "no $what in time\n";
}

sub ask {
    my ($self, $path) = @_;
    return Edgemeter::HttpClient->new($self->{edge})
        ->get($path, 'Connection: close');
}

# Until nginx has no connection of a client but ours. A worker that is killed
# leaves its own in the count for good; forgive takes note of them.
sub idle {
    my ($self) = @_;
    wait_until('end of all requests',
        sub { $self->connections == $self->{forgiven} });
    return;
}

sub forgive {
    my ($self) = @_;
    $self->{forgiven} = $self->connections;
    return;
}

sub connections {
    my ($self) = @_;
    my ($count) = $self->ask('/idle')->{body} =~ /^Active connections: (\d+)/;
    return $count - 1;
}

# Sends an event behind all others and waits for it.
sub sentinel {
    my ($self) = @_;

    $self->idle;
    my $number = $$ . '-' . ++$Sentinels;
    my $answer = $self->ask("/sentinel?n=$number");
    die "the sentinel got $answer->{code}\n" if $answer->{code} != 204;
    wait_until('sentinel', sub {
        grep { ($_->{customer} // '') eq $number }
            @{ $self->ledger->lines($self->{from}) };
    });
    return;
}

# ... and until nginx knows that all of them arrived.
sub settle {
    my ($self) = @_;

    $self->sentinel;
    wait_until('verdict', sub { !$self->metric('edgemeter_edge_in_flight') });
    return;
}

sub metrics {
    my ($self) = @_;
    return $self->ask('/metrics?do=metrics')->{body};
}

# One sample's value; the sum of all its labels without them.
sub metric {
    my ($self, $name) = @_;

    my @values = $self->metrics =~ /^\Q$name\E(?:\{[^}]*\})? (-?[\d.]+)$/mg;
    @values or die "there is no metric $name\n";
    my $sum = 0;
    $sum += $_ for @values;
    return $sum;
}

sub master {
    open my $file, '<', main::server_root() . '/logs/nginx.pid' or return;
    my ($pid) = <$file> =~ /(\d+)/;
    return $pid;
}

# The configuration with a change; the block's own comes back behind it.
sub rewrite {
    my ($self, $change) = @_;

    my $path = main::server_root() . '/conf/nginx.conf';
    open my $file, '<', $path or die "$path: $!\n";
    local $_ = do { local $/; <$file> };
    my $before = $_;
    $self->{conf} //= $before;
    $change->();
    die "the configuration did not change\n" if $_ eq $before;
    write_conf($_);
    return;
}

sub restore {
    my ($self) = @_;

    my $conf = delete $self->{conf} // return;
    write_conf($conf);
    $self->reload;
    return;
}

sub write_conf {
    my ($text) = @_;

    my $path = main::server_root() . '/conf/nginx.conf';
    open my $file, '>', $path or die "$path: $!\n";
    print {$file} $text;
    close $file;
    return;
}

sub children {
    my ($pid) = @_;
    open my $file, '<', "/proc/$pid/task/$pid/children" or return;
    return split ' ', <$file> // '';
}

# Until only the workers of the newest configuration take connections: an
# older one that leaves says so in its title.
sub wait_for_workers {
    my $path = main::server_root() . '/conf/nginx.conf';
    open my $conf, '<', $path or die "$path: $!\n";
    my ($count) = map { /^\s*worker_processes\s+(\d+)/ ? $1 : () } <$conf>;
    wait_until('only new workers', sub {
        $count == grep { title($_) =~ /: worker process\s*$/ }
            children(master());
    });
    return;
}

sub title {
    my ($pid) = @_;
    open my $file, '<', "/proc/$pid/cmdline" or return '';
    (my $title = <$file> // '') =~ s/[\0 ]+$//;
    return $title;
}

# New workers; the old ones have ended, and so have their deltas. The sub,
# if any, changes the configuration in $_ first.
sub reload {
    my ($self, $change) = @_;

    $self->rewrite($change) if $change;
    my $master = master();
    my %old = map { $_ => 1 } children($master);
    kill 'HUP', $master;
    wait_until('new worker', sub { grep { !$old{$_} } children($master) });
    wait_until('end of the old workers',
        sub { !grep { $old{$_} } children($master) });
    return;
}

1;
