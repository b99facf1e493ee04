# Directives of capture: what nginx takes, and what it says of what it does not.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/Capture.pm' }

use Test::Nginx::Socket;

repeat_each(1);
plan tests => 100;

our $edge = Edgemeter::Capture->start;

# All that a metered location needs, but for its own "meter on".
our $http = $edge->http;

no_long_string();
run_tests();

__DATA__

=== TEST 1: values are inherited from http and server, and overridden
--- http_config
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
    meter_outbox $TEST_NGINX_METER_OUTBOX 256k;
    meter_drain_timeout 500ms;
    meter_zone ids 32k;
    meter_node gw-1;
    meter_event http;
    meter_event_id $arg_id;
    meter_tenant http;
    meter_customer http;
    meter_resource http;
    meter_quantity 1.5;
    meter_attribute level http;
    meter_attribute more http;
    meter_if $arg_if;
    meter_overflow reject;
--- config
    meter on;
    meter_customer server;
    location /a { return 204; }
    location /b {
        meter_event b;
        meter_tenant b;
        meter_resource b;
        meter_quantity 2;
        meter_attribute level b;
        meter_if 1;
        return 204;
    }
    location /c {
        meter_event_id off;
        meter_customer off;
        meter_resource off;
        meter_quantity off;
        meter_if off;
        meter_overflow pass;
        return 204;
    }
    location /d { meter off; return 204; }
    location /e {
        meter_event_id off;
        meter_capture delta;
        meter_if 1;
        return 204;
    }
--- client
get("/$_") for 'a?if=1&id=100-a', 'a?id=100-x', 'b?id=100-b', 'c?id=100-c',
    'd', 'e?id=100-e';
--- seal
--- unordered
--- events
type=http tenant=http customer=server resource=http quantity=1.5 id=100-a attributes=level,more @level=http
type=b tenant=b customer=server resource=b quantity=2 id=100-b attributes=level @level=b
type=http tenant=http customer resource quantity id=minted attributes=level,more
kind=delta type=http customer=server resource=http quantity=1.5 count=1 attributes=level,more



=== TEST 2: "if" in a location inherits, overrides and turns off
--- config
    location /m {
        meter on;
        if ($arg_x = 1) { meter_tenant one; meter_attribute x 1; }
        if ($arg_x = 2) { meter off; }
        proxy_pass http://unix:$TEST_NGINX_METER_BACKEND:/ok;
    }
--- client
get("/m?x=$_") for 0 .. 2;
--- events
tenant=acme attributes=path,status
tenant=one attributes=x



=== TEST 3: empty values of what may be absent
--- config
    location /m {
        meter on;
        meter_event_id "";
        meter_customer "";
        meter_resource "";
        meter_quantity "";
        meter_attribute a "";
        meter_if $status;
        return 204;
    }
--- request
GET /m
--- error_code: 204
--- events
type=request tenant=acme customer resource quantity id=minted attributes=



=== TEST 4: no meter_if is not the same as an empty one
--- config
    location /m { meter on; meter_if ""; return 204; }
    location /n { meter on; meter_if off; return 204; }
--- request eval
["GET /m", "GET /n"]
--- error_code eval
[204, 204]
--- events
@path=/n



=== TEST 5: directives without "meter on" need nothing else
--- http_config
    meter_event e;
    meter_tenant t;
    meter_attribute a 1;
    meter_overflow reject;
    meter_aggregator unix:$TEST_NGINX_METER_SOCKET;
    meter_outbox $TEST_NGINX_METER_OUTBOX 1m;
--- config
    location /m { meter_capture delta; meter_event_id x; return 204; }
--- request
GET /m
--- error_code: 204
--- events



=== TEST 6: an inherited "meter on" does not meter the API and the metrics
--- config
    meter on;
    location /v1/ { meter_api; }
    location = /status { meter_status; }
    location /m { return 204; }
--- client
is(get('/v1/x?do=where')->{code}, 200, 'API');
is(get('/status?do=metrics')->{code}, 200, 'metrics');
is(get('/m')->{code}, 204, 'metered');
--- events
@path=/m



=== TEST 7: nginx -t makes no directory and takes no ring
--- config
    location /m { meter on; return 204; }
--- client
my $root = server_root();
open my $in, '<', "$root/conf/nginx.conf" or die;
my $text = do { local $/; <$in> };
$text =~ s/(meter_outbox \S+)/$1-tested/ or die;
my $path = "$1-tested" =~ s/.* //r;
open my $out, '>', "$root/conf/test.conf" or die;
print $out $text;
close $out;
my $nginx = $ENV{TEST_NGINX_BINARY} || 'nginx';
my $said = `$nginx -t -p $root/ -c $root/conf/test.conf -e $root/logs/test.log 2>&1`;
is($?, 0, 'test is successful') or diag($said);
ok(!-e $path, 'nothing was made');
--- events



=== TEST 8: the directory is made for the workers and nobody else
--- config
    location /m { meter on; return 204; }
--- client
my $path = $ENV{TEST_NGINX_METER_OUTBOX};
my ($mode, $uid) = (stat $path)[2, 4];
is(sprintf('%o', $mode & 07777), '770', 'mode');
my ($worker) = Edgemeter::Capture::children(Edgemeter::Capture::master());
is($uid, (stat "/proc/$worker")[4], 'owner');
my @rings = glob "$path/ring-*";
is(join(' ', grep { (stat $_)[2] & 07 } @rings), '', 'closed to others');
ok((grep { -s $_ == 1 << 20 } @rings), 'of the size that was given');
--- events



=== TEST 9: metered twice
--- http_config eval: $::http
--- config
    location /m { meter on; meter on; }
--- must_die
--- error_log
"meter" directive is duplicate



=== TEST 10: meter_event twice
--- http_config eval: $::http
--- config
    location /m { meter_event $arg_a; meter_event $arg_b; }
--- must_die
--- error_log
"meter_event" directive is duplicate



=== TEST 11: meter_event_id twice
--- http_config eval: $::http
--- config
    location /m { meter_event_id $arg_a; meter_event_id $arg_b; }
--- must_die
--- error_log
"meter_event_id" directive is duplicate



=== TEST 12: meter_tenant twice
--- http_config eval: $::http
--- config
    location /m { meter_tenant $arg_a; meter_tenant $arg_b; }
--- must_die
--- error_log
"meter_tenant" directive is duplicate



=== TEST 13: meter_customer twice
--- http_config eval: $::http
--- config
    location /m { meter_customer $arg_a; meter_customer $arg_b; }
--- must_die
--- error_log
"meter_customer" directive is duplicate



=== TEST 14: meter_resource twice
--- http_config eval: $::http
--- config
    location /m { meter_resource $arg_a; meter_resource $arg_b; }
--- must_die
--- error_log
"meter_resource" directive is duplicate



=== TEST 15: meter_quantity twice
--- http_config eval: $::http
--- config
    location /m { meter_quantity $arg_a; meter_quantity $arg_b; }
--- must_die
--- error_log
"meter_quantity" directive is duplicate



=== TEST 16: meter_if twice
--- http_config eval: $::http
--- config
    location /m { meter_if $arg_a; meter_if $arg_b; }
--- must_die
--- error_log
"meter_if" directive is duplicate



=== TEST 17: an empty meter_event
--- http_config eval: $::http
--- config
    location /m { meter_event ""; }
--- must_die
--- error_log
"meter_event" directive must not be empty



=== TEST 18: meter_event without a value
--- http_config eval: $::http
--- config
    location /m { meter_event; }
--- must_die
--- error_log
invalid number of arguments in "meter_event" directive



=== TEST 19: an empty meter_tenant
--- http_config eval: $::http
--- config
    location /m { meter_tenant ""; }
--- must_die
--- error_log
"meter_tenant" directive must not be empty



=== TEST 20: meter_tenant without a value
--- http_config eval: $::http
--- config
    location /m { meter_tenant; }
--- must_die
--- error_log
invalid number of arguments in "meter_tenant" directive



=== TEST 21: a meter_event that is too long
--- http_config eval: $::http
--- config eval
'location /m { meter_event ' . ('x' x 129) . '; }'
--- must_die
--- error_log
the value of "meter_event" is longer than 128 bytes



=== TEST 22: a meter_tenant that is too long
--- http_config eval: $::http
--- config eval
'location /m { meter_tenant ' . ('x' x 256) . '; }'
--- must_die
--- error_log
the value of "meter_tenant" is longer than 255 bytes



=== TEST 23: a meter_event_id that is too long
--- http_config eval: $::http
--- config eval
'location /m { meter_event_id ' . ('x' x 256) . '; }'
--- must_die
--- error_log
the value of "meter_event_id" is longer than 255 bytes



=== TEST 24: a meter_customer that is too long
--- http_config eval: $::http
--- config eval
'location /m { meter_customer ' . ('x' x 256) . '; }'
--- must_die
--- error_log
the value of "meter_customer" is longer than 255 bytes



=== TEST 25: a meter_resource that is too long
--- http_config eval: $::http
--- config eval
'location /m { meter_resource ' . ('x' x 256) . '; }'
--- must_die
--- error_log
the value of "meter_resource" is longer than 255 bytes



=== TEST 26: a value that is no text
--- http_config eval: $::http
--- config eval
"location /m { meter_tenant caf\xe9; }"
--- must_die
--- error_log
"meter_tenant" directive must be UTF-8



=== TEST 27: a quantity of many
--- http_config eval: $::http
--- config
    location /m { meter_quantity many; }
--- must_die
--- error_log
"meter_quantity" directive must be a decimal number of at most 38 digits, 9 of them after the point



=== TEST 28: a quantity of 1.0000000001
--- http_config eval: $::http
--- config
    location /m { meter_quantity 1.0000000001; }
--- must_die
--- error_log
"meter_quantity" directive must be a decimal number of at most 38 digits, 9 of them after the point



=== TEST 29: a quantity of 1 
--- http_config eval: $::http
--- config
    location /m { meter_quantity "1 "; }
--- must_die
--- error_log
"meter_quantity" directive must be a decimal number of at most 38 digits, 9 of them after the point



=== TEST 30: a quantity of 0x10
--- http_config eval: $::http
--- config
    location /m { meter_quantity 0x10; }
--- must_die
--- error_log
"meter_quantity" directive must be a decimal number of at most 38 digits, 9 of them after the point



=== TEST 31: a quantity of 100000000000000000000000000000
--- http_config eval: $::http
--- config
    location /m { meter_quantity 100000000000000000000000000000; }
--- must_die
--- error_log
"meter_quantity" directive must be a decimal number of at most 38 digits, 9 of them after the point



=== TEST 32: an unknown capture
--- http_config eval: $::http
--- config
    location /m { meter_capture sum; }
--- must_die
--- error_log
invalid value "sum"



=== TEST 33: an unknown overflow
--- http_config eval: $::http
--- config
    location /m { meter_overflow drop; }
--- must_die
--- error_log
invalid value "drop"



=== TEST 34: an attribute without a name
--- http_config eval: $::http
--- config
    location /m { meter_attribute "" x; }
--- must_die
--- error_log
"meter_attribute" directive must have a UTF-8 name of 1 to 128 bytes



=== TEST 35: an attribute with a long name
--- http_config eval: $::http
--- config eval
'location /m { meter_attribute ' . ('n' x 129) . ' x; }'
--- must_die
--- error_log
"meter_attribute" directive must have a UTF-8 name of 1 to 128 bytes



=== TEST 36: an attribute twice
--- http_config eval: $::http
--- config
    location /m { meter_attribute a 1; meter_attribute b 1; meter_attribute a 2; }
--- must_die
--- error_log
"meter_attribute" directive gives a name twice on one level



=== TEST 37: too many attributes
--- http_config eval: $::http
--- config eval
'location /m {' . CORE::join('', map { " meter_attribute a$_ x;" } 0 .. 256) . '}'
--- must_die
--- error_log
"meter_attribute" directive is given more than 256 times on one level



=== TEST 38: an attribute without a value
--- http_config eval: $::http
--- config
    location /m { meter_attribute a; }
--- must_die
--- error_log
invalid number of arguments in "meter_attribute" directive



=== TEST 39: an unknown variable
--- http_config eval: $::http
--- config
    location /m { meter_tenant $no_such_variable_anywhere; }
--- must_die
--- error_log
unknown "no_such_variable_anywhere" variable



=== TEST 40: a quantity below 0 that is not allowed
--- http_config eval: $::http
--- config
    location /m { meter_quantity -1; }
--- must_die
--- error_log
"meter_quantity" directive is below 0 and lacks the parameter "negative"



=== TEST 41: a parameter that is none
--- http_config eval: $::http
--- config
    location /m { meter_quantity $arg_q positive; }
--- must_die
--- error_log
invalid parameter "positive"
