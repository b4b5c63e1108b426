-- A region sends what it has spent, and learns how many regions there are. On the centre's Redis.
-- KEYS[1]  the stream of what was spent   KEYS[2]  a sorted set: region by when it last sent
-- ARGV[1]  region   ARGV[2]  what it spent ('': nothing)   ARGV[3]  µs for which a region counts
-- ARGV[4]  ms for which an entry stays   ARGV[5]  the most entries
-- Returns  how many regions have sent within that time
-- Not idempotent: an entry that is sent twice is debited twice.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if ARGV[2] ~= '' then
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[5], '*', 'region', ARGV[1], 'spent', ARGV[2])
  redis.call('XTRIM', KEYS[1], 'MINID', '~', string.format('%.0f', now / 1000 - ARGV[4]))
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
redis.call('ZADD', KEYS[2], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[3])
redis.call('PEXPIRE', KEYS[2], 3600000)
return redis.call('ZCARD', KEYS[2])
