#!/usr/bin/perl

# 130-monitoring.t - alert rules, dashboard and /metrics, by promtool.
#
# What they ask for exists, every alert has its row in docs/operations.md, and
# what is scraped is what Prometheus understands.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use File::Temp ();
use JSON::PP ();
use Test::More;
use Edgemeter::Process;
use Edgemeter::Stack;

my $root      = Edgemeter::Stack::root();
my $place     = "$root/examples/monitoring";
my $rules     = slurp("$place/edgemeter.rules.yml");
my $dashboard = JSON::PP->new->decode(slurp("$place/edgemeter.json"));
my %documented = map { $_ => 1 }
    slurp("$root/docs/metrics.md") =~ /^\| `(\w+)/mg;

sub slurp {
    my ($path) = @_;
    open my $in, '<', $path or die "$path: $!";
    local $/;
    return scalar <$in>;
}

sub promtool {
    my (@command) = @_;
    return Edgemeter::Process::capture(command => ['promtool', @command]);
}

# The series that an expression names; those of a histogram by its own name.
sub metrics {
    my ($text) = @_;
    my %named = map { $_ => 1 } $text
        =~ /\b((?:edgemeter|counter_update|duplicate_event|projection)_\w+)/g;
    return map { s/_(?:bucket|sum|count)$//r } sort keys %named;
}

subtest 'alert rules' => sub {
    my ($status, $out, $err)
        = promtool('check', 'rules', "$place/edgemeter.rules.yml");
    is $status, 0, 'promtool takes them' or diag $out . $err;
    ($status, $out, $err)
        = promtool('test', 'rules', "$place/edgemeter.test.yml");
    is $status, 0, 'they fire when they should, and only then'
        or diag $out . $err;

    my $expressions = join "\n", $rules =~ /^\s+expr: (.*)$/mg;
    is_deeply [grep { !$documented{$_} } metrics($expressions)], [],
        'every metric is one of docs/metrics.md';

    my $operations = slurp("$root/docs/operations.md");
    is_deeply [grep { index($operations, "| `$_` |") < 0 }
        $rules =~ /alert: (\w+)/g], [], 'every alert is in docs/operations.md';
};

subtest 'dashboard' => sub {
    my @panels = @{ $dashboard->{panels} };
    my %ids = map { $_->{id} => 1 } @panels;
    is keys %ids, @panels, 'ids are different';

    my @expressions = map { $_->{expr} } map { @{ $_->{targets} || [] } } @panels;
    cmp_ok @expressions, '>', 20, 'there is something to see';
    is_deeply [grep { !$documented{$_} } metrics(join "\n", @expressions)], [],
        'every metric is one of docs/metrics.md';

    # Variables of Grafana stand for durations and texts.
    my $file = File::Temp->new(SUFFIX => '.yml');
    print {$file} "groups:\n  - name: panels\n    rules:\n";
    for my $expression (@expressions) {
        my $plain = $expression =~ s/\$__rate_interval|\$__range/5m/gr
            =~ s/\$instance/.*/gr =~ s/'/''/gr;
        print {$file} "      - { record: a:b, expr: '$plain' }\n";
    }
    close $file;
    my ($status, $out, $err) = promtool('check', 'rules', "$file");
    unlike $out . $err, qr/could not parse|parse error/, 'expressions parse'
        or diag $out . $err;
    is grep({ $_->{gridPos}{x} + $_->{gridPos}{w} > 24 } @panels), 0,
        'no panel is wider than the page';
};

subtest '/metrics' => sub {
    my $stack = Edgemeter::Stack->for_test->start;
    my $page = $stack->http->get('/metrics');
    is $page->{status}, 200, 'scraped';
    my $file = File::Temp->new;
    print {$file} $page->{body};
    close $file;
    my ($status, $out, $err) = Edgemeter::Process::capture(command =>
        ['sh', '-c', 'exec promtool check metrics <"$1"', 'sh', "$file"]);

    # That name is fixed, and times are kept in whole microseconds.
    my @said = grep { !/^counter_update_conflict_retries |use base unit/ }
        grep { /\S/ } split /\n/, $out . $err;
    is_deeply \@said, [], 'promtool has nothing else to say';

    my %scraped = map { $_ => 1 } $page->{body} =~ /^# TYPE (\w+)/mg;
    is_deeply [grep { !$scraped{$_} } metrics(join "\n",
        $rules =~ /^\s+expr: (.*)$/mg)], [], 'what alerts ask for is there';
    $stack->stop;
};

done_testing;
