-- Stores an answer, unless a younger one is there.
--
-- KEYS[1]  the answer's key
-- KEYS[2]  set of the clients from which the previous answer is withheld (hide.lua): removed
-- ARGV[1]  the value (layout: cache.go)
-- ARGV[2]  ms that the value stays good, counted from the backend's answer
-- ARGV[3]  ms that have passed of these already; less than ARGV[2]
--
-- Returns 1 when stored, 0 when a younger answer was there.
local good, age = tonumber(ARGV[2]), tonumber(ARGV[3])
local left = redis.call('PTTL', KEYS[1])
if left > 0 then
  local there = string.match(redis.call('GETRANGE', KEYS[1], 0, 31), '^1 (%d+) ')
  -- negative if the clock stepped back
  if there and math.max(tonumber(there) - left, 0) < age then
    return 0
  end
end
redis.call('DEL', KEYS[2])
redis.call('SET', KEYS[1], ARGV[1], 'PX', string.format('%.0f', good - age))
return 1
