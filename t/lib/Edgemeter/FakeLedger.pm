package Edgemeter::FakeLedger;

# FakeLedger.pm - what the fake aggregator remembers, shared by its processes.
#
#   connection 1 --+
#   connection 2 --+--> change (under a lock) --> state, log
#   test --------------> tell, lines
#
# Two files in one directory: the state (sessions, known ids, what it was told
# to do) is replaced as a whole under a lock, the log only grows, one JSON
# object a line. Like a database it outlives every connection.
#
#   my $ledger = Edgemeter::FakeLedger->new($dir);
#   $ledger->tell(hold => 1);
#   my $lines = $ledger->lines($position);
#
# What can be told: see DEFAULTS.

use strict;
use warnings;

use Digest::MD5 qw(md5);
use Fcntl qw(:flock O_APPEND O_CREAT O_RDWR O_WRONLY);
use JSON::PP ();
use Storable ();

use constant SUM_SIZE => 16;

my %DEFAULTS = (
    epoch  => 1,     # of the database
    hold   => 0,     # take records, commit none
    credit => 0,     # records on the way at most; 0: as many as there are
    hello  => [],    # words for the next HELLOs, one each
    version => 1,    # highest protocol version spoken
);

my $JSON = JSON::PP->new->latin1->canonical;

sub new {
    my ($class, $dir) = @_;
    return bless {
        state => "$dir/state", lock => "$dir/lock", log => "$dir/records",
        gate => "$dir/gate",
    }, $class;
}

# ---- the state ------------------------------------------------------------

# Runs the sub with the state, alone; what it changes is kept.
sub change {
    my ($self, $code) = @_;

    sysopen my $lock, $self->{lock}, O_RDWR | O_CREAT, 0600
        or die "$self->{lock}: $!\n";
    flock $lock, LOCK_EX or die "flock: $!\n";
    my $state = $self->peek;
    my @answer = $code->($state);
    Storable::nstore($state, "$self->{state}.new");
    rename "$self->{state}.new", $self->{state} or die "rename: $!\n";
    close $lock;
    return wantarray ? @answer : $answer[0];
}

# As it is now; changes to the answer go nowhere.
sub peek {
    my ($self) = @_;
    return Storable::retrieve($self->{state}) if -e $self->{state};
    return {
        %DEFAULTS, hello => [], sessions => {}, known => {}, done => {},
    };
}

sub tell {
    my ($self, %settings) = @_;

    for my $name (keys %settings) {
        exists $DEFAULTS{$name} or die "the ledger has no $name\n";
    }
    $self->change(sub { my ($state) = @_; %$state = (%$state, %settings) });
    return;
}

# Back to an aggregator that answers everything; sessions stay.
sub calm {
    my ($self) = @_;
    $self->tell(%DEFAULTS, hello => [], epoch => $self->peek->{epoch});
    return;
}

# ---- sessions -------------------------------------------------------------

sub session {
    my ($state, $id) = @_;
    return $state->{sessions}{$id} //= {
        last => 0, generation => 0, sums => '', weights => {},
    };
}

# Notes the bytes of (session, seq). Answers 'new', 'again' or 'other': the
# number was used before, for the same bytes or for others.
sub note_bytes {
    my ($session, $seq, $bytes) = @_;

    my $at = ($seq - 1) * SUM_SIZE;
    my $sum = md5($bytes);
    my $zero = "\0" x SUM_SIZE;
    my $size = length $session->{sums};
    $session->{sums} .= "\0" x ($at - $size) if $size < $at;
    my $known = $size > $at ? substr $session->{sums}, $at, SUM_SIZE : $zero;
    return $known eq $sum ? 'again' : 'other' if $known ne $zero;
    substr $session->{sums}, $at, SUM_SIZE, $sum;
    return 'new';
}

# The registry's verdict on an event with a client's id.
sub verdict {
    my ($state, $session, $record) = @_;

    my $id = $record->{event_id} // '';
    return 'accepted' if $id eq '';
    my $key = join "\0", $record->{tenant}, $id;
    my $content = join "\0", $record->{type}, $record->{customer} // '',
        $record->{resource} // '';
    if (my $known = $state->{known}{$key}) {
        return $known->{content} eq $content ? 'duplicate' : 'conflict';
    }
    $state->{known}{$key} = {
        content => $content, session => $session, seq => $record->{seq},
    };
    return 'accepted';
}

# What record seq counts for; a code that is no verdict counts nothing.
sub note_verdict {
    my ($session, $seq, $code, $count) = @_;
    $session->{weights}{$seq} = [$code, $count];
    return;
}

# Requests by verdict, of all that is held now.
sub verdicts {
    my ($session) = @_;

    my @sums = (0, 0, 0, 0);
    for my $weight (values %{ $session->{weights} }) {
        my ($code, $count) = @$weight;
        $sums[$code] += $count if $code < @sums;
    }
    return \@sums;
}

# The database goes back: what came behind record `last` was never there.
sub forget {
    my ($state, $id, $last) = @_;

    my $session = session($state, $id);
    $session->{last} = $last if $last < $session->{last};
    $session->{last} = 0 if $session->{last} < 0;
    delete @{ $session->{weights} }{
        grep { $_ > $session->{last} } keys %{ $session->{weights} } };
    my $known = $state->{known};
    delete @$known{ grep {
        $known->{$_}{session} eq $id && $known->{$_}{seq} > $session->{last}
    } keys %$known };
    return;
}

# ---- gates ----------------------------------------------------------------

sub open_gate {
    my ($self, $name, $how) = @_;

    my $path = "$self->{gate}-$name";
    open my $file, '>', "$path.new" or die "$path: $!\n";
    print {$file} $how // 'open';
    close $file;
    rename "$path.new", $path or die "$path: $!\n";
    return;
}

# How it is open; nothing when it is not.
sub gate {
    my ($self, $name) = @_;
    open my $file, '<', "$self->{gate}-$name" or return '';
    return <$file> // '';
}

# ---- the log --------------------------------------------------------------

sub append {
    my ($self, @lines) = @_;

    return if !@lines;
    sysopen my $log, $self->{log}, O_WRONLY | O_APPEND | O_CREAT, 0644
        or die "$self->{log}: $!\n";
    syswrite $log, join '', map { $JSON->encode($_) . "\n" } @lines;
    close $log;
    return;
}

sub position { return -s $_[0]{log} // 0 }

# All whole lines from a position on; each is decoded once.
sub lines {
    my ($self, $position) = @_;

    my $known = $self->{known} //= [];
    my $end = @$known ? $known->[-1]{end} : 0;
    if (open my $log, '<:raw', $self->{log}) {
        seek $log, $end, 0;
        while (defined(my $line = <$log>)) {
            last if $line !~ /\n\z/;
            my $start = $end;
            $end += length $line;
            push @$known, {
                start => $start, end => $end, line => $JSON->decode($line),
            };
        }
    }
    $position //= 0;
    return [map { $_->{line} } grep { $_->{start} >= $position } @$known];
}

1;
