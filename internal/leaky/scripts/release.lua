-- release: returns jobs with expired leases, ends late ones, and grants the slots of the near
-- future.
-- ARGV[9]  jobs to grant, return, promote or end in this call, at most
-- ARGV[10] horizon, µs: grant slots that are due within it
-- ARGV[11] how long after its due time a granted job may take to start, µs
-- ARGV[12] length of a lease, µs
-- ARGV[13] attempts of a job
-- Returns  now, µs until the next call is of use, why no more was granted, jobs returned,
--          {id, run, due, ...} granted, {id, state, code, ...} ended, {field, value, ...}
--          overrides that have ended by themselves, which this call has removed
-- Not idempotent: a lost reply loses its tickets, and the jobs return when their leases expire.
local most, horizon, grace = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local lease, attempts = tonumber(ARGV[12]), tonumber(ARGV[13])
local granted, ended, returned = {}, {}, 0

local function ends(id, state, keep, code, detail)
  finish(id, state, keep, 'code', code, 'detail', detail)
  ended[#ended + 1], ended[#ended + 2], ended[#ended + 3] = id, state, code
end

-- lost ends a job whose record is gone, so that it can't run.
local function lost(id)
  disband(id)
  call('HINCRBY', BOOKS, 'lost', 1)
end

-- expires ends a job that was removed from the line.
local function expires(id, keep, client)
  if not keep then return lost(id) end
  hold(client, -1)
  ends(id, 'expired', keep, 'deadline_exceeded', 'The job could not start before its deadline.')
end

-- 1. Leases. If one ends later than this, the clock was set back.
local furthest = us(now + horizon + math.max(lease, grace))
for _, id in ipairs(call('ZRANGEBYSCORE', INFLIGHT, '(' .. furthest, '+inf', 'LIMIT', 0, most)) do
  call('ZADD', INFLIGHT, furthest, id)
end
for _, id in ipairs(call('ZRANGEBYSCORE', INFLIGHT, '-inf', us(now), 'LIMIT', 0, most)) do
  call('ZREM', INFLIGHT, id)
  local s = call('HMGET', prefix .. 'state:' .. id, 'st', 'att', 'tag', 'cancel')
  local _, _, _, keep, client = head(id)
  if not keep then
    lost(id)
  elseif s[4] then
    ends(id, 'canceled', keep, '', '')
  elseif s[1] == 'running' and tonumber(s[2]) >= attempts then
    ends(id, 'failed', keep, 'worker_lost', 'The workers that ran the job were lost.')
  else
    requeue(id, s[3] or 0, client)
    returned = returned + 1
  end
end

-- 2. Backoffs that are over.
for _, id in ipairs(call('ZRANGEBYSCORE', DELAYED, '-inf', us(now), 'LIMIT', 0, most)) do
  call('ZREM', DELAYED, id)
  call('ZADD', LINE, call('HGET', prefix .. 'state:' .. id, 'tag') or 0, id)
  move(id, 'waiting')
end

-- 3. Deadlines: start_within anywhere in the line, then job by job from its head.
for _, id in ipairs(call('ZRANGEBYSCORE', DEADLINES, '-inf', us(now), 'LIMIT', 0, most)) do
  call('ZREM', DEADLINES, id)
  if call('ZREM', LINE, id) == 1 then
    local _, _, _, keep, client = head(id)
    expires(id, keep, client)
  end
end
-- peek returns the next job that may still start at t. It drops late ones before it, which use up
-- no slot.
local dropped = 0
local function peek(t)
  while dropped < most do
    local first = call('ZRANGE', LINE, 0, 0, 'WITHSCORES')
    local id = first[1]
    if not id then return nil end
    local _, start_by, end_by, keep, client = head(id)
    if keep and not too_late(id, start_by, end_by, t) then
      return id, first[2], client, start_by ~= end_by
    end
    call('ZREM', LINE, id)
    call('ZREM', DEADLINES, id)
    expires(id, keep, client)
    dropped = dropped + 1
  end
end

-- 4. Feedback. If the probing job has left flight without an outcome (canceled, given back, lost),
-- the next job probes. If feedback is off, its fields are removed.
if probe and probe ~= 'due' and not call('ZSCORE', INFLIGHT, probe) then
  probe = 'due'
  call('HSET', PACE, 'probe', probe)
end
if not feedback and p[12] then
  call('HDEL', PACE, 'gate', 'factor', 'cut', 'healed', 'cause', 'probe', 'streak')
end

-- 5. Overrides that have ended.
local lapsed = {}
for field, t in pairs(end_of) do
  if t <= now then
    lapsed[#lapsed + 1], lapsed[#lapsed + 2] = field, call('HGET', PACE, field) or ''
    call('HDEL', PACE, field, 'note_' .. field)
  end
end
for i = 1, #lapsed, 2 do end_of[lapsed[i]] = nil end
if #lapsed > 0 then write_ends() end

-- 6. Slots.
local NO_END = 3600 * 1000000 -- a wake-up will come
local free = concurrency - call('ZCARD', INFLIGHT)
local wait, reason = 0, ''
while #granted < 3 * most do
  local slot = next_slot(now)
  local due = math.max(slot, now)
  local open = free > 0 and not paused and not resting() and due <= now + horizon
  local id, tag, client, dated = peek(open and due or now)
  if not id then
    if dropped < most then reason = 'idle' end
    break
  elseif paused then
    reason = waiting_on()
    break
  elseif resting() then
    reason, wait = 'cooldown', now < gate and gate - now or NO_END
    break
  elseif free <= 0 then
    reason = 'concurrency'
    break
  elseif due > now + horizon then
    -- The next call should come half a horizon before the slot.
    reason, wait = 'rate', due - horizon / 2 - now
    break
  end
  call('ZREM', LINE, id)
  if dated then call('ZREM', DEADLINES, id) end
  hold(client, -1)
  local run = call('HINCRBY', prefix .. 'state:' .. id, 'run', 1)
  move(id, 'released', 'due', us(due), 'slot', exact(slot), 'tag', tag)
  call('ZADD', INFLIGHT, us(due + grace), id)
  last, v, free = slot, math.max(v, tonumber(tag)), free - 1
  if probe then
    probe = id
    call('HSET', PACE, 'probe', probe)
  end
  granted[#granted + 1], granted[#granted + 2], granted[#granted + 3] = id, run, us(due)
end
if #granted > 0 or set_back > 0 then
  call('HSET', PACE, 'last', exact(last), 'at', us(now), 'gate', us(gate), 'v', exact(v))
end

-- 7. Flows that V has passed are not needed any more, and neither are those of an empty line. Each
-- call removes a bounded number: 100,000 at once would hold Redis for 28 ms.
local passed = reason == 'idle' and '+inf' or exact(v)
local idle = call('ZRANGEBYSCORE', FLOWS, '-inf', passed, 'LIMIT', 0, 200)
if #idle > 0 then call('ZREM', FLOWS, unpack(idle)) end

-- 8. Failed jobs that have been listed long enough, and those whose record has expired before,
-- because the configured time was shorter when they failed.
for _ = 1, most do
  local oldest = call('ZRANGE', FAILED, 0, 0, 'WITHSCORES')
  local id = oldest[1]
  if not id then break end
  local listed = oldest[2] + keep_failed * 1000 > now
  if listed and call('EXISTS', prefix .. 'job:' .. id) == 1 then break end
  call('ZREM', FAILED, id)
end

-- 9. When to call again: after the next backoff, if nothing waits before, and when the next
-- override ends. If nothing waits at all, the counts of clients are removed: a job whose record was
-- lost leaves its client's count and bytes.
if reason == 'idle' then
  local first = call('ZRANGE', DELAYED, 0, 0, 'WITHSCORES')
  if not first[1] then
    call('DEL', SHARE)
    if free == concurrency then call('DEL', prefix .. 'stored') end
  end
  wait = first[2] and math.max(first[2] - now, 0) or NO_END
elseif paused or reason == 'concurrency' then
  wait = NO_END
end
if next_end then wait = math.min(wait, next_end - now) end
return { us(now), us(math.max(wait, 0)), reason, returned, granted, ended, lapsed }
