-- redeliver: makes a delivery due now, with its whole schedule ahead, in whatever state it is.
-- KEYS[1] outbox   KEYS[2] delivery (hash)   KEYS[3] undelivered
-- ARGV[1] job id   ARGV[2] channel that wakes the relays
-- ARGV[3] least time to live of the record, ms
-- Returns 1, or 0 if there was no record: the first attempt then makes it from the job.
-- Idempotent.
local call = redis.call
local t = call('TIME')
local known = call('EXISTS', KEYS[2])
if known == 1 then
  call('HSET', KEYS[2], 'state', 'pending', 'first', call('HGET', KEYS[2], 'attempts') or 0)
  call('PEXPIRE', KEYS[2], math.max(tonumber(ARGV[3]), call('PTTL', KEYS[2])))
end
call('ZREM', KEYS[3], ARGV[1])
call('ZADD', KEYS[1], string.format('%.0f', t[1] * 1000000 + t[2]), ARGV[1])
call('PUBLISH', ARGV[2], '')
return known
