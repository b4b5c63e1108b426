-- walk: goes through a zset part by part, over many calls (Go puts it between the prelude and the
-- scripts that do). A place in it is a score and a member. It stays valid whatever changes
-- meanwhile.

-- before counts the members before a place; without reverse, including the one at the place.
-- Members with equal scores are ordered by name, for which Redis has no count: a binary search
-- finds the place among a million in 20 steps. Ids of one backend differ only in hex digits, so Lua
-- orders them as Redis does, in any locale.
local function before(key, score, member, reverse)
  local low, high = call('ZCOUNT', key, '-inf', '(' .. score), call('ZCOUNT', key, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local found = call('ZRANGE', key, middle, middle)[1]
    if found < member or found == member and not reverse then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- part returns up to most members after a place ('' for the beginning), each followed by its score,
-- and how many come before the first. In reverse it goes from the end to the beginning.
local function part(key, score, member, most, reverse)
  if reverse then
    local skip = score == '' and 0 or call('ZCARD', key) - before(key, score, member, true)
    return call('ZREVRANGE', key, skip, skip + most - 1, 'WITHSCORES'), skip
  end
  local skip = score == '' and 0 or before(key, score, member, false)
  return call('ZRANGE', key, skip, skip + most - 1, 'WITHSCORES'), skip
end
