-- prelude: what every script of the line begins with (Go puts it before each of them).
-- KEYS[1..10] line, delayed, inflight, deadlines, flows, share, pace, books, failed, sweep (keys.go)
-- ARGV[1]     now in µs, or '' for Redis's own clock
-- ARGV[2]     key prefix of the backend, for the keys of single jobs
-- ARGV[3..7]  configured interval in µs (0: unlimited), burst, concurrency, capacity, feedback ('1', '0'); an override in
--             pace goes before them
-- ARGV[8]     how long a failed job is listed, ms
local LINE, DELAYED, INFLIGHT, DEADLINES, FLOWS, SHARE, PACE, BOOKS, FAILED, SWEEP = unpack(KEYS)
local prefix, keep_failed = ARGV[2], tonumber(ARGV[8])
local call = redis.call

-- Lua's tostring keeps 14 digits: too few for times and tags.
local function us(x) return string.format('%.0f', x) end
local function exact(x) return string.format('%.17g', x) end

local now = tonumber(ARGV[1])
if not now then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

local p = call('HMGET', PACE, 'last', 'at', 'gate', 'v', 'call', 'interval', 'burst', 'concurrency', 'capacity', 'paused',
  'feedback', 'factor', 'probe', 'stopped')
local last = tonumber(p[1]) or 0 -- the last granted slot
local at = tonumber(p[2]) or 0 -- when last or gate was written
local gate = tonumber(p[3]) or 0 -- no start before it
local v = tonumber(p[4]) or 0 -- virtual time: the largest tag ever released
local call_time = tonumber(p[5]) or 0 -- smoothed length of a call
local full_interval = tonumber(p[6] or ARGV[3]) -- of a backend that is well
local burst = tonumber(p[7] or ARGV[4])
local concurrency = tonumber(p[8] or ARGV[5])
local capacity = tonumber(p[9] or ARGV[6])
-- The queue that brings tickets to the workers stands still: one of them found it so a moment ago (stop.lua).
local stopped = (tonumber(p[14]) or 0) - now
local paused = p[10] == '1' or stopped > 0 and stopped <= 5000000 -- further ahead: the clock was set back
local feedback = (p[11] or ARGV[7]) == '1'
local factor = feedback and tonumber(p[12]) or 1 -- what a sick backend leaves of the rate
local probe = feedback and p[13] or nil -- after a closed gate: 'due', or the id of the job whose call tries

-- A slot takes whole quarters of a µs: what a double holds of µs since 1970 (until 2041). So slots add up exactly, and
-- never come faster than the rate.
local function quarters(x) return math.ceil(x * 4) / 4 end
local interval = quarters(full_interval / factor)
-- How far a burst lets a slot lag behind. A lower factor stretches the interval, but not this: else slots that were saved
-- up at a low factor would be more than a burst once it rises.
local lag = (burst - 1) * quarters(full_interval)
-- Without a rate, concurrency is what there is to lower.
if full_interval == 0 then concurrency = math.max(1, math.floor(concurrency * factor)) end

-- A clock that was set back takes the last slot and the gate along, or both would hold for as long as it was set back.
local set_back = math.max(at - now, 0)
last, gate = last - set_back, gate - set_back
if not feedback then gate = 0 end

-- next_slot, as seen at t, is one interval after the last slot. Slots that idling let pass are forfeited, but for
-- burst - 1 of them.
local function next_slot(t) return math.max(last + interval, t - lag) end

-- resting tells whether the backend is left alone: its gate is closed, or a probe is under way.
local function resting() return now < gate or probe and probe ~= 'due' end

-- wait_for predicts the time until a job starts that has rank jobs before it: from the gate's end on one interval a
-- job, or what the concurrency leaves of the rate when calls are long.
local function wait_for(rank, full)
  local open = math.max(now, gate)
  local slot = next_slot(open) + rank * interval
  local place = open + (rank + (full and 1 or 0)) * call_time / concurrency
  return math.ceil(math.max(open, slot, place) - now)
end

-- waiting_on names what the next job of the line waits on.
local function waiting_on(full)
  if paused then return p[10] == '1' and 'paused' or 'queue_paused' end
  if resting() then return 'cooldown' end
  if full or call_time / concurrency > interval then return 'concurrency' end
  return 'rate'
end

-- numbers reads what the scripts need of a job's record: accepted at, start by, end by (µs), keep (ms), client; nil
-- when there is no record.
local function numbers(record) return string.match(record, '^(%d+) (%d+) (%d+) (%d+) (%x+) ') end
local function head(id) return numbers(call('GETRANGE', prefix .. 'job:' .. id, 0, 95)) end

-- marks reads what a record says between its numbers and its words, by sign (jobs/record.go); the client; where the words
-- begin. The first 1 KiB holds all of it. Nothing of it is told of no record.
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
local WORDS = 2559 -- up to here a record's words have ended: its payload comes after them

-- too_late tells whether a job may no longer start at t. One that has had an attempt minds only its max_age.
local function too_late(id, start_by, end_by, t)
  if tonumber(end_by) <= t then return true end
  return tonumber(start_by) <= t and tonumber(call('HGET', prefix .. 'state:' .. id, 'att') or 0) == 0
end

-- hold counts a client's waiting jobs.
local function hold(client, by)
  if call('HINCRBY', SHARE, client, by) <= 0 then call('HDEL', SHARE, client) end
end

-- move writes a job's new state and further fields of its standing. Who watches the job is told, unless it is only on its way to
-- a worker, or has ended, of which finish tells.
local function move(id, state, ...)
  local key = prefix .. 'state:' .. id
  call('HSET', key, 'st', state, ...)
  call('HINCRBY', key, 'ver', 1)
  if state == 'running' or state == 'delayed' or state == 'waiting' then call('PUBLISH', prefix .. 'moved', id) end
end

-- standing reads what is told of where a job stands (look.go); born is when a redriven job was first accepted. told leaves it out of an
-- answer where there is nothing yet: 15 nils for each job that waits are no small part of an answer.
local NOTHING = {}
local function told(s) return s[1] and s or NOTHING end
local function standing(id)
  return call('HMGET', prefix .. 'state:' .. id, 'st', 'att', 'next', 'start', 'fin', 'exp', 'cancel', 'code', 'detail',
    'status', 'type', 'size', 'ver', 'born', 'fields')
end

-- Permits of concurrency limits are keys of other subjects. They are named by holder and keys, with @ between them, or with # where a
-- cluster keeps them apart from the job (jobs.Holds). Those that are taken by no job on record are noted as open.
local PERMITS = prefix .. 'permits'

-- at_permits does a command with the key and the holder of each permit. What isn't a key of permits is left to the limits' script to mend.
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

-- vacate gives back the permits that a job holds. Those that are apart become open: the reconciler gives them back.
local function vacate(permits)
  if not permits then return end
  if string.find(permits, '#', 1, true) then
    redis.pcall('ZADD', PERMITS, 0, permits)
  else
    at_permits(permits, 'ZREM')
  end
end

-- A client's list has 23 bytes a job, the oldest first: when it was accepted, µs in 7 bytes, and the UUID that ends its id.
-- A zset would take four times as much.
local id_form = string.sub(prefix, 5, -3) .. '-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x'
local function id_of(entry) return string.format(id_form, string.byte(entry, 8, 23)) end

local function entry_of(at, uuid)
  local bytes = ''
  for _ = 1, 7 do
    bytes, at = string.char(at % 256) .. bytes, math.floor(at / 256)
  end
  return bytes .. uuid
end

-- trim takes up to two of the oldest jobs that are no longer on record from a client's list: more than come to be so. What is behind one that
-- is kept for longer stays as long as that.
local function trim(client)
  local key = prefix .. 'mine:' .. client
  for _, entry in ipairs(call('LRANGE', key, 0, 1)) do
    if call('EXISTS', prefix .. 'job:' .. id_of(entry)) == 1 then break end
    call('LPOP', key)
  end
end

-- A client whose tier bounds them has its jobs' bytes counted: of a job that says so in its record,
-- with their number ($), while it lives in a hash of the backend's, by client; once it has ended,
-- with its result's, in a zset of the client's own, by when its record goes (µs), where the member
-- '' has less than 0: their sum.

-- live_bytes counts the bytes of a client's jobs that live.
local function live_bytes(client, by)
  local key = prefix .. 'stored'
  if call('HINCRBY', key, client, by) <= 0 then call('HDEL', key, client) end
end

local function kept_entry(id, bytes)
  return string.sub(id, -36) .. ' ' .. us(bytes + call('STRLEN', prefix .. 'result:' .. id))
end
local function bytes_of(entry) return tonumber(string.match(entry, '%d+$')) end

-- keep_bytes has a job's bytes count as those of one that has ended and is kept for so long (ms).
local function keep_bytes(id, client, bytes, keep)
  local key, entry = prefix .. 'kept:' .. client, kept_entry(id, bytes)
  if call('ZADD', key, us(now + keep * 1000), entry) == 1 then
    live_bytes(client, -bytes)
    call('ZINCRBY', key, us(-bytes_of(entry)), '')
  end
  call('PEXPIRE', key, math.max(call('PTTL', key), tonumber(keep)))
end

-- drop_bytes ends that, before its result is removed. An entry that isn't there has gone by its
-- time.
local function drop_bytes(id, client, bytes)
  local key, entry = prefix .. 'kept:' .. client, kept_entry(id, bytes)
  if call('ZREM', key, entry) == 1 then call('ZINCRBY', key, us(bytes_of(entry)), '') end
end

-- list_failed puts a failed job on the list from which it can be redriven, and returns how long it is kept then.
local function list_failed(id, at, keep)
  keep = math.max(keep, keep_failed)
  call('ZADD', FAILED, us(at), id)
  call('PEXPIRE', prefix .. 'result:' .. id, keep)
  return keep
end

-- call_back puts a job's end into the outbox. Half of an end must not be lost because another program has taken
-- that key: what it holds goes.
local function call_back(id)
  local key = prefix .. 'callbacks'
  if type(redis.pcall('ZADD', key, us(now), id)) == 'table' then
    call('DEL', key)
    call('ZADD', key, us(now), id)
  end
  call('PUBLISH', prefix .. 'callback', '')
end

-- ended does for a caller what the end of its job, or of its share in one, is due: the record gets the time that it may outlive
-- that, what tells afterwards that it was there stays as long again (a day at most), and its URL is to be called.
local DAY = 24 * 3600000
local function ended(id, client, keep, calls_back)
  call('PEXPIRE', prefix .. 'job:' .. id, keep)
  call('SET', prefix .. 'gone:' .. id, client, 'PX', keep + math.min(keep, DAY))
  if calls_back then call_back(id) end
  trim(client)
end

-- trace_of tells whose job was there, of this backend or of that with another prefix; with ! behind it where it was purged, and would be on record still. false: none is known of.
local function trace_of(id, of)
  local client, till = string.match(call('GET', (of or prefix) .. 'gone:' .. id) or '', '^(%x+) ?(%d*)$')
  if client and (tonumber(till) or 0) > now then return client .. '!' end
  return client or false
end

-- A job that callers share has a hash of their shares: each one's id, its client's tag and '!' where it has a callback; 'refresh' where
-- it was begun for no caller; and 'join', by which others find it. Beside it is a hash of its callers, which lives as long: 'first', the first
-- one's share; each one's share by what it is known by, of those that have one at most; how many the others had, by client's tag.

-- unjoin lets nobody join a job any more, and returns by what it was joined.
local function unjoin(id)
  local join = call('HGET', prefix .. 'shares:' .. id, 'join') or ''
  local key = prefix .. 'joint:' .. join
  if call('GET', key) == id then call('DEL', key) end
  return join
end

-- each_share calls f with id, client's tag and whether it has a callback of every live share in a job, and returns how many those are.
local function each_share(id, f)
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

-- for_nobody tells of a job that has ended whether it was a refresh that no caller has a share in: 'join' alone is left.
local function for_nobody(id) return call('HLEN', prefix .. 'shares:' .. id) == 1 end

-- A refresh that failed for nobody has those after it rest, the longer the more of them fail in a row. A rest is told from Redis's time,
-- and remembered for as long again as the longest, that the next one may follow it.
local REST, LONGEST_REST, KEEP_REFRESH = 10 * 1000000, 600 * 1000000, 60000

-- rest_of is until when what is joined by that rests, and how long it does; zeroes where it doesn't.
local function rest_of(join)
  local till, length = string.match(call('GET', prefix .. 'rest:' .. join) or '', '^(%d+) (%d+)$')
  return tonumber(till) or 0, tonumber(length) or 0
end

-- give_up is for such a refresh what list_failed is for other jobs: nobody asks what became of it, and it is not to be redriven.
local function give_up(id, join, keep)
  local _, length = rest_of(join)
  length = math.min(math.max(2 * length, REST), LONGEST_REST)
  call('SET', prefix .. 'rest:' .. join, us(now + length) .. ' ' .. us(length), 'PX', us((length + LONGEST_REST) / 1000))
  keep = math.min(keep, KEEP_REFRESH)
  call('PEXPIRE', prefix .. 'result:' .. id, keep)
  return keep
end

-- disband removes what is left of a job whose record is gone: nobody can tell of it, nor of a share in it.
local function disband(id)
  unjoin(id)
  each_share(id, function(share) call('DEL', prefix .. 'job:' .. share) end)
  call('DEL', prefix .. 'state:' .. id, prefix .. 'shares:' .. id, prefix .. 'callers:' .. id)
end

-- finish ends a job for good, and with it the shares in it; a job that failed is listed. The caller has taken it out of its zset.
-- A job for many is no client's: nothing tells afterwards that it was there.
local function finish(id, state, keep, ...)
  local has, client = marks(beginning(id))
  vacate(has['@'])
  local join = has['&'] and unjoin(id)
  if join then call('HDEL', prefix .. 'shares:' .. id, 'refresh') end
  if state == 'failed' then
    keep = (join and for_nobody(id)) and give_up(id, join, keep) or list_failed(id, now, keep)
  elseif state == 'succeeded' and join then
    call('DEL', prefix .. 'rest:' .. join)
  end
  move(id, state, 'fin', us(now), 'exp', us(now + keep * 1000), ...)
  call('PEXPIRE', prefix .. 'state:' .. id, keep)
  if has['$'] then keep_bytes(id, client, has['$'], keep) end
  if join then
    call('PEXPIRE', prefix .. 'job:' .. id, keep)
    each_share(id, function(share, of, calls_back)
      vacate(marks(beginning(share))['@'])
      ended(share, of, keep, calls_back)
    end)
    call('PEXPIRE', prefix .. 'shares:' .. id, keep)
    call('PEXPIRE', prefix .. 'callers:' .. id, keep)
  else
    ended(id, client, keep, has['!'])
  end
  call('HINCRBY', BOOKS, state, 1)
  call('PUBLISH', prefix .. 'final', id)
end

-- Calls that have ended are counted by minute, in buckets of their length: bucket n holds those of up to 2^(n/2) ms.
local MINUTE = 60 * 1000000
local function minute_key(ago) return prefix .. 'minute:' .. us(math.floor(now / MINUTE) - ago) end
local function note_call(took)
  local bucket = math.max(0, math.ceil(2 * math.log(took / 1000) / math.log(2)))
  call('HINCRBY', minute_key(0), bucket, 1)
  call('PEXPIRE', minute_key(0), 3 * 60000) -- status reads this one and the one before
end

local function wake() call('PUBLISH', prefix .. 'wake', '') end

-- in_turn is the tag of a job that comes now by its flow's: past all in the line that are all but equal to
-- it, which came earlier, so that those go in the order in which they came. They stay within CLOSE, which
-- is under the least step of a flow (1/4000); the few millions that doubles have room for there share one.
-- last is the largest of the tags in that range that aren't in the line yet; nil: there is none.
local CLOSE = 1 / 8192
local function in_turn(tag, last)
  local below = tag + CLOSE
  local there = call('ZREVRANGEBYSCORE', LINE, '(' .. exact(below), exact(tag), 'WITHSCORES', 'LIMIT', 0, 1)[2]
  if there then last = math.max(there, last or 0) end
  return math.min(last and last * (1 + 2 ^ -52) or tag, below)
end

-- line_up gives a job that has its record a place at its flow's end, as if it had just been offered. text begins with its words.
local function line_up(id, client, text)
  local readable, words = pcall(cjson.decode, string.match(text, '^[^\n]*'))
  if not readable then words = {} end
  local flow = client .. ':' .. (words.p or 'normal')
  local tag = in_turn(math.max(v, tonumber(call('ZSCORE', FLOWS, flow) or 0)) + 1 / (words.w or 1))
  if call('ZCARD', LINE) == 0 then wake() end
  call('ZADD', LINE, exact(tag), id)
  call('ZADD', FLOWS, exact(tag), flow)
  hold(client, 1)
end

-- requeue puts a job that had left the line back with its old tag: V has passed that, so it is at the head. Whoever
-- drains a line that isn't empty is awake or knows when to wake.
local function requeue(id, tag, client)
  if call('ZCARD', LINE) == 0 then wake() end
  move(id, 'waiting')
  call('ZADD', LINE, tag, id)
  hold(client, 1)
end

-- land takes a job out of flight. Its place is news to a drain that was out of them, a probe's end to one that rests.
local function land(id)
  if id == probe or call('ZCARD', INFLIGHT) >= concurrency then wake() end
  call('ZREM', INFLIGHT, id)
end
