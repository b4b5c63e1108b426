-- Since when a client has been known.
-- KEYS[1]  the client's key
-- ARGV[1]  ms for which it is remembered from now on
-- Returns  the µs since it was first seen; 0 if that is now
-- Idempotent.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local first = tonumber(redis.call('GET', KEYS[1])) or now
redis.call('SET', KEYS[1], string.format('%.0f', first), 'PX', ARGV[1])
return math.max(now - first, 0)
