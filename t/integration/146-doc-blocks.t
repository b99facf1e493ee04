#!/usr/bin/perl

# 146-doc-blocks.t - what the pages show is real: every block of code on every
# page is given to the program that it is for. Blocks that other tests run
# command by command are looked at here as well.
#
#   yaml     meterd check, with the event types that it names; a list without
#            its key belongs to counters
#   nginx    nginx -t, in the first context that takes it
#   json     parsed; indented blocks that begin with { or [, too
#   sql      prepared, on a database with the schema; indented blocks and
#            words in back quotes that begin with SELECT, too
#   console  and other commands: read by the shell; every `meterd ...` has a
#            command, verb and options that its --help has, every `make ...` a
#            target
#   log      tools/check-facts
#   text     what somebody sees; commands in it are looked at
#   none     pictures
#
# A line of nothing but `...` stands for lines that are left out. What cannot
# be checked is in %LEFT_OUT, with the reason.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib", "$FindBin::Bin/../lib";
use File::Find ();
use File::Path qw(make_path);
use File::Temp ();
use JSON::PP ();
use Test::More;
use Edgemeter::Nginx;
use Edgemeter::Page;
use Edgemeter::Process;
use Edgemeter::Stack;

# first line => why the block is not checked
my %LEFT_OUT = (
    'meter_quantity $bytes_sent;' =>
        'two ways to say it, not one configuration',
    '{"event_id":"n2","type":"account.conn' =>
        'a line that is cut off, to show what becomes of it',
);

my $ROOT   = Edgemeter::Stack::root();
my $METERD = $ENV{METERD} || "$ROOT/build/meterd";
my $tmp    = File::Temp->newdir('em-blocks-XXXXXX', TMPDIR => 1);
my %used;

sub slurp {
    my ($path) = @_;
    open my $file, '<', $path or die "$path: $!\n";
    local $/;
    return <$file> // '';
}

sub put {
    my ($name, $text) = @_;
    open my $file, '>', "$tmp/$name" or die "$name: $!\n";
    print {$file} $text;
    close $file or die "$name: $!\n";
    return "$tmp/$name";
}

# (ok, output)
sub run {
    my (@command) = @_;
    my ($status, $out, $err)
        = Edgemeter::Process::capture(command => \@command);
    return ($status == 0, $out . $err);
}

sub pages {
    my @found;
    File::Find::find({ no_chdir => 1,
        wanted => sub { push @found, $_ if /\.md$/ } }, "$ROOT/docs");
    s{^\Q$ROOT\E/}{} for @found;
    return map { Edgemeter::Page->new($_) }
        (map { s{^\Q$ROOT\E/}{}r } glob "$ROOT/*.md"), sort @found;
}

# Blocks of four spaces behind an empty line, not those inside of lists.
sub indented {
    my ($page) = @_;
    my $text = $page->text;
    $text =~ s{^ *```.*?^ *```$}{"\n" x (() = $& =~ /\n/g)}msge;
    my @blocks;
    while ($text =~ /(?<=\n\n)((?: {4}.*\n|\n(?= {4}))+)/g) {
        my ($block, $before) = ($1, substr $text, 0, $-[1]);
        next if $before =~ /^(?:[-*]|\d+\.) (?:(?!^\S).)*\z/ms;
        $block =~ s/^ {4}//mg;
        my $line = 1 + ($before =~ tr/\n//);
        for my $part (split /(?<=\n)(?=\n)/, $block) {
            my ($empty) = $part =~ /^(\n*)/;
            push @blocks, { text => substr($part, length $empty),
                line => $line + length $empty };
            $line += $part =~ tr/\n//;
        }
    }
    return @blocks;
}

my @blocks;    # { page, line, text, language }
my @inline;    # { page, text }
for my $page (pages()) {
    my $text = $page->text;
    push @blocks, map { +{ page => $page->path, %$_ } } $page->blocks;
    for my $block (indented($page)) {
        my $language = $block->{text} =~ /^[\[{]/ ? 'json'
            : $block->{text} =~ /^SELECT\b/  ? 'sql'
            : $block->{text} =~ /^(?:\$ )?(?:curl|meterd|make|psql|kill|install|useradd) /
            ? 'console' : 'text';
        push @blocks, { page => $page->path, language => $language, %$block };
    }
    $text =~ s/^ *```.*?^ *```$//msg;
    push @inline, map { +{ page => $page->path, text => s/\s*\n\s*/ /gr } }
        $text =~ /(?<!`)`([^`]+)`(?!`)/g;
}

sub of_language {
    my ($language) = @_;
    return grep {
        my ($first) = $_->{text} =~ /^(.*)/;
        $used{$first}++ if $LEFT_OUT{$first};
        $_->{language} eq $language && !$LEFT_OUT{$first};
    } @blocks;
}

sub name_of { return "$_[0]{page}:$_[0]{line}" }

# --- rules --------------------------------------------------------------

sub event_types {
    my ($text) = @_;
    my %type;
    while ($text =~ /\b(?:on|increment|decrement|provisioned|decommissioned):\s*(?:\[([^\]]*)\]|([\w.]+))/g) {
        $type{$_} = 1 for split /\s*,\s*/, $1 // $2;
    }
    return sort keys %type;
}

subtest 'yaml' => sub {
    my @yaml = of_language('yaml');
    cmp_ok scalar(@yaml), '>=', 8, 'there are some';
    for my $block (@yaml) {
        my $text = $block->{text};
        $text = "counters:\n$text" if $text =~ /^\s+- counterName/;
        my @files = ('-c', put('block.yaml', $text));
        my @types = event_types($text);
        if (@types && $text !~ /^events:/m) {
            unshift @files, '-c', put('types.yaml',
                "events:\n" . join '', map {"  - { type: $_ }\n"} @types);
        }
        elsif (!@types && $text !~ /^events:/m) {
            unshift @files, '-c', put('types.yaml', "events: [ { type: a } ]\n");
        }
        my ($ok, $said) = run($METERD, 'check', @files);
        ok $ok, name_of($block) or diag $said;
    }
};

# --- nginx --------------------------------------------------------------

my %BASE = (
    meter_aggregator => "meter_aggregator unix:$tmp/meterd.sock;",
    meter_outbox     => "meter_outbox $tmp/outbox 1m;",
    meter_event      => 'meter_event http.request;',
    meter_tenant     => 'meter_tenant $remote_user;',
);

# What stands elsewhere in the configuration that an example is from.
my %NEEDED = (
    '//backend'   => 'upstream backend { server 127.0.0.1:9; }',
    '$api_tenant' => 'map $http_x_api_key $api_tenant { acme-demo acme; }',
);
my $listeners = 0;

# Paths and ports of this test.
sub nginx_text {
    my ($text) = @_;
    $text =~ s/^\s*\.\.\.\s*$//mg;
    $text =~ s{(?<![\w.])/(?:etc|var|run)/[\w./-]*/(?=[\w.-]+)}{$tmp/}g;
    $text =~ s/^\s*listen\s[^;]*;//mg;
    $text =~ s/\bserver\s*\{/"server { listen unix:$tmp\/" . $listeners++ . ".sock;"/ge;
    return $text;
}

sub contexts {
    my ($text) = @_;
    my $base = join "\n", map { $BASE{$_} }
        grep { $text !~ /^\s*$_\s/m } sort keys %BASE;
    my $http = join "\n", $base, "access_log off;",
        (map {"${_}_temp_path $tmp/$_;"}
            qw(client_body proxy fastcgi uwsgi scgi)),
        map { $NEEDED{$_} }
        grep { $text =~ /\Q$_\E\b/ && index($text, $NEEDED{$_}) < 0 }
        sort keys %NEEDED;
    $text =~ s/\bhttp\s*\{/http {\n$http\nMARK/;
    return $text =~ s/MARK//r if $text =~ /MARK/;
    return ($text) if $text =~ /^load_module/m;
    return ("http {\n$http\n$text\n}",
        nginx_text("http {\n$http\nserver {\n$text\n}\n}"),
        nginx_text("http {\n$http\nserver {\nlocation /x/ {\n$text\n}\n}\n}"));
}

subtest 'nginx' => sub {
    my @nginx = of_language('nginx');
    cmp_ok scalar(@nginx), '>=', 20, 'there are some';
    my $program = Edgemeter::Nginx::find_bin();
    my $module = $ENV{MODULE} || "$ROOT/build/ngx_http_meter_module.so";
    make_path("$tmp/outbox", "$tmp/modules");
    symlink $module, "$tmp/modules/ngx_http_meter_module.so";
    put('shop.users', "acme:{PLAIN}secret\n");
    for my $block (@nginx) {
        my @said;
        for my $text (contexts(nginx_text($block->{text}))) {
            my $load = $text =~ /^load_module/m ? '' : "load_module $module;\n";
            my $events = $text =~ /\bevents\s*\{/ ? '' : "events {}\n";
            my $conf = put('nginx.conf', "$load$text\n${events}pid $tmp/pid;\n");
            my ($ok, $said) = run($program, '-t', '-q', '-p', "$tmp/",
                '-e', "$tmp/error.log", '-c', $conf);
            @said = () if $ok;
            last if $ok;
            push @said, $said;
        }
        ok !@said, name_of($block) or diag @said;
    }
};

# --- JSON ---------------------------------------------------------------

subtest 'json' => sub {
    my $json = JSON::PP->new->allow_nonref;
    my @json = of_language('json');
    for my $block (@json) {
        # A page breaks lines where it likes, inside of texts, too.
        (my $text = $block->{text}) =~ s/\n\s*/ /g;
        ok eval { $json->decode($text); 1 }, name_of($block) or diag $@;
    }
    ok 1, scalar(@json) . ' blocks';
};

# --- SQL ----------------------------------------------------------------

subtest 'sql' => sub {
    my $stack = Edgemeter::Stack->for_test;
    $stack->start_schema;
    my @sql = (of_language('sql'),
        grep { $_->{text} =~ /^SELECT .* FROM / } @inline);
    cmp_ok scalar(@sql), '>=', 4, 'there are some';
    for my $block (@sql) {
        for my $statement (split /;\s*\n|;\s*\z/, $block->{text}) {
            next unless $statement =~ /\S/;
            ok eval { $stack->query("PREPARE p AS $statement; DEALLOCATE p"); 1 },
                $block->{page} . ': ' . substr $statement, 0, 50
                or diag $@;
        }
    }
};

# --- commands -----------------------------------------------------------

my %help;

sub help {
    my (@words) = @_;
    return $help{"@words"} //= do {
        my ($ok, $said) = run($METERD, @words, '--help');
        $ok ? $said : '';
    };
}

# What is wrong with the words behind "meterd"; nothing where all is well.
sub wrong {
    my ($line) = @_;
    $line =~ s/\s+#.*//;
    $line =~ s/[;|&<>)`].*//;
    my @words = grep { !/^(?:\.\.\.|…)$/ } split ' ', $line;
    my $command = @words && $words[0] !~ /^-/ ? $words[0] : undef;
    my %known = map { $_ => 1 } help() =~ /^  ([a-z][a-z-]+) /mg;
    if (!defined $command) {
        return @words && $words[0] !~ /^(?:-c|-h|-V|--help|--version)$/
            ? "no option $words[0]" : '';
    }
    return "no command $command" unless $known{$command};
    my $text = help($command);
    my $verb = @words > 1 && $words[1] =~ /^[a-z][a-z-]*$/ ? $words[1] : undef;
    my @verbs = $text =~ /meterd $command ([a-z]+(?:\|[a-z]+)*)\b/g;
    return "no verb $verb of $command"
        if defined $verb && @verbs && !grep { $_ eq $verb } map { split /\|/ } @verbs;
    for my $option (grep {/^-/ && $_ ne '-'} @words) {
        (my $name = $option) =~ s/=.*//;
        return "$command has no option $name" unless $text =~ /(?:^|[\s\[,|])\Q$name\E\b/m;
    }
    return '';
}

subtest 'commands of meterd' => sub {
    my @lines = map {
        my $block = $_;
        (my $text = $block->{text}) =~ s/\\\n\s*/ /g;
        map { +{ page => name_of($block), text => $_ } } split /\n/, $text
    } grep { $_->{language} =~ /^(?:console|text|sh|)$/ } @blocks;
    my $count = 0;
    for my $line (@lines,
        map { +{ page => $_->{page}, text => $_->{text}, inline => 1 } } @inline)
    {
        my $start = $line->{inline} ? qr/^/
            : qr/(?:^|^\$ |\bsudo -u \S+ |\$\(|edgemeter  |-- |\| |build\/)/;
        while ($line->{text} =~ /${start}meterd +((?:-|[a-z]+(?:-[a-z]+)*(?=$|[ ;|)]))(?:.*))/g)
        {
            my $rest = $1;
            # Prose and messages of meterd in a block of text.
            next if !$line->{inline} && $line->{text} =~ /^meterd [a-z]+:? /
                && $line->{text} !~ / -c |--help|^meterd (?:check|run|migrate) /;
            $count++;
            my $why = wrong($rest);
            is $why, '', "$line->{page}: meterd $rest" if length $why;
        }
    }
    cmp_ok $count, '>=', 60, "$count commands were looked at";
};

subtest 'targets of make' => sub {
    my %target = map { $_ => 1 } map { split ' ' }
        slurp("$ROOT/Makefile") =~ /^([a-z][a-z0-9 -]*):(?!=)/mg;
    my %named;
    for my $text (map { $_->{text} } @inline,
        grep { $_->{language} eq 'console' } @blocks)
    {
        $named{$_} = 1 for map { split ' ' }
            $text =~ /(?:^|^\$ )make ((?:[a-z][a-z-]+)(?: [a-z][a-z-]+)*)(?=$| [A-Z])/mg;
    }
    cmp_ok scalar(keys %named), '>=', 8, 'there are some';
    is_deeply [grep { !$target{$_} } sort keys %named], [], 'all are there';
};

subtest 'the shell reads it' => sub {
    for my $block (grep { $_->{language} =~ /^(?:console|sh)$/ } @blocks) {
        my $script = $block->{text} =~ /^\$ /m
            ? join '', map { $_->{command} }
                Edgemeter::Page::commands($block->{page}, $block)
            : $block->{text};
        my ($ok, $said) = run('bash', '-n', put('script', $script));
        ok $ok, name_of($block) or diag $script, $said;
    }
};

subtest 'pictures' => sub {
    for my $path (glob "$ROOT/docs/*.svg") {
        my $text = slurp($path);
        my ($name) = $path =~ m{([^/]+)$};
        my @open;
        while ($text =~ m{<(/?)([a-z]+)\b[^>]*?(/?)>}gi) {
            my ($ends, $tag, $alone) = ($1, $2, $3);
            next if $alone;
            push @open, $tag unless $ends;
            is pop(@open), $tag, "$name: </$tag> closes <$tag>" if $ends;
        }
        is "@open", '', "$name: all is closed";
        like $text, qr/prefers-color-scheme: dark/, "$name: dark and light";
        cmp_ok length($text), '<', 8000, "$name: small";
    }
};

# --- all of it ----------------------------------------------------------

is_deeply [map { name_of($_) } grep {
        $_->{language} !~ /^(?:yaml|nginx|json|sql|console|sh|log|text|http|c|perl|)$/
    } @blocks], [], 'no block is in a language that nobody checks';
is_deeply [grep { !$used{$_} } sort keys %LEFT_OUT], [],
    'what is left out is there';

done_testing;
