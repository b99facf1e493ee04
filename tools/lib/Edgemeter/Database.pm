package Edgemeter::Database;

# Database.pm - roles and connection URLs, on the private cluster or on an
# existing server.
#
#   superuser URL -> sql/bootstrap.sql -> URLs for meterd and meter_owner
#
# The superuser URL bootstraps and nothing else; what meterd gets are the two
# role URLs. On the private cluster they need no password (peer). On an
# existing server they are tried without one first; where that is refused
# each role gets one derived from the administrator's password with PBKDF2,
# so that several nodes given the same URL agree on it.

use strict;
use warnings;
use Digest::SHA qw(hmac_sha256);
use Edgemeter::Cluster;
use Edgemeter::Place;
use Edgemeter::Process;
use Edgemeter::Url;

use constant PBKDF2_ROUNDS => 50_000;

# url: of the superuser; connect: the same with a database that exists (undef:
# looked for); bootstrap: the SQL file; account: who meterd is; admin: who
# bootstraps (undef: the caller, with the caller's libpq settings); secrets: a
# file for a password that cannot be derived.
sub new {
    my ($class, %arg) = @_;
    my $self = bless {%arg}, $class;
    $self->{parsed} = Edgemeter::Url->parse($arg{url});
    return $self;
}

# Makes what is missing, the database too. Dies with a sentence that says what
# is in the way, or with psql's message.
sub bootstrap {
    my ($self) = @_;
    $self->{connect} //= $self->reach;
    $self->run_bootstrap;
    $self->{password} = {};
    return if $self->may_log_in;

    $self->{password} = $self->passwords;
    $self->run_bootstrap(
        METERD_PASSWORD      => $self->{password}{meterd},
        METER_OWNER_PASSWORD => $self->{password}{meter_owner});
    return if $self->may_log_in;
    die "meterd cannot log in: $self->{refused}";
}

# The URL to bootstrap by: the one given, or where its database does not exist
# yet, that of the database "postgres", which is always there.
sub reach {
    my ($self) = @_;
    my $url    = $self->{parsed};
    my ($who, $database) = ($url->user // getpwuid($>), $url->database);
    my $refuse = sub { die "DATABASE_URL: @_\n" };

    for my $try ($self->{url}, $url->text(database => 'postgres')) {
        my ($ok, $out, $errors) = $self->ask($try, <<'SQL');
SELECT rolsuper OR rolcreaterole, rolsuper OR rolcreatedb
FROM pg_roles WHERE rolname = current_user
SQL
        $self->{refused} //= reason($errors);
        next unless $ok;
        my ($makes_roles, $makes_databases) = split /\s/, $out;
        $refuse->("the role \"$who\" may not make roles: name a superuser,"
                . ' or a role with CREATEROLE')
            if $makes_roles ne 't';
        $refuse->("there is no database \"$database\", and the role \"$who\""
                . ' may not make it: create it, or give the role CREATEDB')
            if $try ne $self->{url} && $makes_databases ne 't';
        return $try;
    }
    $refuse->('no PostgreSQL server answers at '
            . ($url->{hosts} || 'the default address') . ": $self->{refused}")
        unless $self->answers;
    return $refuse->("the server does not let \"$who\" in: $self->{refused}");
}

# pg_isready: 2 is no answer, 1 a server that is starting.
sub answers {
    my ($self) = @_;
    my ($status) = Edgemeter::Process::capture(
        command => [
            ($self->{bin} ? "$self->{bin}/" : '') . 'pg_isready', '-q',
            '-t', 10, '-d', $self->{parsed}->without_password
        ],
        env => { $self->libpq_settings },
    );
    return $status >> 8 < 2;
}

# The last words of psql's message, on one line.
sub reason {
    my ($errors) = @_;
    $errors =~ s/\s+/ /g;
    $errors =~ s/^psql: |^error: | $//g;
    $errors =~ s/^connection to server .*? failed: //;
    $errors =~ s/ Is the server running.*//;
    return $errors;
}

# What the caller's shell says to libpq, where the caller is who bootstraps.
sub libpq_settings {
    my ($self) = @_;
    return () if $self->{admin};
    return map { $_ => $ENV{$_} } grep { defined $ENV{$_} } 'HOME',
        grep { /^PG/ && $_ ne 'PGDATABASE' } keys %ENV;
}

sub ask {
    my ($self, $url, $sql, %arg) = @_;
    return Edgemeter::Cluster::run_psql(
        url       => $url,
        bin       => $self->{bin},
        account   => $self->{admin},
        variables => { database => $self->{parsed}->database },
        env       => { $self->libpq_settings, %arg },
        sql       => $sql,
    );
}

sub run_bootstrap {
    my ($self, %env) = @_;
    open my $file, '<', $self->{bootstrap}
        or die "$self->{bootstrap}: $!\n";
    my $sql = do { local $/; <$file> };
    my ($ok, undef, $errors) = $self->ask($self->{connect}, $sql, %env);
    die "the database cannot be prepared:\n$errors" unless $ok;
    return;
}

# Both roles, from where meterd will be.
sub may_log_in {
    my ($self) = @_;
    for my $role (qw(meterd meter_owner)) {
        my ($ok, undef, $errors) = Edgemeter::Cluster::run_psql(
            url     => $self->role_url($role),
            bin     => $self->{bin},
            account => $self->{account},
            sql     => 'SELECT 1'
        );
        next if $ok;
        $self->{refused} = $errors;
        return 0;
    }
    return 1;
}

sub role_url {
    my ($self, $role) = @_;
    return $self->{parsed}->for_role($role, $self->{password}{$role});
}

sub passwords {
    my ($self) = @_;
    my $secret = $self->{parsed}->password // $self->random_secret;
    return { map { $_ => pbkdf2($secret, "edgemeter role $_") }
            qw(meterd meter_owner) };
}

# Without an administrator's password to start from: made once and kept.
sub random_secret {
    my ($self) = @_;
    if (open my $file, '<', $self->{secrets}) {
        chomp(my $line = <$file> // '');
        return $line if length $line;
    }
    open my $random, '<:raw', '/dev/urandom' or die "/dev/urandom: $!\n";
    read($random, my $bytes, 32) == 32 or die "/dev/urandom: $!\n";
    my $secret = unpack 'H*', $bytes;
    Edgemeter::Place::replace_file($self->{secrets}, 0600, undef,
        "$secret\n");
    return $secret;
}

# PBKDF2-HMAC-SHA-256, one block, as hex.
sub pbkdf2 {
    my ($secret, $salt) = @_;
    my $turn = hmac_sha256($salt . pack('N', 1), $secret);
    my $sum  = $turn;
    for (2 .. PBKDF2_ROUNDS) {
        $turn = hmac_sha256($turn, $secret);
        $sum ^= $turn;
    }
    return unpack 'H*', $sum;
}

1;
