-- Notes an answer in the list of its operation, and that in the list of operations, where operators find them.
--
-- KEYS[1]  the operation's list: zset of answers' keys, scored with when each is gone (ms since 1970)
-- KEYS[2]  the list of operations: zset of names, scored with when the last answer is gone
-- ARGV[1]  the answer's key
-- ARGV[2]  the operation
-- ARGV[3]  ms until the answer is gone
--
-- A score grows each time, so that a purge sees what was stored again behind its back. What is gone leaves the lists with what comes, a
-- few at a time; both end a while after the last answer in them.
local SLACK = 60000 -- ms by which the clocks of a cluster's nodes may differ
local time, left = redis.call('TIME'), tonumber(ARGV[3])
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 1, 2 do
  local before = tonumber(redis.call('ZSCORE', KEYS[i], ARGV[i]) or '0')
  redis.call('ZADD', KEYS[i], string.format('%.0f', math.max(now + left, before + 1)), ARGV[i])
  local gone = redis.call('ZRANGEBYSCORE', KEYS[i], '-inf', string.format('%.0f', now - SLACK), 'LIMIT', 0, 4)
  if #gone > 0 then redis.call('ZREM', KEYS[i], unpack(gone)) end
  if redis.call('PTTL', KEYS[i]) < left + 2 * SLACK then
    redis.call('PEXPIRE', KEYS[i], string.format('%.0f', left + 2 * SLACK))
  end
end
return 1
