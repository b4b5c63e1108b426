-- Decides questions about limits. Each key of a batch is read once, at one time, and written once
-- if it changed, however many questions name it. This is the body of a function that two scripts
-- call: decide.lua, and leaky's offer.lua (Go puts it before them):
--
--   ask, answer, close = open_limits(KEYS, args, now, first_text)
--
-- KEYS        the limits' keys of the batch, each once; at most 512
-- args        a list of integers under 2^53:
--               0, slack   slack: ms that a key outlives its use
--               rules, refunds, questions   how many of each follow
--               per rule:     algorithm, unit and three more parameters (arithmetic.go)
--               per key:      number of its rule, from 1
--               per refund:   time of the charge, number of the member, how many keys, then per
--                             key: its number, and the amount to give back (negative: a debit)
--               per question: 1 to spend, 0 to only look; cost, how many keys, their numbers.
--                             With shadow limits, logs, concurrency limits or limits of bytes:
--                             3 to spend, 2 to only look; number of the member, how many keys, then
--                             per key: its number, negative for a shadow limit, and what is taken
-- now         µs since 1970
-- first_text  the index in ARGV before that of member 1. A member holds permits of concurrency
--             limits; number 0 is none
--
-- open_limits makes the refunds, so that what they give back can be taken at once. Then call, for
-- each question in turn, ask and answer. Last, close returns the reply, which has integers:
--   now
--   per key of a counter or log: fill.also (arithmetic.go), before the batch's questions
--   per question: 1 if it was spent, otherwise 0, then per key: its room after the question; of a
--                 shadow limit, whether it was spent on; of a log without the room, the µs until it
--                 has it. A question that takes nothing of a key always has the room
--
-- A question is spent on all of its enforced keys, and on the shadow keys that have room, or on
-- none.
--
-- A key with a value that no script wrote counts as unused. Room, unit and the arithmetic are those
-- of arithmetic.go, which is this script's model in Go.

local call, pcall, floor, min, max = redis.call, redis.pcall, math.floor, math.min, math.max
local match, format = string.match, string.format
local slack = args[2]

-- An algorithm is four functions:
--   rule    reads three parameters
--   load    returns the room of a key, brought to now. It sets also (fill.also), renew if the
--           key's TTL must be renewed when it is written, and dirty if it must be written in any
--           case: its state was ahead of now, after a clock that stepped back
--   refund  changes room and also
--   save    writes the key
-- Concurrency also has take, and the log has wait. A TTL is renewed only once a period or window: a
-- SET that keeps it costs a third of one that sets it.
local kept = call('MGET', unpack(KEYS))
local rule, unit, room, also, renew, dirty = {}, {}, {}, {}, {}, {}

-- fresh is the room of a key that was never charged.
local function fresh(k, all)
  renew[k] = true
  return all
end

local function write(k, value, lasts)
  if renew[k] then
    call('SET', KEYS[k], value, 'PX', lasts + slack)
  else
    call('SET', KEYS[k], value, 'KEEPTTL')
  end
end

-- Kept: level and its time. A bucket fills within one period, so a TTL to the end of the next one
-- is enough. A debt lengthens it.
local bucket = {}
local at_now = format(' %d', now)

function bucket.rule(a, b, c) return { refill = a, full = b, period = c, begun = now - now % c } end

function bucket.load(r, k)
  local level, at = match(kept[k] or '', '^(-?%d+) (%d+)$')
  if not level then return fresh(k, r.full) end
  level, at = level + 0, at + 0
  if now > at then
    level = level + (now - at) * r.refill
  elseif at > now then
    dirty[k] = true
  end
  if level > r.full then
    level = r.full
  end
  if level < 0 or at < r.begun or at > now then renew[k] = true end
  return level
end

function bucket.refund(r, k, cost)
  local most = floor(9007199254740991 / r.unit)
  local level = room[k] + max(-most, min(most, cost)) * r.unit
  room[k] = max(r.full - 9007199254740991, min(r.full, level))
  renew[k] = renew[k] or room[k] < 0
end

function bucket.save(r, k)
  local lasts
  if renew[k] then
    -- At most 2·maxPeriod.
    lasts = floor(min(2 * r.period + max(0, -room[k]) / r.refill, 6324480000000000) / 1000)
  end
  write(k, format('%d', room[k]) .. at_now, lasts)
end

-- Kept: index of the window, count of the one before, count of this one.
local counter = {}

function counter.rule(limit, window, step, r)
  local index = floor(now / window)
  return {
    limit = limit, window = window, index = index, text = format('%d', index),
    rest = r - floor((now - index * window) / step), -- as counter.rest
    lasts = floor(((index + 2) * window - now) / 1000),
  }
end

function counter.load(r, k)
  local index, previous, current = match(kept[k] or '', '^(%d+) (%d+) (%d+)$')
  if not index then
    also[k] = 0
    return fresh(k, r.limit * r.unit)
  end
  previous, current = previous + 0, current + 0
  if index ~= r.text then
    renew[k] = true
    index = index + 0
    if index > r.index then
      previous, current, dirty[k] = previous + current, 0, true
    elseif index == r.index - 1 then
      previous, current = current, 0
    else
      previous, current = 0, 0
    end
  end
  -- A count over the limit was written by another program, or under a larger limit. It must not
  -- lock clients out for longer.
  if previous > r.limit then
    previous = r.limit
  end
  if current > r.limit then
    current = r.limit
  end
  also[k] = previous
  return (r.limit - current) * r.unit - previous * r.rest
end

function counter.current(r, k) return r.limit - (room[k] + also[k] * r.rest) / r.unit end

function counter.refund(r, k, cost, at)
  local charged, current = floor(at / r.window), counter.current(r, k)
  if charged == r.index then
    current = max(0, min(r.limit, current - cost))
  elseif charged == r.index - 1 or charged > r.index then
    also[k] = max(0, min(r.limit, also[k] - cost))
  end
  room[k] = (r.limit - current) * r.unit - also[k] * r.rest
end

function counter.save(r, k)
  write(k, format('%d %d %d', r.index, also[k], counter.current(r, k)), r.lasts)
end

-- Kept: number of the window, its count.
local fixed = {}

-- month returns the number and the first day, in days since 1970, of a day's month (H. Hinnant,
-- chrono-compatible low-level date algorithms: years that begin in March).
local function month(day)
  local z = day + 719468
  local era = floor(z / 146097)
  local doe = z - era * 146097
  local yoe = floor((doe - floor(doe / 1460) + floor(doe / 36524) - floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + floor(yoe / 4) - floor(yoe / 100))
  local mp = floor((5 * doy + 2) / 153)
  return (yoe + era * 400) * 12 + mp + 2, day - doy + floor((153 * mp + 2) / 5)
end

-- number returns the number and the end of the window that a time is in.
function fixed.number(r, at)
  if r.window > 0 then
    local number = floor(at / r.window)
    return number, (number + 1) * r.window
  end
  local number, first = month(floor(at / 86400000000))
  local _, next = month(first + 31)
  return number, next * 86400000000
end

function fixed.rule(limit, window)
  local r = { limit = limit, window = window }
  local ends
  r.now, ends = fixed.number(r, now)
  r.text, r.lasts = format('%d', r.now), floor((ends - now) / 1000)
  return r
end

function fixed.load(r, k)
  local number, count = match(kept[k] or '', '^(%d+) (%d+)$')
  if number ~= r.text then
    if not number or number + 0 < r.now then return fresh(k, r.limit) end
    renew[k], dirty[k] = true, true
  end
  count = count + 0
  return count < r.limit and r.limit - count or 0
end

function fixed.refund(r, k, cost, at)
  if fixed.number(r, at) >= r.now then
    room[k] = max(0, min(r.limit, room[k] + cost))
  end
end

function fixed.save(r, k) write(k, format('%d %d', r.now, r.limit - room[k]), r.lasts) end

-- Kept: a list. Its head is the sum of the entries' costs and the time of the newest. The entries
-- follow, each with its time and cost.
local log = {}
-- By key: total, newest; gone: how many entries after the head have left; seen: the entries that
-- were read, by index; ends: the list's length, if it is known; listed: whether there is a list.
local logs = {}

function log.rule(limit, window)
  return { limit = limit, window = window, leaves = now - window }
end

-- entry returns time and cost of the n-th entry of a list. It reads the next 63 too.
local function entry(k, n)
  local l = logs[k]
  if not l.seen[n] then
    if l.ends and n >= l.ends then return nil end
    local texts = call('LRANGE', KEYS[k], n, n + 63)
    for i = 1, #texts do
      l.seen[n + i - 1] = texts[i]
    end
    if #texts < 64 then l.ends = n + #texts end
    if #texts == 0 then return nil end
  end
  local at, cost = match(l.seen[n], '^(%d+) (%d+)$')
  return (at or 0) + 0, (cost or 0) + 0
end

-- fold moves the entries that are ahead of now to now.
local function fold(k)
  local l, ahead = logs[k], 0
  while true do
    local text = call('LINDEX', KEYS[k], -1)
    local at, cost = match(text, '^(%d+) (%d+)$')
    if call('LLEN', KEYS[k]) == 1 or not at or at + 0 <= now then break end
    ahead = ahead + cost
    call('RPOP', KEYS[k])
  end
  if ahead > 0 then call('RPUSH', KEYS[k], format('%d %d', now, ahead)) end
  l.newest, l.seen, l.ends = now, {}, nil
end

-- first moves past the entries that have left, and returns the time of the oldest that hasn't.
local function first(r, k)
  local l = logs[k]
  while true do
    local at, cost = entry(k, l.gone + 1)
    if not at then
      l.total = 0
      return 0
    end
    if at > r.leaves then return at end
    l.gone, l.total = l.gone + 1, max(0, l.total - cost)
  end
end

function log.load(r, k)
  local l = { total = 0, newest = 0, gone = 0, seen = {} }
  logs[k] = l
  local head = pcall('LINDEX', KEYS[k], 0)
  local total, newest = match(type(head) == 'string' and head or '', '^(%d+) (%d+)$')
  if not total then
    if head then call('DEL', KEYS[k]) end
    l.ends, also[k] = 1, 0
    return r.limit
  end
  l.listed, l.total, l.newest = true, total + 0, newest + 0
  local ahead = l.newest > now
  if ahead then fold(k) end
  local oldest = first(r, k)
  if oldest > now then -- the head was wrong: another program wrote it
    fold(k)
    oldest, ahead = first(r, k), true
  end
  also[k] = oldest
  if ahead or l.gone > 0 then dirty[k] = true end
  return r.limit - l.total
end

function log.refund(r, k, cost, at)
  local l = logs[k]
  if cost < 0 then
    room[k] = room[k] - max(0, min(-cost, room[k]))
    return
  end
  if not l.listed then return end
  for i = call('LLEN', KEYS[k]) - 1, l.gone + 1, -1 do
    local text = call('LINDEX', KEYS[k], i)
    local when, had = match(text, '^(%d+) (%d+)$')
    if at <= now and when + 0 < at then break end
    if at > now or when + 0 == at then
      had = had + 0
      local back = min(cost, had)
      if had - back > 0 then
        call('LSET', KEYS[k], i, format('%s %d', when, had - back))
      else
        call('LREM', KEYS[k], -1, text)
      end
      l.seen, l.ends, l.total = {}, nil, max(0, l.total - back)
      also[k] = first(r, k)
      room[k] = min(r.limit, room[k] + back)
      break
    end
  end
end

function log.save(r, k)
  local key, l = KEYS[k], logs[k]
  local total = r.limit - room[k]
  local added = total - l.total
  if l.listed then call('LTRIM', key, l.gone + 1, -1) end
  if added > 0 then
    local last = l.newest == now and call('LINDEX', key, -1)
    local at, cost = match(last or '', '^(%d+) (%d+)$')
    if at and at + 0 == now then
      call('LSET', key, -1, format('%d %d', now, cost + added))
    else
      call('RPUSH', key, format('%d %d', now, added))
    end
    l.newest = now
  end
  if total > 0 then
    call('LPUSH', key, format('%d %d', total, l.newest))
    call('PEXPIRE', key, floor(r.window / 1000) + slack)
  else
    call('DEL', key)
  end
end

-- wait returns the time until a cost fits that doesn't fit now: until enough of the oldest entries
-- have left.
function log.wait(r, k, cost)
  if cost > r.limit then return 0 end
  local n, free = logs[k].gone, room[k]
  repeat
    n = n + 1
    local at, had = entry(k, n)
    if not at then return r.window end
    free = free + had
    if free >= cost then return at + r.window - now end
  until false
end

-- Kept: a sorted set of members, by when each took its permit, or when its job was last seen.
local concurrency = {}

function concurrency.rule(limit, lasts) return { limit = limit, lasts = lasts } end

function concurrency.load(r, k)
  local count = pcall('ZCARD', KEYS[k])
  if type(count) ~= 'number' then
    call('DEL', KEYS[k])
    count = 0
  end
  return r.limit - count
end

function concurrency.take(k, member)
  if member and call('ZADD', KEYS[k], 'NX', now, member) == 1 then room[k] = room[k] - 1 end
end

function concurrency.refund(_, k, cost, _, member)
  if cost < 0 then return end
  room[k] = room[k] + call('ZREM', KEYS[k], member or '')
end

function concurrency.save(r, k) call('PEXPIRE', KEYS[k], r.lasts + slack) end

local p = 5 -- how much of args has been read

local algorithms = { bucket, counter, fixed, log, concurrency }
local rules = {}
for n = 1, args[3] do
  local algorithm, u = algorithms[args[p + 1]], args[p + 2]
  local r = algorithm.rule(args[p + 3], args[p + 4], args[p + 5], u)
  r.algorithm, r.unit, r.load, r.save = algorithm, u, algorithm.load, algorithm.save
  rules[n] = r
  p = p + 5
end

for k = 1, #KEYS do
  local r = rules[args[p + k]]
  rule[k], unit[k], room[k] = r, r.unit, r.load(r, k)
end
p = p + #KEYS

for _ = 1, args[4] do
  local at, m, count = args[p + 1], args[p + 2], args[p + 3]
  local member = m > 0 and ARGV[first_text + m] or nil
  p = p + 3
  for i = p + 1, p + 2 * count, 2 do
    local k = args[i]
    rule[k].algorithm.refund(rule[k], k, args[i + 1], at, member)
    dirty[k] = true
  end
  p = p + 2 * count
end

local reply, n = { now }, 1
for k = 1, #KEYS do
  if also[k] then
    n = n + 1
    reply[n] = also[k]
  end
end

-- The present question: its mode; its cost, or the number of its member; the range of its keys in
-- args.
local mode, second, from, to

-- ask reads the next question, and returns whether it may be spent: it is to be spent, and each of
-- its enforced keys has room. It changes nothing. answer must follow.
local function ask()
  mode, second, from = args[p + 1], args[p + 2], p + 4
  if mode < 2 then
    to = p + 3 + args[p + 3]
    p = to
    for i = from, to do
      local k = args[i]
      if room[k] < second * unit[k] then return false end
    end
    return mode == 1
  end
  to = p + 3 + 2 * args[p + 3]
  p = to
  for i = from, to, 2 do
    local k, cost = args[i], args[i + 1]
    if k > 0 and cost > 0 and room[k] < cost * unit[k] then return false end
  end
  return mode == 3
end

-- answer_plain is answer for a question whose keys are all enforced and need only their room.
local function answer_plain(spend)
  local room, unit, args, reply, at = room, unit, args, reply, n + 1
  reply[at] = spend and 1 or 0
  for i = from, to do
    local k = args[i]
    at = at + 1
    if spend then room[k], dirty[k] = room[k] - second * unit[k], true end
    reply[at] = room[k]
  end
  n = at
end

-- answer spends the present question if spend is set, and adds its part of the reply. Without
-- placed, its member takes no permits.
local function answer(spend, placed)
  if mode < 2 then return answer_plain(spend) end
  local member = placed and second > 0 and ARGV[first_text + second]
  n = n + 1
  reply[n] = spend and 1 or 0
  for i = from, to, 2 do
    local k, shadow, cost = math.abs(args[i]), args[i] < 0, args[i + 1]
    local algorithm = rule[k].algorithm
    local fits = cost == 0 or room[k] >= cost * unit[k]
    if spend and fits then
      if algorithm.take then
        algorithm.take(k, member)
      else
        room[k] = room[k] - cost * unit[k]
      end
      dirty[k] = true
    end
    n = n + 1
    reply[n] = room[k]
    if shadow then
      n = n + 1
      reply[n] = spend and fits and 1 or 0
    end
    if not fits and algorithm.wait then
      n = n + 1
      reply[n] = algorithm.wait(rule[k], k, cost)
    end
  end
end

-- close writes each key that changed, and returns the reply.
local function close()
  for k = 1, #KEYS do
    if dirty[k] then rule[k].save(rule[k], k) end
  end
  return reply
end

return ask, answer, close
