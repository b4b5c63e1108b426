-- event: records an event, unless it was recorded before.
-- KEYS[1] events   KEYS[2] the event's mark
-- ARGV[1] the event as JSON   ARGV[2] how long ago it was, µs
-- ARGV[3] how long its mark is kept, ms
-- Returns 1 if it was recorded now.
-- Idempotent while the mark is kept.
local call = redis.call
if not call('SET', KEYS[2], '1', 'NX', 'PX', ARGV[3]) then return 0 end
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
local function us(x) return string.format('%.0f', x) end
local HOURS48, MOST = 172800000, 10000 -- ms
call('XADD', KEYS[1], 'MAXLEN', MOST, '*', 'at', us(now - ARGV[2]), 'e', ARGV[1])
call('XTRIM', KEYS[1], 'MINID', us(math.floor(now / 1000) - HOURS48))
call('PEXPIRE', KEYS[1], HOURS48)
return 1
