-- Adds an answer to the list of its operation, and the operation to the list of operations.
-- Operators find answers there.
--
-- KEYS[1]  the operation's list: zset of answers' keys, scored with their expiry (ms since 1970)
-- KEYS[2]  the list of operations: zset of names, scored with their last answer's expiry
-- ARGV[1]  the answer's key
-- ARGV[2]  the operation
-- ARGV[3]  ms until the answer expires
--
-- Each addition removes a few expired entries. Both lists expire a while after their last answer.
local SLACK = 60000 -- ms by which the clocks of a cluster's nodes may differ
local time, left = redis.call('TIME'), tonumber(ARGV[3])
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 1, 2 do
  local before = tonumber(redis.call('ZSCORE', KEYS[i], ARGV[i]) or '0')
  redis.call('ZADD', KEYS[i], string.format('%.0f', math.max(now + left, before)), ARGV[i])
  local until_then = string.format('%.0f', now - SLACK)
  local gone = redis.call('ZRANGEBYSCORE', KEYS[i], '-inf', until_then, 'LIMIT', 0, 4)
  if #gone > 0 then redis.call('ZREM', KEYS[i], unpack(gone)) end
  if redis.call('PTTL', KEYS[i]) < left + 2 * SLACK then
    redis.call('PEXPIRE', KEYS[i], string.format('%.0f', left + 2 * SLACK))
  end
end
return 1
