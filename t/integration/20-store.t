#!/usr/bin/perl

# 20-store.t - the store against a real server: pipelines with an error in
# the middle, COPY, lost connections, refusals, fencing, readers of many
# tenants, a commit that is not replicated. store_client.c, store_copy.c and
# migrate_client.c do the work and say what happened; this side moves the server.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/../../tools/lib";
use File::Copy ();
use Test::More;
use Edgemeter::Process;
use Edgemeter::Stack;
use Edgemeter::Wait qw(wait_until poll_until);

my $build = ($ENV{METERD} // '') =~ m{build-asan/} ? 'build-asan' : 'build';
my $stack = Edgemeter::Stack->for_test->start_schema;
my $cluster = $stack->cluster;
my $scratch = $stack->place->path('tmp');
my $runs    = 0;

# The service user may be unable to enter the checkout.
for my $name (qw(store_client store_copy migrate_client)) {
    File::Copy::copy(
        Edgemeter::Stack::root() . "/$build/integration/$name",
        "$scratch/$name") or die "$name: $!\n";
    chmod 0755, "$scratch/$name";
}
my $state = directory('state');

sub directory {
    my ($name) = @_;
    mkdir "$scratch/$name", 0750 or die "$scratch/$name: $!\n";
    $stack->account->own("$scratch/$name");
    return "$scratch/$name";
}

sub slurp {
    my ($path) = @_;
    open my $file, '<', $path or return '';
    local $/;
    return <$file> // '';
}

sub start {
    my ($scenario, %env) = @_;
    my $log = "$scratch/client" . ++$runs . '.log';
    my $process = Edgemeter::Process->spawn(
        name    => $scenario,
        log     => $log,
        user    => $stack->account,
        command => $scenario eq 'copy'
            ? ["$scratch/store_copy"]
            : ["$scratch/store_client", $scenario],
        env     => {
            STORE_URL       => $cluster->url('meterd', 'edgemeter'),
            STORE_ADMIN_URL => $cluster->url('meter_owner', 'edgemeter'),
            STORE_STATE_DIR => $state,
            %env,
        },
    );
    return { process => $process, log => $log };
}

# What the client said, without its log lines.
sub said {
    my ($run) = @_;
    return join '', grep { !/^\{/ } split /^/, slurp($run->{log});
}

sub ended {
    my ($run) = @_;
    wait_until { !$run->{process}->alive } 70, 'the client ends';
    return said($run);
}

sub outcome { return ended(start(@_)) }

sub saw {
    my ($run, $pattern, $what) = @_;
    my $found = poll_until { said($run) =~ $pattern } 30;
    ok $found, $what or diag slurp($run->{log});
    return;
}

sub setting {
    my ($sql) = @_;
    $cluster->query($sql);
    $cluster->query('SELECT pg_reload_conf()');
    return;
}

subtest 'an error in the middle of a pipeline' => sub {
    is outcome('pipeline'), <<'END', 'each piece has its own answer';
begin ok
first ok
middle error 22021
behind aborted
commit aborted
failed transaction error 25P02
end error 25P02
no right error 42501
again ok
done
END
};

subtest 'partitions are made, floors are known' => sub {
    is outcome('partition'), <<'END', 'on demand';
floor 19783, ten years 16860
made 1 exists 1
done
END
    is $cluster->query(
        q{SELECT count(*) FROM meter.partition_days('event')}), 6,
        'four days around today and the two asked for';
    like outcome('partition'), qr/^made 1 exists 1$/m, 'a second time too';
};

subtest 'COPY in pieces, and an error inside it' => sub {
    is outcome('copy'), <<'END', 'the connection serves on';
bytes over 10 MiB
copy ok
rows 40000
bad copies 400
done
END
    is $cluster->query('SELECT count(*) FROM meter.event'), 40000,
        'whole or not at all';
};

subtest 'a dropped connection answers everything once' => sub {
    is outcome('reset'), <<'END', 'in order, then reconnects';
begin lost
queued lost
late lost
lost: on purpose
ready again
done
END
};

subtest 'the server restarts' => sub {
    my $run = start('restart');
    saw $run, qr/\Aready\nworking\n/, 'works';
    $cluster->stop('immediate');
    saw $run, qr/^lost: /m, 'says that it lost the connection';
    $cluster->start;
    saw $run, qr/^lost: .*^ready\nworking\n/ms,
        'statements are prepared again on the new connection';
    $cluster->query(<<'SQL');
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'meterd client'
SQL
    saw $run, qr/(?:^lost: .*?^ready\nworking\n.*?){2}/ms,
        'and after its backend was ended';
    $run->{process}->stop('KILL', 5);
};

subtest 'unsafe servers and roles are refused' => sub {
    my @servers = (
        ['fsync',              'off',          qr/fsync is off/],
        ['full_page_writes',   'off',          qr/full_page_writes is off/],
        ['synchronous_commit', 'off',          qr/synchronous_commit is off/],
        ['synchronous_commit', 'local',        qr/remote_apply are fine/],
        ['synchronous_commit', 'remote_write', qr/remote_apply are fine/],
    );
    for my $case (@servers) {
        my ($name, $value, $reason) = @$case;
        setting("ALTER SYSTEM SET $name = $value");
        wait_until {
            $cluster->query("SHOW $name") eq $value
        } 10, "$name is $value";
        like outcome('check-writer'), qr/^refused: .*$reason/m,
            "$name = $value";
        setting("ALTER SYSTEM RESET $name");
        wait_until { $cluster->query("SHOW $name") eq 'on' } 10,
            "$name is on";
    }

    my @readers = (
        [   'ALTER ROLE meter_reader BYPASSRLS',
            'ALTER ROLE meter_reader NOBYPASSRLS',
            qr/BYPASSRLS/
        ],
        [   'GRANT meter_owner TO meter_reader',
            'REVOKE meter_owner FROM meter_reader',
            qr/is owned by it/
        ],
        [   'GRANT SELECT ON meter.event_20260301 TO meter_reader',
            'REVOKE SELECT ON meter.event_20260301 FROM meter_reader',
            qr/partition that it may use directly/
        ],
        [   'ALTER TABLE meter.counter NO FORCE ROW LEVEL SECURITY',
            'ALTER TABLE meter.counter FORCE ROW LEVEL SECURITY',
            qr/counter has row-level security not enabled and forced/
        ],
        [   'ALTER TABLE meter.event_20260301 DISABLE ROW LEVEL SECURITY',
            'ALTER TABLE meter.event_20260301 ENABLE ROW LEVEL SECURITY',
            qr/event_20260301 has row-level security not enabled/
        ],
        [   'CREATE VIEW meter.leak AS SELECT * FROM meter.event;
             GRANT SELECT ON meter.leak TO meter_reader',
            'DROP VIEW meter.leak',
            qr/leak is a view without security_invoker/
        ],
        [   q{INSERT INTO meter.schema_migration
              VALUES (9999, 'x', 'x', now())},
            'DELETE FROM meter.schema_migration WHERE number = 9999',
            qr/schema is version 9999/
        ],
        [   'ALTER SCHEMA meter RENAME TO away',
            'ALTER SCHEMA away RENAME TO meter',
            qr/run `meterd migrate`/
        ],
        [   'REVOKE USAGE ON SCHEMA meter FROM meter_reader',
            'GRANT USAGE ON SCHEMA meter TO meter_reader',
            qr/lacks rights/
        ],
        [   'ALTER ROLE meterd SUPERUSER',
            'ALTER ROLE meterd NOSUPERUSER',
            qr/superuser/
        ],
    );
    for my $case (@readers) {
        my ($break, $mend, $reason) = @$case;
        $cluster->query($break);
        my $said = outcome('check-reader');
        $cluster->query($mend);
        like $said, qr/^refused: .*$reason/m, $break =~ s/\s+/ /gr;
    }
    is outcome('check-reader'), "ready\ndone\n", 'and put right: ready';
};

subtest 'migrations' => sub {
    ok eval { $stack->migrate; 1 }, 'a second run finds nothing to do' or diag $@;
    my @files = glob Edgemeter::Stack::root() . '/sql/migrations/*.sql';
    is $cluster->query('SELECT max(number) FROM meter.schema_migration'),
        scalar @files, 'each is noted once';
    my $good = $cluster->query(
        'SELECT sha256 FROM meter.schema_migration WHERE number = 1');
    $cluster->query(
        q{UPDATE meter.schema_migration SET sha256 = 'x' WHERE number = 1});
    ok !eval { $stack->migrate; 1 }, 'a changed migration is refused';
    $cluster->query(qq{UPDATE meter.schema_migration SET sha256 = '$good'
        WHERE number = 1});
    $cluster->query(q{INSERT INTO meter.schema_migration
        VALUES (9999, '9999_future.sql', 'x', now())});
    ok !eval { $stack->migrate; 1 }, 'a newer schema is refused';
    $cluster->query('DELETE FROM meter.schema_migration WHERE number = 9999');

    $cluster->query('DROP FUNCTION meter.token_find(text)');
    ok eval { $stack->migrate; 1 }, 'put right: runs' or diag $@;
    is $cluster->query(q{SELECT to_regprocedure('meter.token_find(text)')
        IS NOT NULL}), 't', 'functions are re-created each time';
};

# The migrator has one migration of ours so far: the steps of later versions are
# made up, files of a directory that follow it.
subtest 'migrations of a later version' => sub {
    my $steps = directory('steps');
    my $step  = sub {
        my ($name, $sql) = @_;
        open my $file, '>', "$steps/$name" or die "$name: $!\n";
        print {$file} $sql;
        close $file;
    };
    my $run = sub {
        my ($status, $out, $err) = Edgemeter::Process::capture(
            command => ["$scratch/migrate_client", $steps],
            user    => $stack->account,
            env     => {
                STORE_ADMIN_URL => $cluster->url('meter_owner', 'edgemeter')
            });
        return (($status >> 8) . " $out", $err);
    };
    my $list = sub {
        return join ' ', map {s/\t/:/r} $cluster->query(
            'SELECT number, name FROM meter.schema_migration
            WHERE number > 1 ORDER BY number');
    };

    is +($run->())[0], "0 applied 0\n", 'none is missing';

    # The second one needs the first: in the order of their numbers.
    $step->('0002_made.sql', 'CREATE TABLE meter.made (n integer);
        INSERT INTO meter.made VALUES (1);');
    $step->('0003_more.sql', 'ALTER TABLE meter.made ADD COLUMN m integer;
        UPDATE meter.made SET m = n + 1;');
    is +($run->())[0], "0 applied 2\n", 'those that are missing';
    is $list->(), '2:0002_made.sql 3:0003_more.sql', 'are noted in their order';
    is $cluster->query('SELECT n, m FROM meter.made'), "1\t2",
        'and did what they say';
    is +($run->())[0], "0 applied 0\n", 'once each';

    # One that fails leaves nothing of itself, and those before it stay.
    $step->('0004_good.sql', 'UPDATE meter.made SET n = 4;');
    $step->('0005_bad.sql', 'UPDATE meter.made SET n = 5;
        SELECT 1 / 0;');
    $step->('0006_after.sql', 'UPDATE meter.made SET m = 6;');
    $cluster->query('DROP FUNCTION meter.token_find(text)');
    my ($said, $log) = $run->();
    is $said, "1 applied 1\n", 'up to the one that fails';
    like $log, qr/0005_bad\.sql.*division by zero/s, 'which is told';
    is $list->(), '2:0002_made.sql 3:0003_more.sql 4:0004_good.sql',
        'it is not noted, nor is what comes after it';
    is $cluster->query('SELECT n, m FROM meter.made'), "4\t2",
        'and nothing of it is left';
    is $cluster->query(q{SELECT to_regprocedure('meter.token_find(text)')
        IS NULL}), 't', 'functions wait for the last migration';
    $step->('0005_bad.sql', 'UPDATE meter.made SET n = 5;');
    is +($run->())[0], "0 applied 2\n", 'put right: it goes on there';
    is $cluster->query('SELECT n, m FROM meter.made'), "5\t6", 'to the end';
    is $cluster->query(q{SELECT to_regprocedure('meter.token_find(text)')
        IS NOT NULL}), 't', 'and makes the functions';

    # One in the middle was edited after it was applied.
    $step->('0003_more.sql', 'ALTER TABLE meter.made ADD COLUMN o integer;');
    ($said, $log) = $run->();
    is $said, "1 applied 0\n", 'a changed one in the middle is refused';
    like $log, qr/an applied migration differs.*0003_more\.sql/s,
        'by its name';

    ok !eval { $stack->migrate; 1 }, 'an older meterd refuses the schema';
    like $@, qr/newer than this meterd.*0002_made\.sql/s,
        'and names the first it does not know';
    $cluster->query('DROP TABLE meter.made;
        DELETE FROM meter.schema_migration WHERE number > 1');
    ok eval { $stack->migrate; 1 }, 'and all is as before' or diag $@;
};

subtest 'one lane to a writer' => sub {
    is outcome('lane'), "ready epoch 1 last 0 batch 0 copy 1\ndone\n",
        'the first instance';
    my $old = start('lane-stay');
    saw $old, qr/^ready epoch 2/m, 'the second bumps the epoch';
    like outcome('lane'), qr/^no lane$/m,
        'while it runs, no other may use the state directory';

    my $copy = directory('copy');
    File::Copy::copy("$state/writer-0", "$copy/writer-0") or die "$!\n";
    chmod 0600, "$copy/writer-0";
    $stack->account->own("$copy/writer-0");
    like outcome('lane', STORE_STATE_DIR => $copy), qr/^ready epoch 3 /m,
        'a copy of the directory fences it';
    $cluster->query(<<'SQL');
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'meterd lane-0'
SQL
    wait_until { !$old->{process}->alive } 30, 'the fenced instance ends';
    like slurp($old->{log}), qr/another instance took this writer/,
        'the fenced instance says so and ends';
    isnt $old->{process}->status, 0, 'not as if nothing had happened';

    $cluster->query('ALTER ROLE meter_writer NOBYPASSRLS');
    like outcome('lane'), qr/^ready epoch 4 .* copy 0$/m,
        'without BYPASSRLS it knows that it may not COPY';
    $cluster->query('ALTER ROLE meter_writer BYPASSRLS');
};

subtest 'an orphaned backend is waited for' => sub {
    my $id = slurp("$state/writer-0");
    chomp $id;
    my $orphan = Edgemeter::Process->spawn(
        name    => 'orphan',
        log     => "$scratch/orphan.log",
        user    => $stack->account,
        command => [
            "$cluster->{bin}/psql", '-X', '-q',
            '-d', $cluster->url('postgres', 'edgemeter'),
            '-c', "BEGIN; UPDATE meter.writer_seq SET batch = 7, last = 9
                WHERE writer = '$id'; SELECT pg_sleep(2); COMMIT"
        ]);
    wait_until {
        $cluster->query(q{SELECT count(*) FROM pg_stat_activity
            WHERE query LIKE '%pg_sleep(2)%' AND wait_event = 'PgSleep'})
    } 10, 'the orphan holds the row';
    like outcome('lane'), qr/^ready epoch \d+ last 9 batch 7 /m,
        'its commit is in the numbers that the lane reads';
    $orphan->stop('TERM', 5);
};

subtest 'a commit that is not replicated is not a commit' => sub {
    setting(q{ALTER SYSTEM SET synchronous_standby_names = 'nowhere'});
    my $run = start('lane-stay');
    my $pid = wait_until {
        $cluster->query(q{SELECT pid FROM pg_stat_activity
            WHERE application_name = 'meterd lane-0'
                AND wait_event = 'SyncRep'})
    } 30, 'the lane waits for a standby';
    unlike said($run), qr/ready/, 'not ready while it waits';
    $cluster->query("SELECT pg_cancel_backend($pid)");
    ok((poll_until { slurp($run->{log}) =~ /a commit is not replicated/ } 30),
        'the warning is seen');
    unlike said($run), qr/ready/, 'still not ready';
    setting('ALTER SYSTEM RESET synchronous_standby_names');
    saw $run, qr/^ready epoch/m, 'ready once it commits for good';
    $run->{process}->stop('TERM', 5);
};

subtest 'readers of many tenants' => sub {
    $cluster->query(<<'SQL');
INSERT INTO meter.counter
SELECT 'tenant-' || i, 'c', 'k', '{"t":"' || i || '"}', i, now()
FROM generate_series(0, 15) AS i
SQL
    is outcome('reader'), <<'END', 'nobody sees a foreign row';
no right error 42501
reads 4000 wrong 0 lost 0
done
END
};

done_testing;
