-- add: adds what a process counted to the tallies, sets samples, and keeps the list of processes.
-- KEYS[1] processes   KEYS[2] sampler   KEYS[3] events
-- ARGV[1] prefix of the keys of chunks, which share the hash tag of KEYS
-- ARGV[2] the process, ARGV[3] the number of its call, which grows: what a call adds, a repeated
--         call with its number doesn't add again
-- ARGV[4] rows, a JSON array of {b: backend, ago: µs, add: {count: n}, set: {count: n}}
-- ARGV[5] how long ago the bucket began that is over now, or is about to be, µs
-- ARGV[6] '1': this is the last call of the process
-- Returns now in µs, and 1 if the caller is to sample that bucket.
-- Idempotent by process and number.
local call = redis.call
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
local function us(x) return string.format('%.0f', x) end

local CELLS, SECOND, HOUR = 120, 1000000, 3600000000
local TIERS = { { '5s:', 5 * SECOND, 2 * HOUR }, { '1m:', 60 * SECOND, 48 * HOUR } }
local MOST_REASONS, TOP = 6, 16777215
local REJECTED, OTHER = 'rejected:', 'rejected:other'
local KEEP, GONE, MOST_EVENTS = 48 * HOUR, 30 * SECOND, 10000

local function record(type, process)
  call('XADD', KEYS[3], 'MAXLEN', MOST_EVENTS, '*', 'at', us(now), 'e',
    cjson.encode({ type = type, by = string.match(process, '^(.*) %S+$') or process }))
  call('PEXPIRE', KEYS[3], us(KEEP / 1000))
end

-- The list of processes: the number of the last call, when it was, and since when there was no gap.
-- A process is lost if another one has called all the while: otherwise Redis may have been away.
local own = call('HGET', KEYS[1], ARGV[2]) or ''
local last, seen, since = string.match(own, '^(%d+) (%d+) (%d+)$')
last, seen, since = tonumber(last) or -1, tonumber(seen) or 0, tonumber(since)
if not since or seen < now - GONE / 2 then since = now end
if own == '' then record('process_started', ARGV[2]) end
if since <= now - GONE then
  local all = call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local heard = tonumber(string.match(all[i + 1], '^%d+ (%d+)')) or 0
    if all[i] ~= ARGV[2] and heard < now - GONE then
      call('HDEL', KEYS[1], all[i])
      record('process_lost', all[i])
    end
  end
end
if ARGV[6] == '1' then
  call('HDEL', KEYS[1], ARGV[2])
  record('process_stopped', ARGV[2])
else
  call('HSET', KEYS[1], ARGV[2], ARGV[3] .. ' ' .. us(now) .. ' ' .. us(since))
  call('PEXPIRE', KEYS[1], us(KEEP / 1000))
end

-- A string has 3 bytes for each bucket, the highest first.
local function get(cells, i)
  local a, b, c = string.byte(cells, 3 * i + 1, 3 * i + 3)
  return c and a * 65536 + b * 256 + c or 0
end
local function put(cells, i, n)
  if #cells < 3 * i then cells = cells .. string.rep('\0', 3 * i - #cells) end
  return string.sub(cells, 1, 3 * i)
    .. string.char(math.floor(n / 65536) % 256, math.floor(n / 256) % 256, n % 256)
    .. string.sub(cells, 3 * i + 4)
end

-- The names that a row's counts have in a chunk: reasons beyond MOST_REASONS share one.
local function named(key, adds)
  local has, reasons = {}, 0
  for _, name in ipairs(call('HKEYS', key)) do
    has[name] = true
    if string.sub(name, 1, #REJECTED) == REJECTED and name ~= OTHER then reasons = reasons + 1 end
  end
  local sums, names = {}, {}
  for name in pairs(adds) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local to = name
    if string.sub(name, 1, #REJECTED) == REJECTED and name ~= OTHER and not has[name] then
      if reasons >= MOST_REASONS then to = OTHER else reasons = reasons + 1 end
    end
    sums[to] = (sums[to] or 0) + adds[name]
  end
  return sums
end

local function write(tier, row)
  local bucket = math.floor((now - row.ago) / tier[2])
  local chunk = math.floor(bucket / CELLS)
  local left = (chunk + 1) * CELLS * tier[2] + tier[3] - now
  if left <= 0 then return end
  local key = ARGV[1] .. tier[1] .. us(chunk) .. ':' .. row.b
  local i = bucket % CELLS
  local sums, sets = named(key, row.add or {}), row.set or {}
  local names = {}
  for name in pairs(sums) do names[#names + 1] = name end
  for name in pairs(sets) do names[#names + 1] = name end
  if #names == 0 then return end
  local was, args = call('HMGET', key, unpack(names)), {}
  for n, name in ipairs(names) do
    local cells = was[n] or ''
    local value = sets[name] or math.min(get(cells, i) + sums[name], TOP)
    if value ~= get(cells, i) then
      args[#args + 1] = name
      args[#args + 1] = put(cells, i, value)
    end
  end
  if #args == 0 then return end
  call('HSET', key, unpack(args))
  call('PEXPIRE', key, us(math.ceil(left / 1000)))
end

if tonumber(ARGV[3]) > last then
  for _, row in ipairs(cjson.decode(ARGV[4])) do
    for _, tier in ipairs(TIERS) do write(tier, row) end
  end
end

local over = us(math.floor((now - ARGV[5]) / TIERS[1][2]))
if ARGV[6] == '1' or call('GET', KEYS[2]) == over then return { us(now), 0 } end
call('SET', KEYS[2], over, 'PX', 60000)
return { us(now), 1 }
