package Edgemeter::Url;

# Url.pm - the parts of a PostgreSQL connection URL that a run changes.
#
#   my $url = Edgemeter::Url->parse('postgresql://admin:pw@db:5432/usage');
#   $url->for_role('meterd', $password);   # same server, another role
#
# Only the user, the password and the database are looked at; hosts and
# parameters stay as they were written.

use strict;
use warnings;

sub parse {
    my ($class, $text) = @_;
    my ($user_info, $hosts, $database, $query)
        = $text =~ m{^postgres(?:ql)?://(?:([^@/?]*)@)?([^/?]*)
                     (?:/([^?]*))?(?:\?(.*))?$}x
        or die "DATABASE_URL must look like"
        . " postgresql://user:password\@host:port/database\n";

    my ($user, $password) = split /:/, $user_info // '', 2;
    my %self = (
        hosts    => $hosts,
        user     => decode($user),
        password => decode($password),
        database => decode($database),
    );
    my @kept;
    for my $pair (split /&/, $query // '') {
        my ($name, $value) = split /=/, $pair, 2;
        if ($name =~ /^(user|password|dbname)$/) {
            my %as = (dbname => 'database');
            $self{ $as{$name} // $name } = decode($value);
        }
        else {
            push @kept, $pair;
        }
    }
    $self{parameters} = \@kept;
    for my $name (qw(user password database)) {
        delete $self{$name} unless length($self{$name} // '');
    }
    return bless \%self, $class;
}

sub user     { return $_[0]{user} }
sub password { return $_[0]{password} }

# libpq's rule: the database is named like the user unless said otherwise.
sub database { return $_[0]{database} // $_[0]{user} // 'postgres' }

sub text {
    my ($self, %change) = @_;
    my %part = (%$self, database => $self->database, %change);
    my $who  = encode($part{user} // '');
    $who .= ':' . encode($part{password}) if defined $part{password};
    return join '', 'postgresql://', length $who ? "$who\@" : '',
        $part{hosts}, '/', encode($part{database}),
        @{ $part{parameters} } ? '?' . join('&', @{ $part{parameters} }) : '';
}

sub without_password { return $_[0]->text(password => undef) }

# The same server and database for another role.
sub for_role {
    my ($self, $role, $password) = @_;
    return $self->text(user => $role, password => $password);
}

sub decode {
    my ($text) = @_;
    $text =~ s/%([0-9A-Fa-f]{2})/chr hex $1/ge if defined $text;
    return $text;
}

sub encode {
    my ($text) = @_;
    $text =~ s/([^A-Za-z0-9_.~-])/sprintf '%%%02X', ord $1/ge;
    return $text;
}

1;
