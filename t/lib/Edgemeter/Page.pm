package Edgemeter::Page;

# Page.pm - what a page of the documentation shows, for tests that run it.
#
#   my $page = Edgemeter::Page->new('docs/quickstart.md');
#   my @steps = $page->steps;
#   my @got = Edgemeter::Page::run_steps($directory, \&change, @steps);
#   is normal($got[0]), normal($steps[0]{output});
#
# A step is a command of a ```console block or a file:
#
#   $ command             a line with "$ " begins a command,
#       and more          indented lines right below continue it,
#   what it prints        and what follows is its output; `...` alone
#                         stands for some output
#
# A block of another language whose first line is a comment with a path and
# nothing else is the content of that file.

use strict;
use warnings;
use Exporter 'import';
use JSON::PP ();
use Edgemeter::Stack;

our @EXPORT_OK = qw(normal explained);

my $JSON = JSON::PP->new->canonical->allow_nonref;
my $MARK = "\n--- next command ---\n";

sub new {
    my ($class, $path) = @_;
    my $full = Edgemeter::Stack::root() . "/$path";
    open my $file, '<', $full or die "$full: $!\n";
    local $/;
    return bless { path => $path, text => scalar <$file> }, $class;
}

sub path { return $_[0]{path} }
sub text { return $_[0]{text} }

# All code blocks: { language, text, line }; those inside lists, too.
sub blocks {
    my ($self, @languages) = @_;
    my (@blocks, $open, $indent);
    my $number = 0;
    for my $line (split /^/, $self->{text}) {
        $number++;
        if (!$open && $line =~ /^( *)```(\w*)\s*$/) {
            $indent = $1;
            $open = { language => $2, text => '', line => $number + 1 };
        }
        elsif ($open && $line =~ /^ *```\s*$/) {
            push @blocks, $open;
            undef $open;
        }
        elsif ($open) {
            $line =~ s/^$indent//;
            $open->{text} .= $line;
        }
    }
    die "$self->{path}: a block is not closed\n" if $open;
    return @blocks unless @languages;
    my %wanted = map { $_ => 1 } @languages;
    return grep { $wanted{ $_->{language} } } @blocks;
}

# [{ command, output, line }] and [{ file, content, line }], in order.
sub steps {
    my ($self) = @_;
    my @steps;
    for my $block ($self->blocks) {
        if ($block->{language} ne 'console') {
            push @steps, { file => $1, content => $block->{text},
                    line => $block->{line} }
                if length $block->{language}
                && $block->{text} =~ m{\A# (/\S+)\n};
            next;
        }
        push @steps, commands($self->{path}, $block);
    }
    return @steps;
}

# The commands of one block.
sub commands {
    my ($path, $block) = @_;
    my $number = $block->{line} - 1;
    my @commands;
    for my $line (split /^/, $block->{text}) {
        $number++;
        if ($line =~ s/^\$ //) {
            push @commands,
                { command => $line, output => '', line => $number };
        }
        elsif (!@commands) {
            die "$path:$number: output before the first command\n";
        }
        else {
            my $goes_on = $line =~ /^\s/ && $commands[-1]{output} eq '';
            $commands[-1]{ $goes_on ? 'command' : 'output' } .= $line;
        }
    }
    return @commands;
}

# All commands in one shell, in `directory`; the output of each. `change`
# turns a command into what is run.
sub run_steps {
    my ($directory, $change, @steps) = @_;
    my $script = "exec 2>&1\n";
    for my $step (@steps) {
        $script .= $change->($step) . "printf %s '$MARK'\n";
    }
    open my $pipe, '-|', 'bash', '-c', 'cd "$1" && eval "$2"', 'bash',
        "$directory", $script
        or die "bash: $!\n";
    my $output = do { local $/; <$pipe> };
    close $pipe;
    return split /\Q$MARK\E/, $output, -1;
}

# One form for what means the same; times of the server, cursors and minted
# ids are not compared.
sub normal {
    my ($text) = @_;
    $text =~ s/\r\n/\n/g;
    $text =~ s/("(?:(?:last_)?updated_at|first_seen_at|recorded_at|seen_at)":)"[^"]+Z"/$1"T"/g;
    $text =~ s/("cursor":)"[^"]+"/$1"C"/g;
    $text =~ s/"edge-[0-9a-f]{32}-\d+-\d+"(,"type":"[^"]*",\s*"ts":)"[^"]+"/"I"$1"T"/g;
    my $value = eval { $JSON->decode($text) };
    return $JSON->encode($value) if ref $value;
    $text =~ s/\s+\z//;
    return $text;
}

# Does a page show this line of a log? Numbers and what stands in quotation
# marks may be others. Lines of meterd are found by their message.
sub explained {
    my ($text, $line) = @_;
    if ($line =~ /^\{.*?"message":("(?:[^"\\]|\\.)*")/) {
        return index($text, qq("message":$1)) >= 0 ? 1 : 0;
    }
    my $wanted = shape($line);
    return scalar grep { index(shape($_), $wanted) >= 0 } split /\n/, $text;
}

sub shape {
    my ($line) = @_;
    $line =~ s/"[^"]*"/""/g;
    $line =~ s/\d+/0/g;
    return $line;
}

1;
