-- offer: admits jobs. For each it charges the limits, gives the job its place in the line and
-- writes its record, or changes nothing.
-- KEYS[11..] of the limits, if some of the jobs have a charge
-- ARGV[9]    the longest predicted wait, µs
-- ARGV[10]   the part of the capacity that one client may take up
-- ARGV[11]   horizon of a release, µs
-- ARGV[12]   how long a client's list outlives the newest job in it, ms
-- ARGV[13]   subscriptions to a job, at most   ARGV[14] those of a client that may have several
-- ARGV[15]   number of values of the limits that follow: 0, or their args as JSON and the texts of
--            members (limits/limits.lua, which Go puts before this script if it decides limits)
-- then       ten values per job: id, rest of the record, client, flow, cost ÷ weight, start_within
--            µs (0: none), max_age µs, keep ms, the UUID's bytes ('': not in the client's list),
--            and the kind: '' (owned), 'key' (owned, with an id from a client's key), 'shared' or
--            'refresh'.
--            'shared' and 'refresh' are followed by four more: Join, id of the caller's
--            subscription, rest of its record, and the client's key of its only
--            subscription ('': it may have several).
--            The kind may begin with these signs, in this order, each with values that come right
--            after the kind:
--            # the job has a charge, which is the next of the limits: no value
--            > its key may have made other jobs: their number, and for each its backend's prefix
--              and its id
--            $ its bytes are counted for the client: how many its jobs may take, including this one
-- Returns    what the line waits on, then six values per job: outcome, position, predicted wait µs,
--            retry after µs, accepted at µs, and the id of the client's subscription ('again') or
--            of the other job of its key ('exists'). Last the limits' reply as a list, if any
-- Nothing is charged for a job that is on record ('exists'), was purged ('spent') or is refused. If
-- the limits and the line both refuse, the answer is that of the limits ('limited'). A subscription
-- is charged like a job.
-- An id from a client's key isn't used again before the record of its purged job would have
-- expired: 'spent'.
-- Idempotent by id of the job or subscription: a job on record isn't changed ('exists').
local max_wait, fraction, horizon = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local most_subscriptions, most_each = tonumber(ARGV[13]), tonumber(ARGV[14])
local share_limit = math.max(1, math.floor(capacity * fraction))
local waiting = call('ZCARD', LINE)
local depth = waiting + call('ZCARD', DELAYED)
local was_empty = waiting == 0
local full = call('ZCARD', INFLIGHT) >= concurrency
-- top is the largest tag in the line.
local top = tonumber(call('ZRANGE', LINE, -1, -1, 'WITHSCORES')[2] or 0)
local tags, held = {}, {} -- last tag by flow; waiting jobs by client
local added, accepted = {}, 0 -- accepted jobs by client, and in total
-- Tags of accepted jobs, and the arguments of ZADD: they enter the line together. A ZADD for each
-- of them would take a quarter of the script's time.
local fresh, entries = {}, {}

local function enter()
  if #entries > 0 then call('ZADD', LINE, unpack(entries)) end
  fresh, entries = {}, {}
end

-- turn is in_turn including the jobs that are about to enter.
local function turn(tag)
  if tag > top then return tag end
  local last
  for i = 1, #fresh do
    if fresh[i] >= (last or tag) and fresh[i] < tag + CLOSE then last = fresh[i] end
  end
  return in_turn(tag, last)
end

-- before counts the jobs of the line with a tag of at most tag.
local function before(tag)
  if tag >= top then return waiting end
  local n = call('ZCOUNT', LINE, '-inf', exact(tag))
  for i = 1, #fresh do
    if fresh[i] <= tag then n = n + 1 end
  end
  return n
end

-- How long a refused job should wait until an equal one is accepted, if no other comes meanwhile.
-- Delayed jobs come back at the head, so all of them may go first.

local NO_END = 30 * 1000000 -- a pause has no predicted end: try again

-- gone predicts when n of the waiting jobs have left the line, the delayed ones last.
local function gone(n)
  local first = wait_for(n - 1, full)
  if n <= waiting or depth == waiting then return first end
  local nth = math.min(n, depth) - waiting - 1
  local backoff = call('ZRANGE', DELAYED, nth, nth, 'WITHSCORES')
  return first + math.max(backoff[2] - now, 0)
end

-- share_free predicts when the client is below its share of the line. The n-th next job of a flow
-- has a tag of at most V + n steps, plus CLOSE. If too few of the client's jobs are in this flow,
-- only the end of all waiting jobs is certain.
local function share_free(client, flow, step)
  local n = held[client] - share_limit + 1
  if tags[flow] <= v + (n - 1) * step + CLOSE then return gone(depth) end
  local ahead = before(math.min(v + n * step + CLOSE, tags[flow])) - 1
  return wait_for(ahead + depth - waiting, full)
end

-- near_enough returns the first time after earliest from which on the wait is certainly within the
-- limit: behind all waiting jobs, or sooner, at the job's own place. That place comes nearer while
-- the flow's last job waits, because the flow's next tag stays. After that the tag moves along with
-- V.
local function near_enough(flow, rank, limit, earliest)
  local behind_all = math.max(gone(depth + 1) - limit, earliest)
  local here = math.max(wait_for(rank + depth - waiting, full) - limit, earliest)
  if here >= behind_all then return behind_all end
  local flow_rank = call('ZCOUNT', LINE, '-inf', '(' .. exact(tags[flow]))
  return here <= wait_for(flow_rank, full) - horizon and here or behind_all
end

-- Bounds of the entries of a client's ended jobs that a call looks at: it removes 1,000 expired
-- ones, and predicts from the 100 that expire next.
local SWEPT, NEXT = 1000, 100
local stored = {} -- by client: key, bytes, and next: entries and when they expire

-- stored_by returns the bytes of a client's jobs.
local function stored_by(client)
  if stored[client] then return stored[client] end
  local key = prefix .. 'kept:' .. client
  local gone, bytes = call('ZRANGEBYSCORE', key, '(0', us(now), 'LIMIT', 0, SWEPT), 0
  if #gone > 0 then
    for _, entry in ipairs(gone) do bytes = bytes + bytes_of(entry) end
    call('ZREM', key, unpack(gone))
    call('ZINCRBY', key, us(bytes), '')
  end
  local live = tonumber(call('HGET', prefix .. 'stored', client) or 0)
  stored[client] = { key = key, bytes = live - (call('ZSCORE', key, '') or 0) }
  return stored[client]
end

-- stored_free returns how long it takes until so kind more bytes of a client fit; nil: they do now.
-- If jobs have to end first, there is no prediction.
local function stored_free(client, bytes, bound)
  local s = stored_by(client)
  local over = s.bytes + bytes - bound
  if over <= 0 then return nil end
  s.next = s.next or call('ZRANGEBYSCORE', s.key, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, NEXT)
  for i = 1, #s.next, 2 do
    over = over - bytes_of(s.next[i])
    if over <= 0 or i == 2 * NEXT - 1 then return math.max(s.next[i + 1] - now, 1) end
  end
  return NO_END
end

-- place returns the line's answer to a job that isn't on record: outcome, position, wait, retry
-- after, and its tag. free is when its bytes fit; nil: now.
local function place(client, flow, step, start_within, free)
  local refused, retry = nil, 0
  if depth >= capacity then refused, retry = 'line_full', gone(depth - capacity + 1) end
  if fraction < 1 and held[client] >= share_limit then
    refused, retry = refused or 'client_share', math.max(retry, share_free(client, flow, step))
  end
  local tag = turn(math.max(v, tags[flow]) + step)
  local rank = before(tag)
  local wait = paused and 0 or wait_for(rank, full)
  local limit = start_within > 0 and math.min(max_wait, start_within) or max_wait
  if wait > limit then refused = refused or 'wait_too_long' end
  if free then refused, retry = refused or 'stored_full', math.max(retry, free) end
  if refused then
    enter()
    if paused then return refused, 0, wait, math.max(NO_END, free or 0) end
    return refused, 0, wait, math.max(near_enough(flow, rank, limit, retry), 1)
  end
  return 'accepted', rank + 1, wait, 0, tag
end

-- No two jobs of a backend are accepted at one moment, although one call accepts many: clients'
-- lists are ordered by it, and a place in them is found by it. If the clock was set back by more
-- than this, the new time is used all the same.
local LIMIT = 1000000
local newest = tonumber(call('HGET', PACE, 'newest') or 0)
if newest - now > LIMIT then newest = 0 end
local was_newest = newest
local function moment() return math.max(now, newest + 1) end

local out = { waiting_on(full) }
local listed = {} -- new entries of clients' lists, by client
local function list(client, uuid)
  local entries = listed[client] or {}
  listed[client], entries[#entries + 1] = entries, entry_of(newest, uuid)
end

-- begin returns the beginning of a record, when its job may start at the latest, and whether that
-- is before its end.
local function begin(client, start_within, max_age, keep)
  local end_by = now + max_age
  local start_by = start_within > 0 and math.min(now + start_within, end_by) or end_by
  local start_text = us(start_by)
  local times = us(moment()) .. ' ' .. start_text .. ' ' .. us(end_by)
  return times .. ' ' .. keep .. ' ' .. client .. ' ', start_text, start_by < end_by
end

-- confirm removes the permits of a job that is now on record from the open ones. Only permits that
-- are apart were ever open: others are taken in this script.
local function confirm(rest)
  local permits = string.match(rest, '^@(%S+#%S+)')
  if permits then redis.pcall('ZREM', PERMITS, permits) end
end

-- subscribe gives a caller a subscription to a job. Its bytes are counted if it becomes a job of
-- its own (part.lua).
local function subscribe(job, id, first, counts, rest, client, once)
  call('SET', prefix .. 'job:' .. id, first .. '=' .. job .. ' ' .. counts .. rest)
  confirm(rest)
  local calls_back = string.find(rest, '^! ') or string.find(rest, '^@%S+ ! ')
  call('HSET', prefix .. 'shares:' .. job, id, calls_back and client .. '!' or client)
  local callers = prefix .. 'callers:' .. job
  call('HSETNX', callers, 'first', id)
  if once ~= '' then
    call('HSET', callers, once, id)
  else
    call('HINCRBY', callers, client, 1)
  end
end

-- under_way returns the job that is under way for a Join, and whether it has room for another
-- subscription of the client.
local function under_way(join, client, once)
  local job = call('GET', prefix .. 'joint:' .. join)
  if not job or call('EXISTS', prefix .. 'job:' .. job) == 0 then return nil end
  local room = call('HLEN', prefix .. 'shares:' .. job) - 1 < most_subscriptions
  if room and once == '' then
    room = tonumber(call('HGET', prefix .. 'callers:' .. job, client) or 0) < most_each
  end
  return job, room
end

-- subscription_of returns the caller's subscription to a job, if it has one.
local function subscription_of(job, once)
  local id = once ~= '' and call('HGET', prefix .. 'callers:' .. job, once)
  return id and call('HEXISTS', prefix .. 'shares:' .. job, id) == 1 and id
end

-- advance moves a waiting job to where a job of the caller's own would stand, if that is earlier.
-- Then it takes the caller's turn.
local moved = false
local function advance(job, flow, step)
  enter()
  local there = tonumber(call('ZSCORE', LINE, job) or 0) -- 0: it doesn't wait
  local tag = turn(math.max(v, tags[flow]) + step)
  if tag >= there then return end
  call('ZADD', LINE, exact(tag), job)
  tags[flow], moved = tag, true
end

-- spent reports whether an id is that of a purged job. Only an id from a client's key can come
-- twice.
local function spent(id, of) return string.sub(trace_of(id, of) or '', -1) == '!' end

-- other looks for another job of the same key, among n that may exist, and returns the outcome and
-- its id.
local function other(from, n)
  for at = from, from + 2 * n - 2, 2 do
    local of, id = ARGV[at], ARGV[at + 1]
    if call('EXISTS', of .. 'job:' .. id) == 1 then return 'exists', id end
    if spent(id, of) then return 'spent' end
  end
end

local ask, answer, close
local i = 16 + tonumber(ARGV[15])
if i > 16 then
  ask, answer, close = open_limits({ unpack(KEYS, 11) }, cjson.decode(ARGV[16]), now, 16)
end
while i <= #ARGV do
  local id, rest, client, flow = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local step, start_within, max_age, keep = tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5]),
    tonumber(ARGV[i + 6]), ARGV[i + 7]
  local uuid, kind = ARGV[i + 8], ARGV[i + 9]
  local bound, counts, outcome, found = nil, '', nil, nil
  i = i + 10
  local limited = string.byte(kind) == 35
  if limited then kind = string.sub(kind, 2) end
  local fits = not limited or ask()
  local charged, placed = false, true
  if string.byte(kind) == 62 then
    outcome, found = other(i + 1, ARGV[i])
    i, kind = i + 1 + 2 * ARGV[i], string.sub(kind, 2)
  end
  if string.byte(kind) == 36 then
    bound, counts, kind = tonumber(ARGV[i]), '$' .. #rest .. ' ', string.sub(kind, 2)
    i = i + 1
  end
  local position, wait, retry, tag
  local keyed = kind == 'key'
  if keyed then kind = '' end
  local join, own, own_rest, once, subscription
  local before_it = newest
  if fits and not tags[flow] then tags[flow] = tonumber(call('ZSCORE', FLOWS, flow) or 0) end
  if kind ~= '' then
    join, own, own_rest, once = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    i = i + 4
    local job, open = under_way(join, client, once)
    subscription = job and subscription_of(job, once)
    if outcome then -- from another job of its key
    elseif call('EXISTS', prefix .. 'job:' .. own) == 1 then
      outcome = 'exists'
    elseif spent(own) then
      outcome = 'spent'
    elseif not fits then
      outcome = 'limited'
    elseif kind == 'refresh' then
      if job then outcome = 'joined' end
    elseif subscription then
      -- The subscription has permits of its own.
      outcome, found, charged, placed = 'again', subscription, true, false
      if not limited then vacate(string.match(own_rest, '^@(%S+) ')) end
      advance(job, flow, step)
    elseif job and open then
      local first = begin(client, start_within, max_age, keep)
      subscribe(job, own, first, counts, own_rest, client, once)
      newest = moment()
      if uuid ~= '' then list(client, uuid) end
      outcome, charged = 'joined', true
      advance(job, flow, step)
    end -- if the job has no room, another one is begun, and later offers join that
  end

  if keyed and not outcome then
    outcome = call('EXISTS', prefix .. 'job:' .. id) == 1 and 'exists'
      or spent(id) and 'spent' or nil
  end
  if not outcome and not fits then
    outcome = call('EXISTS', prefix .. 'job:' .. id) == 1 and 'exists' or 'limited'
  end
  if not outcome then
    if fraction < 1 and not held[client] then
      held[client] = tonumber(call('HGET', SHARE, client) or 0)
    end
    local free = bound and stored_free(client, #rest, bound)
    outcome, position, wait, retry, tag = place(client, flow, step, start_within, free)
    if outcome == 'accepted' then
      local first, start_text, dated = begin(client, start_within, max_age, keep)
      local record = first .. (kind ~= '' and '& ' or '') .. counts .. rest
      if call('SET', prefix .. 'job:' .. id, record, 'NX') then
        charged = true
        fresh[#fresh + 1], entries[#entries + 1], entries[#entries + 2] = tag, exact(tag), id
        if dated then call('ZADD', DEADLINES, start_text, id) end
        confirm(rest)
        tags[flow], top = tag, math.max(top, tag)
        held[client] = (held[client] or 0) + 1
        added[client] = (added[client] or 0) + 1
        waiting, depth, accepted = waiting + 1, depth + 1, accepted + 1
        if bound then
          stored[client].bytes = stored[client].bytes + #rest
          live_bytes(client, #rest)
        end
        newest = moment()
        if uuid ~= '' then list(client, uuid) end
        if kind ~= '' then
          call('SET', prefix .. 'joint:' .. join, id, 'PX', us(max_age / 1000 + keep))
          call('HSET', prefix .. 'shares:' .. id, 'join', join)
          subscribe(id, own, first, counts, own_rest, client, once)
        end
      else
        outcome = 'exists'
      end
    elseif call('EXISTS', prefix .. 'job:' .. id) == 1 then
      outcome = 'exists'
    end
  end
  if limited then answer(charged, placed) end
  if not position or outcome == 'exists' then position, wait, retry = 0, 0, 0 end
  out[#out + 1], out[#out + 2], out[#out + 3], out[#out + 4] = outcome, position, wait, retry
  out[#out + 1], out[#out + 2] = newest > before_it and us(newest) or '', found or ''
end

if newest > was_newest then call('HSET', PACE, 'newest', us(newest)) end

for client, entries in pairs(listed) do
  call('RPUSH', prefix .. 'mine:' .. client, unpack(entries))
  call('PEXPIRE', prefix .. 'mine:' .. client, ARGV[12])
end
if accepted > 0 or moved then
  enter()
  local last_tags = {}
  for flow, tag in pairs(tags) do
    if tag > 0 then last_tags[#last_tags + 1], last_tags[#last_tags + 2] = exact(tag), flow end
  end
  call('ZADD', FLOWS, unpack(last_tags))
end
if accepted > 0 then
  for client, n in pairs(added) do call('HINCRBY', SHARE, client, n) end
  call('HINCRBY', BOOKS, 'accepted', accepted)
  if was_empty then wake() end
end
if close then out[#out + 1] = close() end
return out
