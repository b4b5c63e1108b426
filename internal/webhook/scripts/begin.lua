-- begin: an attempt takes over a claim, so that no other attempt has the same.
-- KEYS[1] outbox   KEYS[2] delivery (hash)
-- ARGV[1] job id   ARGV[2] the claim   ARGV[3] how long the attempt may take, µs
-- Returns nothing if the claim doesn't hold any more. Otherwise the attempt's own claim, and the
--         fields of the record: finished, url, client, message, type, body, attempts, first (nil:
--         there is no record yet).
-- Not idempotent: if the reply is lost, the delivery is due again after ARGV[3].
local call = redis.call
local function us(x) return string.format('%.0f', x) end
if tonumber(call('ZSCORE', KEYS[1], ARGV[1]) or 0) ~= tonumber(ARGV[2]) then return {} end
local t = call('TIME')
local claim = us(math.max(t[1] * 1000000 + t[2] + tonumber(ARGV[3]), tonumber(ARGV[2]) + 1))
call('ZADD', KEYS[1], claim, ARGV[1])
return { claim, unpack(call('HMGET', KEYS[2], 'finished', 'url', 'client', 'message', 'type',
  'body', 'attempts', 'first')) }
