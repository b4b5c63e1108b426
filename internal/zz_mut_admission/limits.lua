-- Decides a batch of questions about limits, in one step and at one time. Each key is read once, each that
-- changed is written once, however many questions name it.
--
-- KEYS      the limits' keys that the batch is about, each once; 1 to 512
-- ARGV[1]   a JSON list of integers under 2^53:
--             now        µs since 1970; 0: the time of this server
--             slack      ms that a key outlives its use
--             rules, refunds, questions   how many of each follow
--             per rule:     algorithm, unit and three more parameters (bucket.go, counter.go)
--             per key:      number of its rule, from 1
--             per refund:   cost, time of the charge, how many keys, their numbers
--             per question: 1 to spend, 0 to only look, cost (at most every limit's capacity), how many keys, their numbers
-- Returns   integers:
--             now
--             per key:      count of the window before (counter.go), else 0
--             per question: 1 if spent, else 0, then per key of it: its room after
--
-- A question is spent if each of its keys has room for it, and then on all of them; else nothing is.
-- Refunds come first, so that what is given back can be taken at once.
--
-- A key holds what is kept of its limit as integers with blanks between. One that holds anything else is as good
-- as missing: untouched. Room, unit and the arithmetic are those of arithmetic.go, which is this script's twin.

local call, floor, match, format = redis.call, math.floor, string.match, string.format
local args = cjson.decode(ARGV[1])
local now, slack = args[1], args[2]
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- An algorithm is three functions. load returns the room of a stored state (or false) brought to now, the count of
-- the window before, whether the key's TTL must be renewed when it is written, and whether it must be written in any
-- case: a state ahead of now, after a clock that stepped back. refund returns room and count after a refund. save
-- returns what to keep, and the ms after which it isn't worth keeping.
-- A TTL is renewed once a period or window only: a SET that leaves it alone costs a third of one that sets it.

-- Kept: level and its time. From one period to the next a bucket is full, so a TTL to the end of the next is enough.
local bucket = {}
local at_now = format(' %.0f', now)

function bucket.load(rule, kept)
  local level, at = match(kept or '', '^(%d+) (%d+)$')
  if not level then
    return rule.full, 0, true, false
  end
  level, at = level + 0, at + 0
  if now > at then
    level = level + (now - at) * rule.refill
  end
  if level > rule.full then
    level = rule.full
  end
  return level, 0, floor(at / rule.period) ~= floor(now / rule.period), at > now
end

function bucket.refund(rule, room, previous, cost, at)
  room = room + cost * rule.unit
  if room > rule.full then
    room = rule.full
  end
  return room, previous
end

function bucket.save(rule, room, previous)
  return format('%.0f', room) .. at_now, floor(2 * rule.period / 1000)
end

-- Kept: index of the window, count of the one before, count of this one.
local counter = {}

function counter.load(rule, kept)
  local index, previous, current = match(kept or '', '^(%d+) (%d+) (%d+)$')
  if not index then
    return rule.limit * rule.unit, 0, true, false
  end
  index, previous, current = index + 0, previous + 0, current + 0
  local renew = index ~= rule.index
  if index > rule.index then
    previous, current = previous + current, 0
  elseif index == rule.index - 1 then
    previous, current = current, 0
  elseif renew then
    previous, current = 0, 0
  end
  -- A count over the limit, but for the sum above, was not written here; it must not lock anybody out for longer.
  if previous > rule.limit then
    previous = rule.limit
  end
  if current > rule.limit then
    current = rule.limit
  end
  return (rule.limit - current) * rule.unit - previous * rule.rest, previous, renew, index > rule.index
end

function counter.current(rule, room, previous)
  return rule.limit - (room + previous * rule.rest) / rule.unit
end

function counter.refund(rule, room, previous, cost, at)
  local charged = floor(at / rule.window)
  if charged == rule.index then
    room = room + math.min(cost, counter.current(rule, room, previous)) * rule.unit
  elseif charged == rule.index - 1 or charged > rule.index then
    local back = math.min(cost, previous)
    previous = previous - back
    room = room + back * rule.rest
  end
  return room, previous
end

function counter.save(rule, room, previous)
  -- Counts are short enough for Lua's own 14 digits.
  return rule.starts .. previous .. ' ' .. counter.current(rule, room, previous), rule.lasts
end

local p = 5 -- how much of args is read

local rules = {}
for r = 1, args[3] do
  local kind, unit, a, b, c = args[p + 1], args[p + 2], args[p + 3], args[p + 4], args[p + 5]
  p = p + 5
  if kind == 1 then
    rules[r] = { algorithm = bucket, unit = unit, refill = a, full = b, period = c }
  else
    local index = floor(now / b)
    rules[r] = {
      algorithm = counter, unit = unit, limit = a, window = b,
      index = index, rest = unit - floor((now - index * b) / c), -- as counter.rest
      starts = format('%.0f ', index), lasts = floor(((index + 2) * b - now) / 1000),
    }
  end
end

local kept = call('MGET', unpack(KEYS))
local rule, unit, room, previous, renew, dirty = {}, {}, {}, {}, {}, {}
for k = 1, #KEYS do
  local r = rules[args[p + k]]
  rule[k], unit[k] = r, r.unit
  room[k], previous[k], renew[k], dirty[k] = r.algorithm.load(r, kept[k])
end
p = p + #KEYS

for _ = 1, args[4] do
  local cost, at, count = args[p + 1], args[p + 2], args[p + 3]
  p = p + 3
  for i = p + 1, p + count do
    local k = args[i]
    room[k], previous[k] = rule[k].algorithm.refund(rule[k], room[k], previous[k], cost, at)
    dirty[k] = true
  end
  p = p + count
end

local reply, n = { now }, 1 + #KEYS
for k = 1, #KEYS do
  reply[1 + k] = previous[k]
end
for _ = 1, args[5] do
  local spend, cost, count = args[p + 1], args[p + 2], args[p + 3]
  p, n = p + 3, n + 1
  for i = p + 1, p + count do
    local k = args[i]
    if room[k] < cost * unit[k] then
      spend = 0
      break
    end
  end
  reply[n] = spend
  for i = p + 1, p + count do
    local k = args[i]
    if spend == 1 then
      room[k] = room[k] - cost * unit[k]
      dirty[k] = true
    end
    n = n + 1
    reply[n] = room[k]
  end
  p = p + count
end

for k = 1, #KEYS do
  if dirty[k] then
    local value, lasts = rule[k].algorithm.save(rule[k], room[k], previous[k])
    if renew[k] then
      call('SET', KEYS[k], value, 'PX', lasts + slack)
    else
      call('SET', KEYS[k], value, 'KEEPTTL')
    end
  end
end
return reply
