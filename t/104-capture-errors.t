# Directives of capture that miss, contradict or break something: what nginx says.

use strict;
use warnings;

BEGIN { require './t/lib/Edgemeter/Capture.pm' }

use Test::Nginx::Socket;

repeat_each(1);
plan tests => 68;

our $edge = Edgemeter::Capture->start;

# All that a metered location needs, but for its own "meter on".
our $http = $edge->http;

# The same without one directive.
sub without {
    my ($name) = @_;
    (my $text = $http) =~ s/^\s*\Q$name\E .*\n//m or die "no $name\n";
    return $text;
}

no_long_string();
run_tests();

__DATA__

=== TEST 1: no tenant
--- http_config eval: main::without('meter_tenant')
--- config
    location /m { meter on; return 204; }
--- must_die
--- error_log
no "meter_tenant" is given for the "meter" directive in



=== TEST 2: no event
--- http_config eval: main::without('meter_event')
--- config
    location /m { meter on; return 204; }
--- must_die
--- error_log
no "meter_event" is given for the "meter" directive in



=== TEST 3: no outbox
--- http_config eval: main::without('meter_outbox')
--- config
    location /m { meter on; return 204; }
--- must_die
--- error_log
no "meter_outbox" is given for the "meter" directive in



=== TEST 4: no aggregator
--- http_config eval: main::without('meter_aggregator')
--- config
    location /m { meter on; return 204; }
--- must_die
--- error_log
no "meter_aggregator" is given for the "meter" directive in



=== TEST 5: no tenant, "meter on" of the server
--- http_config eval: main::without('meter_tenant')
--- config
    meter on;
    location /m { return 204; }
--- must_die
--- error_log
no "meter_tenant" is given for the "meter" directive in



=== TEST 6: no tenant, "meter on" in an "if"
--- http_config eval: main::without('meter_tenant')
--- config
    location /m { if ($arg_x) { meter on; } return 204; }
--- must_die
--- error_log
no "meter_tenant" is given for the "meter" directive in



=== TEST 7: an id with deltas
--- http_config eval: $::http
--- config
    location /m { meter on; meter_event_id $arg_id; meter_capture delta; return 204; }
--- must_die
--- error_log
"meter_event_id" cannot be used together with "meter_capture delta" for the "meter" directive in



=== TEST 8: an inherited id with deltas
--- http_config eval: $::http
--- config
    meter_event_id $arg_id;
    location /m { meter on; meter_capture delta; return 204; }
--- must_die
--- error_log
"meter_event_id" cannot be used together with "meter_capture delta" for the "meter" directive in



=== TEST 9: two aggregators
--- http_config eval: $::http
--- config
    location /m { meter on; return 204; }
    location /n { meter on; meter_aggregator unix:$TEST_NGINX_METER_OTHER; return 204; }
--- must_die
--- error_log
"meter_aggregator" must be the same in all metered locations, it is



=== TEST 10: metered and API
--- http_config eval: $::http
--- config
    location /v1/ { meter on; meter_api; }
--- must_die
--- error_log
"meter" conflicts with "meter_api" in the same location in



=== TEST 11: metered and metrics
--- http_config eval: $::http
--- config
    location /s { meter_status; meter on; }
--- must_die
--- error_log
"meter" conflicts with "meter_status" in the same location in



=== TEST 12: neither on nor off
--- http_config eval: $::http
--- config
    location /m { meter maybe; }
--- must_die
--- error_log
invalid value "maybe" in "meter" directive, it must be "on" or "off"



=== TEST 13: an outbox without a path
--- http_config
    meter_outbox "" 1m;
--- config
    location /m { meter on; return 204; }
--- must_die
--- error_log
"meter_outbox" directive must have a path



=== TEST 14: an outbox without a size
--- http_config
    meter_outbox /nowhere;
--- config
    location /m { meter on; return 204; }
--- must_die
--- error_log
invalid number of arguments in "meter_outbox" directive



=== TEST 15: an outbox of no size
--- http_config
    meter_outbox /nowhere much;
--- config
    location /m { meter on; return 204; }
--- must_die
--- error_log
invalid size "much" in "meter_outbox"



=== TEST 16: an outbox that is too small
--- http_config
    meter_outbox /nowhere 255k;
--- config
    location /m { meter on; return 204; }
--- must_die
--- error_log
the size "255k" in "meter_outbox" must be between 256k and 1g



=== TEST 17: an outbox that is too large
--- http_config
    meter_outbox /nowhere 1025m;
--- config
    location /m { meter on; return 204; }
--- must_die
--- error_log
the size "1025m" in "meter_outbox" must be between 256k and 1g



=== TEST 18: two outboxes
--- http_config
    meter_outbox /nowhere 1m;
    meter_outbox /elsewhere 1m;
--- config
    location /m { meter on; return 204; }
--- must_die
--- error_log
"meter_outbox" directive is duplicate



=== TEST 19: an outbox in a server
--- config
    meter_outbox /nowhere 1m;
--- must_die
--- error_log
"meter_outbox" directive is not allowed here



=== TEST 20: an outbox whose parent is not there
--- http_config eval
(my $h = $::http) =~ s/meter_outbox \S+/meter_outbox \/nowhere\/at\/all/; $h
--- config
    location /m { meter on; return 204; }
--- must_die
--- error_log
"meter_outbox" directory "/nowhere/at/all" cannot be made



=== TEST 21: an outbox that is a file
--- http_config eval
(my $h = $::http) =~ s/meter_outbox \S+/meter_outbox \/dev\/null/; $h
--- config
    location /m { meter on; return 204; }
--- must_die
--- error_log
"meter_outbox" "/dev/null" is not a directory



=== TEST 22: an outbox that is open to everybody
--- http_config eval
(my $h = $::http) =~ s/meter_outbox \S+/meter_outbox \/tmp/; $h
--- config
    location /m { meter on; return 204; }
--- must_die
--- error_log
"meter_outbox" directory "/tmp" is writable for everybody



=== TEST 23: a zone that is too small
--- http_config
    meter_zone ids 31k;
--- config
--- must_die
--- error_log
the size "31k" in "meter_zone" must be at least 32k



=== TEST 24: a zone of no size
--- http_config
    meter_zone ids much;
--- config
--- must_die
--- error_log
invalid size "much" in "meter_zone"



=== TEST 25: a zone without a name
--- http_config
    meter_zone "" 64k;
--- config
--- must_die
--- error_log
invalid name "" in "meter_zone"



=== TEST 26: a zone with a name of ours
--- http_config
    meter_zone ngx_http_meter 64k;
--- config
--- must_die
--- error_log
invalid name "ngx_http_meter" in "meter_zone"



=== TEST 27: two zones
--- http_config
    meter_zone a 64k; meter_zone b 64k;
--- config
--- must_die
--- error_log
"meter_zone" directive is duplicate



=== TEST 28: a zone in a server
--- config
    meter_zone ids 64k;
--- must_die
--- error_log
"meter_zone" directive is not allowed here



=== TEST 29: a node without a name
--- http_config
    meter_node "";
--- config
--- must_die
--- error_log
"meter_node" directive must have a UTF-8 name of 1 to 255 bytes



=== TEST 30: two nodes
--- http_config
    meter_node a; meter_node b;
--- config
--- must_die
--- error_log
"meter_node" directive is duplicate



=== TEST 31: a node in a location
--- config
    location /m { meter_node a; }
--- must_die
--- error_log
"meter_node" directive is not allowed here



=== TEST 32: a drain time that is none
--- http_config
    meter_drain_timeout soon;
--- config
--- must_die
--- error_log
"meter_drain_timeout" directive invalid value



=== TEST 33: too many ring files
--- http_config
    meter_outbox /nowhere 1m files=4097;
--- config
    location /m { meter on; return 204; }
--- must_die
--- error_log
"files=4097" in "meter_outbox" must be between 8 and 4096



=== TEST 34: a parameter of the outbox that there is not
--- http_config
    meter_outbox /nowhere 1m rings=9;
--- config
    location /m { meter on; return 204; }
--- must_die
--- error_log
invalid parameter "rings=9" in "meter_outbox"
