-- claim: deliveries that are due, for whoever asks first.
-- KEYS[1] outbox (zset: job id → µs when its delivery is due)
-- ARGV[1] how long they are the caller's, µs   ARGV[2] how many at most
-- Returns the claim that they are held by (µs: when they are due again, unless somebody says otherwise), µs until the next one is due
--         ('' for none), how many are in the outbox, and the ids.
-- Not idempotent: what a lost answer has claimed is due again after ARGV[1].
local call = redis.call
local function us(x) return string.format('%.0f', x) end
local t = call('TIME')
local now = t[1] * 1000000 + t[2]

local due = call('ZRANGEBYSCORE', KEYS[1], '-inf', us(now), 'LIMIT', 0, ARGV[2])
local claim = us(now + tonumber(ARGV[1]))
for _, id in ipairs(due) do call('ZADD', KEYS[1], claim, id) end
local first = call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
return { claim, first[2] and us(math.max(tonumber(first[2]) - now, 0)) or '', call('ZCARD', KEYS[1]), unpack(due) }
