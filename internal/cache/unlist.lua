-- Takes answers that are gone out of the list of their operation, but for those that were stored again since they were read there.
--
-- KEYS[1]  the operation's list
-- ARGV     an answer's key and the score that it was read with, and so on
--
-- Returns how many it took out.
local taken = 0
for i = 1, #ARGV, 2 do
  local score = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if score and tonumber(score) == tonumber(ARGV[i + 1]) then
    taken = taken + redis.call('ZREM', KEYS[1], ARGV[i])
  end
end
return taken
