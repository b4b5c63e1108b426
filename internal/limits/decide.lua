-- Decides a batch of questions about limits, in one step and at one time.
-- KEYS             as in limits.lua
-- ARGV[1]          the args of limits.lua as JSON. The first number is the time in µs since 1970,
--                  or 0 for this server's time
-- ARGV[2..]        the members of limits.lua
-- Returns          the reply of limits.lua. A question is spent if each of its enforced keys has
--                  room for it
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
