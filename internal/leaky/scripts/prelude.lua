-- prelude: the beginning of every script of the line (Go puts it before each of them).
-- KEYS[1..10] line, delayed, inflight, deadlines, flows, share, pace, books, failed, sweep
-- (keys.go)
-- ARGV[1]     now in µs, or '' for Redis's own clock
-- ARGV[2]     key prefix of the backend, for the keys of single jobs
-- ARGV[3..7]  configured interval in µs (0: unlimited), burst, concurrency, capacity, feedback
--             ('1', '0'); overrides in pace take precedence
-- ARGV[8]     how long a failed job is listed, ms
local LINE, DELAYED, INFLIGHT, DEADLINES, FLOWS, SHARE, PACE, BOOKS, FAILED, SWEEP = unpack(KEYS)
local prefix, keep_failed = ARGV[2], tonumber(ARGV[8])
local call = redis.call

-- Lua's tostring keeps 14 digits, which is too few for times and tags.
local function us(x) return string.format('%.0f', x) end
local function exact(x) return string.format('%.17g', x) end

local now = tonumber(ARGV[1])
if not now then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

local p = call('HMGET', PACE, 'last', 'at', 'gate', 'v', 'call', 'interval', 'burst', 'concurrency',
  'capacity', 'paused', 'feedback', 'factor', 'probe', 'stopped', 'ends')

-- Overrides that end by themselves: p[15] has their names and ends (µs). One that has ended counts
-- as none, whether or not a release has removed it yet. So its end is like an operator's reset.
local end_of, next_end = {}, nil -- by name; the first one ahead
if p[15] then
  local at = { interval = 6, burst = 7, concurrency = 8, capacity = 9, paused = 10, feedback = 11 }
  for name, text in string.gmatch(p[15], '(%l+) (%d+)') do
    local t = tonumber(text)
    end_of[name] = t
    if t > now then
      next_end = math.min(t, next_end or t)
    elseif at[name] then
      p[at[name]] = false
    end
  end
end
local function write_ends()
  local text = ''
  for name, t in pairs(end_of) do text = text .. name .. ' ' .. us(t) .. ' ' end
  if text == '' then call('HDEL', PACE, 'ends') else call('HSET', PACE, 'ends', text) end
end

local last = tonumber(p[1]) or 0 -- the last granted slot
local at = tonumber(p[2]) or 0 -- when last or gate was written
local gate = tonumber(p[3]) or 0 -- no start before it
local v = tonumber(p[4]) or 0 -- virtual time: the largest tag ever released
local call_time = tonumber(p[5]) or 0 -- smoothed length of a call
local full_interval = tonumber(p[6] or ARGV[3]) -- of a healthy backend
local burst = tonumber(p[7] or ARGV[4])
local concurrency = tonumber(p[8] or ARGV[5])
local capacity = tonumber(p[9] or ARGV[6])
-- How long the queue of tickets still counts as paused, after the report of a worker (stop.lua).
local stopped = (tonumber(p[14]) or 0) - now
local paused = p[10] == '1' or stopped > 0 and stopped <= 5000000 -- if more, the clock was set back
local feedback = (p[11] or ARGV[7]) == '1'
local factor = feedback and tonumber(p[12]) or 1 -- the part of the rate that is in force
local probe = feedback and p[13] or nil -- after a closed gate: 'due', or the id of the probing job

-- Intervals are multiples of a quarter of a µs, which doubles can represent in times since 1970
-- (until 2041). So slots add up exactly, and never come faster than the rate.
local function quarters(x) return math.ceil(x * 4) / 4 end
local interval = quarters(full_interval / factor)
-- How far a burst lets a slot lag behind. A lower factor stretches the interval, but not this.
-- Otherwise slots that were saved up at a low factor would be more than a burst once it rises.
local lag = (burst - 1) * quarters(full_interval)
-- Without a rate the factor lowers the concurrency.
if full_interval == 0 then concurrency = math.max(1, math.floor(concurrency * factor)) end

-- If the clock was set back, the last slot and the gate move with it. Otherwise both would hold for
-- as long as it was set back.
local set_back = math.max(at - now, 0)
last, gate = last - set_back, gate - set_back
if not feedback then gate = 0 end

-- next_slot returns the next slot as of time t: one interval after the last slot. Slots that passed
-- while idle are forfeited, except burst - 1 of them.
local function next_slot(t) return math.max(last + interval, t - lag) end

-- resting reports whether the backend rests: its gate is closed, or a probe is under way.
local function resting() return now < gate or probe and probe ~= 'due' end

-- wait_for predicts the time until a job with rank jobs before it starts: from the opening of the
-- gate one interval per job, or if calls are long, the time that the concurrency allows.
local function wait_for(rank, full)
  local open = math.max(now, gate)
  local slot = next_slot(open) + rank * interval
  local place = open + (rank + (full and 1 or 0)) * call_time / concurrency
  return math.ceil(math.max(open, slot, place) - now)
end

-- waiting_on returns what the next job of the line waits on.
local function waiting_on(full)
  if paused then return p[10] == '1' and 'paused' or 'queue_paused' end
  if resting() then return 'cooldown' end
  if full or call_time / concurrency > interval then return 'concurrency' end
  return 'rate'
end

-- numbers returns the beginning of a job's record: accepted at, start by, end by (µs), keep (ms),
-- client; nil if there is no record.
local function numbers(record) return string.match(record, '^(%d+) (%d+) (%d+) (%d+) (%x+) ') end
local function head(id) return numbers(call('GETRANGE', prefix .. 'job:' .. id, 0, 95)) end

-- marks returns a record's marks, by sign (jobs/record.go), the client, and the position where the
-- metadata begins. All of it is in the first 1 KiB. Without a record there are no marks and no
-- client.
local function marks(record)
  local found, client, at = {}, string.match(record, '^%d+ %d+ %d+ %d+ (%x+) ()')
  while at do
    local sign, text, after = string.match(record, '^([=&@!$])(%S*) ()', at)
    if not sign then break end
    found[sign], at = text, after
  end
  return found, client, at
end
local function beginning(id) return call('GETRANGE', prefix .. 'job:' .. id, 0, 1023) end
local METADATA = 2559 -- the metadata of any record ends before this byte, and its payload follows

-- too_late reports whether a job may no longer start at t. After an attempt only its max_age
-- counts.
local function too_late(id, start_by, end_by, t)
  if tonumber(end_by) <= t then return true end
  return tonumber(start_by) <= t
    and tonumber(call('HGET', prefix .. 'state:' .. id, 'att') or 0) == 0
end

-- hold changes the count of a client's waiting jobs.
local function hold(client, by)
  if call('HINCRBY', SHARE, client, by) <= 0 then call('HDEL', SHARE, client) end
end

-- move writes a job's new state and further fields of its standing. It notifies watchers of the
-- job, unless the job has only been released, or has ended: then finish does.
local function move(id, state, ...)
  local key = prefix .. 'state:' .. id
  call('HSET', key, 'st', state, ...)
  call('HINCRBY', key, 'ver', 1)
  if state == 'running' or state == 'delayed' or state == 'waiting' then
    call('PUBLISH', prefix .. 'moved', id)
  end
end

-- standing reads a job's standing (look.go); born is when a redriven job was first accepted.
-- or_nothing omits an empty standing from an answer: 15 nils for each waiting job would make up
-- much of it.
local NOTHING = {}
local function or_nothing(s) return s[1] and s or NOTHING end
local function standing(id)
  return call('HMGET', prefix .. 'state:' .. id, 'st', 'att', 'next', 'start', 'fin', 'exp',
    'cancel', 'code', 'detail', 'status', 'type', 'size', 'ver', 'born', 'fields')
end

-- Permits of concurrency limits are in keys of other subjects. A text names them by holder and
-- keys, with @ between them, or with # if they are apart from the job on a cluster (jobs.Holds).
-- Permits without a job on record are listed as open.
local PERMITS = prefix .. 'permits'

-- at_permits runs a command with the key and the holder of each permit. It ignores errors: the
-- script of the limits repairs keys of the wrong type.
local function at_permits(permits, command, ...)
  local args, holder = { ... }, nil
  for part in string.gmatch(permits, '[^@]+') do
    if holder then
      args[#args + 1] = holder
      redis.pcall(command, part, unpack(args))
      args[#args] = nil
    end
    holder = holder or part
  end
end

-- vacate returns the permits that a job holds. Those that are apart become open, and the reconciler
-- returns them.
local function vacate(permits)
  if not permits then return end
  if string.find(permits, '#', 1, true) then
    redis.pcall('ZADD', PERMITS, 0, permits)
  else
    at_permits(permits, 'ZREM')
  end
end

-- A client's list has 23 bytes per job, the oldest first: when it was accepted, µs in 7 bytes, and
-- the UUID at the end of its id. A zset would take four times as much.
local id_form = string.sub(prefix, 5, -3)
  .. '-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x'
local function id_of(entry) return string.format(id_form, string.byte(entry, 8, 23)) end

local function entry_of(at, uuid)
  local bytes = ''
  for _ = 1, 7 do
    bytes, at = string.char(at % 256) .. bytes, math.floor(at / 256)
  end
  return bytes .. uuid
end

-- trim removes up to two of the oldest jobs from a client's list if they are no longer on record.
-- One call per ended job is more than enough. Jobs behind one that is kept for longer stay as long
-- as that one.
local function trim(client)
  local key = prefix .. 'mine:' .. client
  for _, entry in ipairs(call('LRANGE', key, 0, 1)) do
    if call('EXISTS', prefix .. 'job:' .. id_of(entry)) == 1 then break end
    call('LPOP', key)
  end
end

-- If a client's tier bounds the bytes of its jobs, they are counted. The record of such a job has
-- their number ($). Until it ends, they are counted in a hash of the backend, by client. Once it
-- has ended, they are counted together with its result's in a zset of the client, by when the
-- record expires (µs). The score of the member '' in it is the negative sum.

-- live_bytes changes the bytes of a client's jobs that haven't ended.
local function live_bytes(client, by)
  local key = prefix .. 'stored'
  if call('HINCRBY', key, client, by) <= 0 then call('HDEL', key, client) end
end

local function kept_entry(id, bytes)
  return string.sub(id, -36) .. ' ' .. us(bytes + call('STRLEN', prefix .. 'result:' .. id))
end
local function bytes_of(entry) return tonumber(string.match(entry, '%d+$')) end

-- keep_bytes counts a job's bytes as those of an ended job that is kept for so long (ms).
local function keep_bytes(id, client, bytes, keep)
  local key, entry = prefix .. 'kept:' .. client, kept_entry(id, bytes)
  if call('ZADD', key, us(now + keep * 1000), entry) == 1 then
    live_bytes(client, -bytes)
    call('ZINCRBY', key, us(-bytes_of(entry)), '')
  end
  call('PEXPIRE', key, math.max(call('PTTL', key), tonumber(keep)))
end

-- drop_bytes is the opposite, called before the result is removed. An entry that isn't there has
-- expired.
local function drop_bytes(id, client, bytes)
  local key, entry = prefix .. 'kept:' .. client, kept_entry(id, bytes)
  if call('ZREM', key, entry) == 1 then call('ZINCRBY', key, us(bytes_of(entry)), '') end
end

-- list_failed adds a job to the list of failed jobs, from which it can be redriven, and returns how
-- long it is kept.
local function list_failed(id, at, keep)
  keep = math.max(keep, keep_failed)
  call('ZADD', FAILED, us(at), id)
  call('PEXPIRE', prefix .. 'result:' .. id, keep)
  return keep
end

-- call_back puts a job's end into the outbox. If another program has written that key, its value is
-- removed: the script must not stop halfway through the end of a job.
local function call_back(id)
  local key = prefix .. 'callbacks'
  if type(redis.pcall('ZADD', key, us(now), id)) == 'table' then
    call('DEL', key)
    call('ZADD', key, us(now), id)
  end
  call('PUBLISH', prefix .. 'callback', '')
end

-- ended completes the end of a caller's job or subscription. The record gets its TTL. A trace of
-- the job stays for as long again (a day at most). The callback becomes due.
local DAY = 24 * 3600000
local function ended(id, client, keep, calls_back)
  call('PEXPIRE', prefix .. 'job:' .. id, keep)
  call('SET', prefix .. 'gone:' .. id, client, 'PX', keep + math.min(keep, DAY))
  if calls_back then call_back(id) end
  trim(client)
end

-- trace_of returns the client of a job that is gone, of this backend or of the one with another
-- prefix, followed by ! if it was purged and its record would not have expired yet; false if there
-- is no trace.
local function trace_of(id, of)
  local client, till = string.match(call('GET', (of or prefix) .. 'gone:' .. id) or '',
    '^(%x+) ?(%d*)$')
  if client and (tonumber(till) or 0) > now then return client .. '!' end
  return client or false
end

-- A shared job has a hash of its subscriptions: for each id the client's tag, with '!' if it has a
-- callback. The field 'join' has the Join by which others find it. (A field 'refresh' is of the
-- version before, for a job that was begun for no caller.) A hash of its callers has the same TTL: 'first' is the first subscription;
-- for clients that have one at most, its id by the client's key; for the others, how many they had,
-- by client's tag.

-- unjoin prevents others from joining a job, and returns its Join.
local function unjoin(id)
  local join = call('HGET', prefix .. 'shares:' .. id, 'join') or ''
  local key = prefix .. 'joint:' .. join
  if call('GET', key) == id then call('DEL', key) end
  return join
end

-- each_subscription calls f for each current subscription to a job, with its id, its client's tag
-- and whether it has a callback. It returns their number.
local function each_subscription(id, f)
  local fields, n = call('HGETALL', prefix .. 'shares:' .. id), 0
  for i = 1, #fields, 2 do
    if fields[i] ~= 'join' and fields[i] ~= 'refresh' then
      local client, calls_back = string.match(fields[i + 1], '^(%x+)(!?)$')
      f(fields[i], client, calls_back == '!')
      n = n + 1
    end
  end
  return n
end

-- disband removes the keys of a job whose record is gone, and its subscriptions.
local function disband(id)
  unjoin(id)
  each_subscription(id, function(one) call('DEL', prefix .. 'job:' .. one) end)
  call('DEL', prefix .. 'state:' .. id, prefix .. 'shares:' .. id, prefix .. 'callers:' .. id)
end

-- finish ends a job, and with it its subscriptions. A failed job is listed. The caller must have
-- removed it from its zset. A shared job is unowned and leaves no trace. The standing gets its TTL
-- after the record, since Redis's clock goes on between two commands: a record without a standing
-- is a waiting job's, which would be put back into the line.
local function finish(id, state, keep, ...)
  local has, client = marks(beginning(id))
  vacate(has['@'])
  local join = has['&'] and unjoin(id)
  if state == 'failed' then keep = list_failed(id, now, keep) end
  move(id, state, 'fin', us(now), 'exp', us(now + keep * 1000), ...)
  if has['$'] then keep_bytes(id, client, has['$'], keep) end
  if join then
    call('PEXPIRE', prefix .. 'job:' .. id, keep)
    each_subscription(id, function(one, of, calls_back)
      vacate(marks(beginning(one))['@'])
      ended(one, of, keep, calls_back)
    end)
    call('PEXPIRE', prefix .. 'shares:' .. id, keep)
    call('PEXPIRE', prefix .. 'callers:' .. id, keep)
  else
    ended(id, client, keep, has['!'])
  end
  call('PEXPIRE', prefix .. 'state:' .. id, keep)
  call('HINCRBY', BOOKS, state, 1)
  call('PUBLISH', prefix .. 'final', id)
end

-- Calls that have ended are counted per minute, by length: bucket n has those of up to 2^(n/2) ms.
local MINUTE = 60 * 1000000
local function minute_key(ago) return prefix .. 'minute:' .. us(math.floor(now / MINUTE) - ago) end
local function note_call(took)
  local bucket = math.max(0, math.ceil(2 * math.log(took / 1000) / math.log(2)))
  call('HINCRBY', minute_key(0), bucket, 1)
  call('PEXPIRE', minute_key(0), 3 * 60000) -- status reads this one and the one before
end

local function wake() call('PUBLISH', prefix .. 'wake', '') end

-- in_turn returns the tag of a new job from the tag that its flow gives: past all nearly equal tags
-- in the line, so that those jobs go in the order of their arrival. Nearly equal tags are within
-- CLOSE, which is less than the smallest step of a flow (1/4000). If the range is full, after a few
-- million, jobs share a tag. last is the largest tag in that range that isn't in the line yet; nil:
-- there is none.
local CLOSE = 1 / 8192
local function in_turn(tag, last)
  local below = tag + CLOSE
  local there = call('ZREVRANGEBYSCORE', LINE, '(' .. exact(below), exact(tag), 'WITHSCORES',
    'LIMIT', 0, 1)[2]
  if there then last = math.max(there, last or 0) end
  return math.min(last and last * (1 + 2 ^ -52) or tag, below)
end

-- line_up gives a job on record a place at the end of its flow, as if it had just been offered.
-- text begins with its metadata.
local function line_up(id, client, text)
  local readable, metadata = pcall(cjson.decode, string.match(text, '^[^\n]*'))
  if not readable then metadata = {} end
  local flow = client .. ':' .. (metadata.p or 'normal')
  local flow_tag = tonumber(call('ZSCORE', FLOWS, flow) or 0)
  local tag = in_turn(math.max(v, flow_tag) + 1 / (metadata.w or 1))
  if call('ZCARD', LINE) == 0 then wake() end
  call('ZADD', LINE, exact(tag), id)
  call('ZADD', FLOWS, exact(tag), flow)
  hold(client, 1)
end

-- requeue puts a job that had left the line back with its old tag. V has passed that tag, so the
-- job is at the head. A wake-up is needed only for an empty line: otherwise the dispatchers are
-- awake or know when to wake.
local function requeue(id, tag, client)
  if call('ZCARD', LINE) == 0 then wake() end
  move(id, 'waiting')
  call('ZADD', LINE, tag, id)
  hold(client, 1)
end

-- land takes a job out of flight. It wakes a drain whose concurrency was used up, or that rests
-- until a probe ends.
local function land(id)
  if id == probe or call('ZCARD', INFLIGHT) >= concurrency then wake() end
  call('ZREM', INFLIGHT, id)
end
