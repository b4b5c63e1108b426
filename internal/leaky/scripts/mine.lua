-- mine: the jobs of one client, newest first.
-- ARGV[9]  the client's tag
-- ARGV[10], ARGV[11] when the last job looked at before was accepted, µs, and its UUID's bytes (''
--          for none)
-- ARGV[12] jobs to return   ARGV[13] jobs to look at
-- ARGV[14], ARGV[15] only those with this operation, with this public state ('' for any)
-- ARGV[16] whether the last job looked at before was one of this backend ('1', '')
-- Returns now, what the line waits on, smoothed call µs, when the last job looked at was accepted,
--         and its id ('' if none is left), how many were looked at, then a table per job: its id,
--         and the values of look
local mine = prefix .. 'mine:' .. ARGV[9]
local limit, most, by_operation, by_status = tonumber(ARGV[12]), tonumber(ARGV[13]), ARGV[14],
  ARGV[15]
-- Without a filter few jobs are skipped: only those that aren't on record.
if by_operation .. by_status == '' then most = math.min(most, 2 * limit) end
local queued = { waiting = true, delayed = true, released = true }

local function time_of(entry)
  local t = 0
  for i = 1, 7 do t = t * 256 + string.byte(entry, i) end
  return t
end

-- behind returns the index of the next older job: for jobs of two backends at one moment, the one
-- with the smaller UUID. A binary search finds it among a million in 20 steps. If that fails
-- because the clock was set back, a job of this backend is searched for among the newest ones.
local function behind(at, uuid, ours)
  local low, high = 0, call('LLEN', mine)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if time_of(call('LINDEX', mine, middle)) < at then low = middle + 1 else high = middle end
  end
  local entry = call('LINDEX', mine, low) -- no two of one backend are at one moment
  if entry and time_of(entry) == at then
    local own = string.sub(entry, 8)
    if own == uuid then return low - 1 end
    if not ours and own < uuid then return low end
  end
  local found = ours and call('LPOS', mine, entry_of(at, uuid), 'RANK', -1, 'MAXLEN', 10000)
  return (found or low) - 1
end

-- passes excludes most jobs in other states at little cost. A job without a state waits, or is a
-- subscription, as its record's first mark shows.
local function passes(id)
  if by_status == '' then return true end
  local state = call('HGET', prefix .. 'state:' .. id, 'st')
  if state then return (queued[state] and 'queued' or state) == by_status end
  if by_status == 'queued' then return true end
  local record = call('GETRANGE', prefix .. 'job:' .. id, 0, 127)
  return string.find(record, '^%d+ %d+ %d+ %d+ %x+ =') ~= nil
end

-- fits reports whether a job on record is the one of the entry, and has the wanted state: if an id
-- was used again, the older entry is for a job that is gone.
local function fits(record, s, at)
  if tonumber(s[14] or string.match(record, '^%d+')) ~= at then return false end
  return by_status == '' or by_status == (queued[s[1] or 'waiting'] and 'queued' or s[1])
end

-- means reports whether a record's job is the client's, and has the wanted operation.
local function means(record)
  local _, client, from = marks(record)
  return client == ARGV[9]
    and (by_operation == '' or by_operation == string.match(record, '^{"o":"([^"]*)"', from))
end

local out = { us(now), waiting_on(full), us(call_time), '', '', 0 }
local last = ARGV[11] == '' and call('LLEN', mine) - 1
  or behind(tonumber(ARGV[10]), ARGV[11], ARGV[16] == '1')
local entries = last < 0 and {} or call('LRANGE', mine, math.max(last - most + 1, 0), last)
local looked, found = 0, 0
for i = #entries, 1, -1 do
  if found == limit then break end
  looked = looked + 1
  local id, at = id_of(entries[i]), time_of(entries[i])
  local record = passes(id) and call('GETRANGE', prefix .. 'job:' .. id, 0, METADATA) or ''
  if record ~= '' and means(record) then
    local position, wait, s = where(id, record)
    if position and fits(record, s, at) then
      found = found + 1
      out[#out + 1] = { id, record, position, wait, s }
    end
  end
  if looked <= last then out[4], out[5] = us(at), id end
end
if looked > last then out[4], out[5] = '', '' end
out[6] = looked
return out
