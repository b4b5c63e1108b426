-- claim: claims deliveries that are due.
-- KEYS[1] outbox (zset: job id → µs when its delivery is due)
-- ARGV[1] how long the claim holds, µs   ARGV[2] how many at most
-- Returns the claim (µs: when the deliveries are due again, unless they are settled before), µs
--         until the next one is due ('' for none), how many are in the outbox, and the ids.
-- Not idempotent: if the reply is lost, the deliveries are due again after ARGV[1].
local call = redis.call
local function us(x) return string.format('%.0f', x) end
local t = call('TIME')
local now = t[1] * 1000000 + t[2]

local due = call('ZRANGEBYSCORE', KEYS[1], '-inf', us(now), 'LIMIT', 0, ARGV[2])
local claim = us(now + tonumber(ARGV[1]))
for _, id in ipairs(due) do call('ZADD', KEYS[1], claim, id) end
local first = call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local wait = first[2] and us(math.max(tonumber(first[2]) - now, 0)) or ''
return { claim, wait, call('ZCARD', KEYS[1]), unpack(due) }
