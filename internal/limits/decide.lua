-- Decides a batch of questions about limits, in one step and at one time.
-- KEYS, ARGV[2..]  as limits.lua has them; the first member is ARGV[2]
-- ARGV[1]          its args as JSON; their first number is the time in µs since 1970, 0: that of this server
-- Returns          its reply. A question is spent if each of its enforced keys has room for it
local args = cjson.decode(ARGV[1])
local now = args[1]
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local ask, answer, close = open_limits(KEYS, args, now, 1)
for _ = 1, args[5] do
  answer(ask(), true)
end
return close()
