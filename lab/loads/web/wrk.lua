-- What wrk asks for, and what it says at the end: one `name value` a line, whole numbers.
--
-- Arguments: wrk's threads, and a file with paths, one a line. Each thread begins at another place of it.
--
-- wrk (4.1.0, src/wrk.c and src/stats.c) adds times to those it took, for requests that it would have sent while one took longer than
-- twice the mean: `stats_correct`. These nobody measured, so they are taken out again. With e the mean time, in whole microseconds
-- as wrk reckons it, and d(m) the number of times of m microseconds: of m > e it has made d(m) + d(m+e) + d(m+2e) + …, so what was
-- measured is what is there at m without what is there at m + e. The number of times must come to that of the requests; who reads
-- this checks it.
local ffi = require("ffi")
ffi.cdef([[
    typedef struct { uint64_t count, limit, min, max; uint64_t data[]; } nearmetal_stats;
    typedef struct { long seconds, microseconds; } nearmetal_moment;
    int gettimeofday(nearmetal_moment *moment, void *zone);
]])

local started = 0

function setup(thread)
    thread:set("place", started)
    started = started + 1
end

function init(arguments)
    requests = {}
    for path in io.lines(arguments[2]) do
        requests[#requests + 1] = wrk.format("GET", path)
    end
    at = math.floor(#requests * place / tonumber(arguments[1]))
end

function request()
    at = at % #requests + 1
    return requests[at]
end

local function say(name, value)
    io.write(string.format("%s %.0f\n", name, tonumber(value)))
end

-- Number of times, and the time up to which so large a part of them was, in microseconds.
local function times(latency, duration, done, connections)
    local stats = ffi.cast("nearmetal_stats **", latency)[0]
    -- By another way, that memory is what it is taken for.
    if tonumber(stats.min) ~= latency.min or tonumber(stats.max) ~= latency.max then
        return 0
    end
    local data, least, most = stats.data, tonumber(stats.min), tonumber(stats.max)
    local each = math.floor(done / connections)
    if each > 0 then
        local mean = math.floor(duration / each)
        -- From below: what is above is still as wrk left it.
        for m = mean + 1, most - mean do
            data[m] = data[m] - data[m + mean]
        end
        least = math.min(least, mean)
    end
    local all = 0
    for m = least, most do
        all = all + tonumber(data[m])
    end
    local function part(quantile)
        local rank, sum = math.ceil(all * quantile), 0
        for m = least, most do
            sum = sum + tonumber(data[m])
            if sum >= rank then
                return m
            end
        end
        return 0
    end
    return all, part
end

function done(summary, latency)
    local now = ffi.new("nearmetal_moment")
    ffi.C.gettimeofday(now, nil)
    say("ended_ms", tonumber(now.seconds) * 1000 + math.floor(tonumber(now.microseconds) / 1000))
    say("duration_us", summary.duration)
    say("requests", summary.requests)
    say("bytes", summary.bytes)
    for _, what in ipairs({ "connect", "read", "write", "status", "timeout" }) do
        say("errors." .. what, summary.errors[what])
    end
    if summary.requests == 0 then
        return
    end
    local all, part = times(latency, summary.duration, summary.requests, tonumber(os.getenv("CONNECTIONS")))
    say("times", all)
    if all > 0 then
        say("time_us.p50", part(0.50))
        say("time_us.p95", part(0.95))
        say("time_us.p99", part(0.99))
    end
end
