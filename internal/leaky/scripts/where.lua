-- where: the places and standings of jobs, by their records (Go puts it between the prelude and the
-- scripts that look at jobs by id).
local full = call('ZCARD', INFLIGHT) >= concurrency

-- put_back puts a waiting job that isn't in the line, because Redis has lost its place, at the
-- head, and returns its rank.
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

-- where returns a job's place in the line (0: not in it), its predicted wait, and its standing; nil
-- if it isn't on record. A subscription has the standing of its job, until it is canceled.
local function where(id, record)
  if record == '' then return nil end
  local s = standing(id)
  local job = not s[1] and string.match(record, '^%d+ %d+ %d+ %d+ %x+ =(%S+) ')
  if job then
    if call('EXISTS', prefix .. 'job:' .. job) == 0 then return nil end
    id, s = job, standing(job)
    s[14] = false -- born of the job: the record of a subscription has its own time
  end
  local position, wait = 0, 0
  if not s[1] or s[1] == 'waiting' then
    local rank = call('ZRANK', LINE, id) or put_back(id)
    position, wait = rank + 1, paused and 0 or wait_for(rank, full)
  end
  return position, wait, s
end
