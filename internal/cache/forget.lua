-- Makes all processes drop their copy of a stored answer: those that listen, at once; the others
-- when they next look.
--
-- KEYS[1]  zset of the keys of such answers, by the count at their removal: the newest of them
-- KEYS[2]  the count: how many removals there were
-- ARGV[1]  the answer's key
-- ARGV[2]  the number of keys to keep
-- ARGV[3]  ms for which both are kept: longer than any answer is remembered
-- ARGV[4]  the channel on which processes listen
--
-- Returns the count.
local n = redis.call('INCR', KEYS[2])
redis.call('ZADD', KEYS[1], n, ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - tonumber(ARGV[2]))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
redis.call('PUBLISH', ARGV[4], ARGV[1])
return n
