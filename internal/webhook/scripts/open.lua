-- open: writes the record of a delivery before the first attempt, in place of the record of an
-- earlier end.
-- KEYS[1] outbox   KEYS[2] delivery (hash)
-- ARGV[1] job id   ARGV[2] the claim   ARGV[3] least time to live, ms
-- ARGV[4] until when the job's record lives, µs   ARGV[5...] fields and values
-- Returns 1, or 0 if the claim doesn't hold any more and nothing was written.
-- Idempotent.
local call = redis.call
if tonumber(call('ZSCORE', KEYS[1], ARGV[1]) or 0) ~= tonumber(ARGV[2]) then return 0 end
local t = call('TIME')
local left = math.floor((tonumber(ARGV[4]) - t[1] * 1000000 - t[2]) / 1000)
call('DEL', KEYS[2])
call('HSET', KEYS[2], 'state', 'pending', 'until', ARGV[4], unpack(ARGV, 5))
call('PEXPIRE', KEYS[2], math.max(tonumber(ARGV[3]), left))
return 1
