-- Counts a process as present, and returns how many are.
-- KEYS[1]  a sorted set: process by when it last called
-- ARGV[1]  its name   ARGV[2]  µs for which a call counts
-- Returns  how many have called within that time
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('PEXPIRE', KEYS[1], 60000)
return redis.call('ZCARD', KEYS[1])
