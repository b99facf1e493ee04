package Edgemeter::Settings;

# Settings.pm - the configuration files of a run.
#
#   NGINX_CONF template -> nginx.conf      placeholders filled in
#   RULES               -> itself, or a copy that the service user can read
#   this installation   -> meterd.yaml     database, listen, node ...
#
# meterd reads RULES first and meterd.yaml second. Each may hold a password, so
# what is written here is for the service user alone.

use strict;
use warnings;
use Sys::Hostname ();
use Edgemeter::Nginx;
use Edgemeter::Place;

# place, account, port; rules and nginx_conf: files.
sub new {
    my ($class, %arg) = @_;
    return bless {%arg}, $class;
}

sub write_nginx_conf {
    my ($self, $module) = @_;
    my $place  = $self->{place};
    my $target = $place->path('nginx.conf');
    die "NGINX_CONF must not be the file that is written: $target\n"
        if same_file($self->{nginx_conf}, $target);
    my $text = Edgemeter::Nginx::render(
        $self->{nginx_conf},
        RUN_DIR => $place->state,
        PORT    => $self->{port},
        MODULE  => $module,
    );
    Edgemeter::Place::replace_file($target, 0600, $self->{account}, $text);
    return;
}

# A copy of the rules follows the original when this is called again.
sub refresh_rules {
    my ($self) = @_;
    my $rules = $self->{rules};
    my @stat = stat $rules or die "there is no rules file $rules\n";
    my $seen = join ':', @stat[1, 7, 9];
    return if ($self->{rules_seen} // '') eq $seen;

    die "RULES must not be the file that is written: $rules\n"
        if same_file($rules, $self->{place}->path('meterd.yaml'));
    $self->{rules_path} = $self->{place}->readable($rules, 0600);
    $self->{rules_seen} = $seen;
    return;
}

sub same_file {
    my @a = stat $_[0] or return 0;
    my @b = stat $_[1] or return 0;
    return $a[0] == $b[0] && $a[1] == $b[1];
}

# The keys that belong to this installation, apart from the rules. `more`
# adds lines or replaces some: name => YAML text.
sub write_meterd_yaml {
    my ($self, $database, $admin_database, $more) = @_;
    my $place = $self->{place};
    my $node  = Sys::Hostname::hostname() . '-' . $self->{port};
    $node =~ s/[^A-Za-z0-9_.-]/-/g;
    my %value = (
        database      => quote($database),
        adminDatabase => quote($admin_database),
        listen        => quote('unix:' . $place->path('meterd.sock')),
        node          => quote($node),
        stateDir      => quote($place->path('meterd')),
        outbox        => quote($place->path('outbox')),
        %{ $more // {} },
    );
    Edgemeter::Place::replace_file($place->path('meterd.yaml'), 0600,
        $self->{account}, join '', map {"$_: $value{$_}\n"} sort keys %value);
    return;
}

# A YAML scalar in single quotes.
sub quote {
    my ($text) = @_;
    $text =~ s/'/''/g;
    return "'$text'";
}

sub arguments {
    my ($self) = @_;
    return ('-c', $self->{rules_path}, '-c',
        $self->{place}->path('meterd.yaml'));
}

1;
