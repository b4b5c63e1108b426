-- mine: the jobs of one client, newest first.
-- ARGV[9]  the client's tag   ARGV[10], ARGV[11] when the last job looked at before was accepted, µs, and its UUID's bytes ('' for none)
-- ARGV[16] whether that was one of this backend ('1', '')
-- ARGV[12] jobs to answer with   ARGV[13] jobs to look at
-- ARGV[14], ARGV[15] only those of this operation, of this public state ('' for any)
-- Returns now, what the line waits on, smoothed call µs, when the last job looked at was accepted, and its id ('' where none is left), how
--         many were looked at, then a table a job: its id, and what look tells of it
local mine = prefix .. 'mine:' .. ARGV[9]
local limit, most, by_operation, by_status = tonumber(ARGV[12]), tonumber(ARGV[13]), ARGV[14], ARGV[15]
if by_operation .. by_status == '' then most = math.min(most, 2 * limit) end -- few of them are gone
local queued = { waiting = true, delayed = true, released = true }

local function time_of(entry)
  local t = 0
  for i = 1, 7 do t = t * 256 + string.byte(entry, i) end
  return t
end

-- behind is the index of the next older job: of two backends' jobs at one moment, that with the smaller UUID. Halving finds it
-- among a million in 20 steps; where the clock was set back, so that it isn't there, a job of our own is searched for among the newest.
local function behind(at, uuid, ours)
  local low, high = 0, call('LLEN', mine)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if time_of(call('LINDEX', mine, middle)) < at then low = middle + 1 else high = middle end
  end
  local entry = call('LINDEX', mine, low) -- a backend has no two at one moment
  if entry and time_of(entry) == at then
    local own = string.sub(entry, 8)
    if own == uuid then return low - 1 end
    if not ours and own < uuid then return low end
  end
  local found = ours and call('LPOS', mine, entry_of(at, uuid), 'RANK', -1, 'MAXLEN', 10000)
  return (found or low) - 1
end

-- passes tells at little cost, for most jobs, that one isn't in the state that is asked for. A job without a state waits, or is a share
-- in another one, which its record says first.
local function passes(id)
  if by_status == '' then return true end
  local state = call('HGET', prefix .. 'state:' .. id, 'st')
  if state then return (queued[state] and 'queued' or state) == by_status end
  return by_status == 'queued' or string.find(call('GETRANGE', prefix .. 'job:' .. id, 0, 127), '^%d+ %d+ %d+ %d+ %x+ =') ~= nil
end

-- fits tells whether a job on record is what the entry and the caller mean: where an id has come again, the older entry means one
-- that is gone.
local function fits(record, s, at)
  if tonumber(s[14] or string.match(record, '^%d+')) ~= at then return false end
  return by_status == '' or by_status == (queued[s[1] or 'waiting'] and 'queued' or s[1])
end

-- means tells of a record whether the job is the client's, and of the operation.
local function means(record)
  local _, client, words = marks(record)
  return client == ARGV[9] and (by_operation == '' or by_operation == string.match(record, '^{"o":"([^"]*)"', words))
end

local out = { us(now), waiting_on(full), us(call_time), '', '', 0 }
local last = ARGV[11] == '' and call('LLEN', mine) - 1 or behind(tonumber(ARGV[10]), ARGV[11], ARGV[16] == '1')
local entries = last < 0 and {} or call('LRANGE', mine, math.max(last - most + 1, 0), last)
local looked, found = 0, 0
for i = #entries, 1, -1 do
  if found == limit then break end
  looked = looked + 1
  local id, at = id_of(entries[i]), time_of(entries[i])
  local record = passes(id) and call('GETRANGE', prefix .. 'job:' .. id, 0, WORDS) or ''
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
