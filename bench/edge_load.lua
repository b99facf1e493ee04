-- edge_load.lua - the requests of bench/edge, for wrk.
--
--   wrk -t1 -c64 -d1s -s edge_load.lua http://127.0.0.1:PORT -- SEED
--
-- 1,000 tenants x 10 routes in one shuffled order, the same for every
-- variant: the tenant in a header, the route in an argument, in a second
-- header a UUID that never repeats. SEED is the first 18 bytes of the ids;
-- the pass through the list and the place in it are the rest, so that ids
-- grow and a request costs one concatenation here. Ends with one line:
--
--   result requests microseconds failed p50 p99 p99.9 (microseconds)

local TENANTS = 1000
local ROUTES = 10
local ALL = TENANTS * ROUTES

local heads = {}
local tails = {}
local at = ALL
local pass = 0
local middle

local function shuffled(count)
    local list = {}

    math.randomseed(1)
    for i = 1, count do
        local j = math.random(i)

        list[i] = list[j]
        list[j] = i - 1
    end
    return list
end

function init(args)
    for place, pick in ipairs(shuffled(ALL)) do
        heads[place] = string.format(
            "GET /items?route=orders-%d HTTP/1.1\r\nHost: bench\r\n" ..
            "X-Tenant: tenant-%04d\r\nX-Request-Id: %s-",
            pick % ROUTES, math.floor(pick / ROUTES), args[1])
        tails[place] = string.format("%06x\r\n\r\n", place)
    end
end

function request()
    if at == ALL then
        at = 0
        pass = pass + 1
        middle = string.format("8000-%06x", pass)
    end
    at = at + 1
    return heads[at] .. middle .. tails[at]
end

function done(summary, latency)
    local errors = summary.errors
    local failed = errors.connect + errors.read + errors.write +
        errors.status + errors.timeout

    io.write(string.format("result %d %d %d %d %d %d\n", summary.requests,
        summary.duration, failed, latency:percentile(50),
        latency:percentile(99), latency:percentile(99.9)))
end
