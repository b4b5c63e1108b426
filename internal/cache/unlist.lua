-- Takes expired answers out of the list of their operation, except those stored again since
-- they were read there.
--
-- KEYS[1]  the operation's list
-- ARGV     pairs of an answer's key and the score with which it was read
--
-- Returns how many it removed.
local taken = 0
for i = 1, #ARGV, 2 do
  local score = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if score and tonumber(score) == tonumber(ARGV[i + 1]) then
    taken = taken + redis.call('ZREM', KEYS[1], ARGV[i])
  end
end
return taken
