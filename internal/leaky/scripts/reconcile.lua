-- reconcile: goes through the line's keys, a part per call, and repairs inconsistencies.
-- ARGV[9]  members to look at   ARGV[10] pause after this call, µs   ARGV[11] length of a lease, µs
-- Returns 'resting' (the pause after the last call isn't over: nothing was done), 'part' or 'round'
--         (this call completed a round over all keys), then {kind, what, ...} repairs
-- Idempotent: it changes only what is inconsistent. The scripts of the line leave nothing to
-- repair.
local most, rest, lease = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local w = call('HMGET', SWEEP, 'next', 'stage', 'score', 'member', 'broken')
local wait = tonumber(w[1] or now) - now
if wait > 0 and wait <= rest then return { 'resting', {} } end -- if more, the clock was set back
local broken = w[5] == '1' -- this round has repaired something
local left = most
local repairs = {}

local function repaired(kind, what)
  repairs[#repairs + 1], repairs[#repairs + 2] = kind, what
  call('HINCRBY', BOOKS, 'repaired_' .. kind, 1)
  broken = true
end

local function state_of(id) return call('HGET', prefix .. 'state:' .. id, 'st') or 'waiting' end

-- vanished ends a job whose record is gone, so that it can't run.
local function vanished(id)
  for _, key in ipairs({ LINE, DELAYED, INFLIGHT, DEADLINES }) do call('ZREM', key, id) end
  call('DEL', prefix .. 'job:' .. id, prefix .. 'result:' .. id)
  disband(id)
  call('HINCRBY', BOOKS, 'lost', 1)
  repaired('no_record', id)
end

-- live moves a job to the zset of its state. If it was in two, its client's count was right and
-- stays.
local home = { waiting = LINE, delayed = DELAYED, released = INFLIGHT, running = INFLIGHT }
local function live(key, id)
  local _, _, _, keep, client = head(id)
  if not keep then return vanished(id) end
  local state = state_of(id)
  local to = home[state]
  if to == key then return end
  call('ZREM', key, id)
  if key == LINE then call('ZREM', DEADLINES, id) end
  local s = call('HMGET', prefix .. 'state:' .. id, 'tag', 'next', 'fin')
  local added = 0
  if to == LINE then
    added = call('ZADD', LINE, 'NX', s[1] or exact(v), id)
    wake()
  elseif to == DELAYED then
    added = call('ZADD', DELAYED, 'NX', s[2] or us(now), id)
  elseif to == INFLIGHT then
    added = call('ZADD', INFLIGHT, 'NX', us(now + lease), id)
  else
    if state == 'failed' then keep = list_failed(id, s[3] or now, keep) end
    local has = marks(beginning(id))
    if has['$'] and call('PTTL', prefix .. 'job:' .. id) == -1 then
      keep_bytes(id, client, has['$'], keep)
    end
    for _, name in ipairs({ 'job:', 'state:' }) do
      if call('PTTL', prefix .. name .. id) == -1 then
        call('PEXPIRE', prefix .. name .. id, keep)
      end
    end
  end
  if added == 1 and key == INFLIGHT then
    hold(client, 1)
  elseif added == 1 and to == INFLIGHT then
    hold(client, -1)
  end
  repaired('misplaced', id)
end

local function deadline(_, id)
  if call('ZSCORE', LINE, id) then return end
  call('ZREM', DEADLINES, id)
  repaired('deadline', id)
end

-- failed checks a failed job. Those that have been listed long enough are left to release.
local function failed(_, id, score)
  if call('EXISTS', prefix .. 'job:' .. id) == 1 then
    if state_of(id) == 'failed' then return end
    repaired('misplaced', id)
  elseif score + keep_failed * 1000 > now then
    repaired('no_record', id)
  end
  call('ZREM', FAILED, id)
end

local function depth() return call('ZCARD', LINE) + call('ZCARD', DELAYED) end

-- recount repairs a hash of numbers by client.
local function recount(key, counted, kind)
  if call('HLEN', key) > most then call('DEL', key) end
  local stored = call('HGETALL', key)
  for i = 1, #stored, 2 do
    local client, n = stored[i], counted[stored[i]]
    if not n then
      call('HDEL', key, client)
      repaired(kind, client)
    elseif tonumber(stored[i + 1]) == n then
      counted[client] = nil
    end
  end
  for client, n in pairs(counted) do
    call('HSET', key, client, us(n))
    repaired(kind, client)
  end
end

-- shares recounts every client's waiting jobs, and the bytes of those that haven't ended, if one
-- call may look at all of them. It can't be done in parts, as jobs come and go between calls. It
-- returns false if that has to wait for the next call.
local function shares()
  local n = depth()
  if n > most then return true end
  local flying = call('ZRANGE', INFLIGHT, 0, most - n)
  local all = n + #flying
  if math.min(all, most) > left then return false end
  left = left - all
  local waiting, bytes = {}, {}
  local function count(ids, waits)
    for _, id in ipairs(ids) do
      local has, client = marks(beginning(id))
      if client and waits then waiting[client] = (waiting[client] or 0) + 1 end
      if has['$'] then bytes[client] = (bytes[client] or 0) + has['$'] end
    end
  end
  count(call('ZRANGE', LINE, 0, -1), true)
  count(call('ZRANGE', DELAYED, 0, -1), true)
  count(flying, false)
  recount(SHARE, waiting, 'share')
  if all <= most then recount(prefix .. 'stored', bytes, 'bytes') end
  return true
end

-- counters makes accepted the sum of all other counters. Jobs that are nowhere are counted as lost.
-- Jobs that were never counted (if the books were lost, say) are counted as accepted. A counter
-- below 0 was decremented after it was lost.
local function counters()
  local c, under = {}, 0
  for _, field in ipairs({ 'accepted', 'lost', 'succeeded', 'failed', 'canceled', 'expired' }) do
    c[field] = tonumber(call('HGET', BOOKS, field)) or 0
    if c[field] < 0 then
      under = under + (field == 'accepted' and c[field] or -c[field])
      call('HSET', BOOKS, field, 0)
      c[field] = 0
    end
  end
  local finals = c.lost + c.succeeded + c.failed + c.canceled + c.expired
  local nowhere = c.accepted - (depth() + call('ZCARD', INFLIGHT) + finals)
  if nowhere > 0 then
    call('HINCRBY', BOOKS, 'lost', nowhere)
  elseif nowhere < 0 then
    local found = math.min(-nowhere, c.lost) -- counted as lost, but found
    if found > 0 then call('HINCRBY', BOOKS, 'lost', us(-found)) end
    if found < -nowhere then call('HINCRBY', BOOKS, 'accepted', us(-nowhere - found)) end
  end
  if nowhere ~= 0 or under ~= 0 then repaired('counters', us(nowhere + under)) end
end

-- flow drops the tag of a client that has nothing waiting, if the round has repaired something: the
-- jobs that it counts may be gone. Otherwise such tags are right: the turn of a canceled job stays
-- unused until V has passed it.
local function flow(_, name)
  local client = string.match(name, '^(%x+):')
  if client and call('HEXISTS', SHARE, client) == 1 then return end
  call('ZREM', FLOWS, name)
  repaired('flow', name)
end

local stages = {
  { LINE, live }, { DELAYED, live }, { INFLIGHT, live }, { DEADLINES, deadline },
  { FAILED, failed }, 'shares', 'counters', { FLOWS, flow },
}
local stage, score, member = tonumber(w[2]) or 1, w[3] or '', w[4] or ''
while left > 0 and stage <= #stages do
  local this = stages[stage]
  if this == 'shares' then
    if not shares() then break end
    stage = stage + 1
  elseif this == 'counters' then
    counters()
    stage = stage + 1
  elseif this[1] == FLOWS and not (broken and depth() <= most) then
    stage = stage + 1
  else
    local rows = part(this[1], score, member, left)
    for i = 1, #rows, 2 do this[2](this[1], rows[i], rows[i + 1]) end
    if #rows < 2 * left then
      stage, score, member = stage + 1, '', ''
    else
      score, member = rows[#rows], rows[#rows - 1]
    end
    left = left - #rows / 2
  end
end
local word = 'part'
if stage > #stages then word, stage, broken = 'round', 1, false end
call('HSET', SWEEP, 'next', us(now + rest), 'stage', stage, 'score', score, 'member', member,
  'broken', broken and '1' or '')
return { word, repairs }
