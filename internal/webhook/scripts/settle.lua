-- settle: records how an attempt ended.
-- KEYS[1] outbox   KEYS[2] delivery (hash)
-- KEYS[3] undelivered (zset: job id → µs when it was given up)
-- ARGV[1] job id   ARGV[2] the claim
-- ARGV[3] pending (another attempt follows) | delivered | failed | disabled |
--         off (no attempt was made: it is due again) |
--         dropped (there is nothing to deliver: a pending record is removed)
-- ARGV[4] pending, off: µs until it is due   ARGV[5] the attempt, for the log ('' for none)
-- ARGV[6] attempts that the log has at most   ARGV[7] least time to live of the record, ms
-- ARGV[8] length of the undelivered list at most
-- Returns 1, or 0 if the claim doesn't hold any more: the attempt was logged, and what follows is
--         up to the holder of the claim.
-- Idempotent by the claim.
local call = redis.call
local function us(x) return string.format('%.0f', x) end
local OUTBOX, DELIVERY, UNDELIVERED = unpack(KEYS)
local id, claim, to, wait, entry = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
local known = call('EXISTS', DELIVERY) == 1

if entry ~= '' and known and call('HGET', DELIVERY, 'logged') ~= claim then
  local n = call('HINCRBY', DELIVERY, 'attempts', 1)
  call('HSET', DELIVERY, 'logged', claim, 'log:' .. n, entry)
  call('HDEL', DELIVERY, 'log:' .. (n - tonumber(ARGV[6])))
end
if tonumber(call('ZSCORE', OUTBOX, id) or 0) ~= tonumber(claim) then return 0 end

if to == 'off' or to == 'pending' then
  call('ZADD', OUTBOX, us(now + wait), id)
else
  call('ZREM', OUTBOX, id)
end
if to == 'dropped' and call('HGET', DELIVERY, 'state') == 'pending' then
  call('DEL', DELIVERY)
  call('ZREM', UNDELIVERED, id)
end
if to == 'off' or to == 'dropped' or not known then return 1 end

call('HSET', DELIVERY, 'state', to)
local keep = tonumber(ARGV[7]) + math.ceil(wait / 1000)
keep = math.max(keep, math.floor((tonumber(call('HGET', DELIVERY, 'until')) - now) / 1000))
call('PEXPIRE', DELIVERY, keep)
if to == 'failed' or to == 'disabled' then
  -- Entries whose record has expired are removed, two for each new one. The list itself expires
  -- with the last record.
  for _, old in ipairs(call('ZRANGE', UNDELIVERED, 0, 1)) do
    if call('EXISTS', string.gsub(DELIVERY, '[^:]*$', '') .. old) == 0 then
      call('ZREM', UNDELIVERED, old)
    end
  end
  call('ZADD', UNDELIVERED, us(now), id)
  call('ZREMRANGEBYRANK', UNDELIVERED, 0, -1 - tonumber(ARGV[8]))
  call('PEXPIRE', UNDELIVERED, math.max(keep, call('PTTL', UNDELIVERED)))
else
  call('ZREM', UNDELIVERED, id)
end
return 1
