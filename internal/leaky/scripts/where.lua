-- where: where jobs stand, by their records (Go puts it between the prelude and the scripts that tell of jobs by id).
local full = call('ZCARD', INFLIGHT) >= concurrency

-- A job that waits but is nowhere, since Redis has lost its place, is put back where somebody asks for it: at the head.
local function put_back(id)
  local record = beginning(id)
  local _, start_by, end_by, _, client = numbers(record)
  local counts = marks(record)['$']
  if counts then live_bytes(client, counts) end
  call('ZADD', LINE, exact(v), id)
  if start_by ~= end_by then call('ZADD', DEADLINES, start_by, id) end
  hold(client, 1)
  call('HINCRBY', BOOKS, 'repaired_misplaced', 1)
  wake()
  return call('ZRANK', LINE, id)
end

-- where tells a job's place in the line (0: not in it), its predicted wait, and its standing; nil where there is nothing to tell of. A share
-- stands where its job does, until it is canceled.
local function where(id, record)
  if record == '' then return nil end
  local s = standing(id)
  local job = not s[1] and string.match(record, '^%d+ %d+ %d+ %d+ %x+ =(%S+) ')
  if job then
    if call('EXISTS', prefix .. 'job:' .. job) == 0 then return nil end
    id, s = job, standing(job)
    s[14] = false -- the job's: a share's record keeps its own
  end
  local position, wait = 0, 0
  if not s[1] or s[1] == 'waiting' then
    local rank = call('ZRANK', LINE, id) or put_back(id)
    position, wait = rank + 1, paused and 0 or wait_for(rank, full)
  end
  return position, wait, s
end
