-- snapshot: all keys of one backend at one moment, for tests.
-- KEYS[1]  any key of the backend, so that a cluster finds the node
-- ARGV[1]  pattern of its keys
-- Returns  now in µs, then four values per key: name, type, TTL in ms (-1: none), content. The
--          content is the members and scores of a zset, the fields and values of a hash, the
--          elements of a list, or the first 256 bytes of a string and its length.
local t = redis.call('TIME')
local out = { string.format('%.0f', t[1] * 1000000 + t[2]) }
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local kind = redis.call('TYPE', key).ok
  local content = {}
  if kind == 'zset' then
    content = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'hash' then
    content = redis.call('HGETALL', key)
  elseif kind == 'list' then
    content = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'string' then
    content = { redis.call('GETRANGE', key, 0, 255), redis.call('STRLEN', key) }
  end
  out[#out + 1], out[#out + 2] = key, kind
  out[#out + 1], out[#out + 2] = redis.call('PTTL', key), content
end
return out
