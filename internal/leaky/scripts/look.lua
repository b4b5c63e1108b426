-- look: where jobs stand.
-- ARGV[9..] job ids
-- Returns  now, what the line waits on, smoothed call µs, then a table a job: record without its payload ('' for no such job), place in
--          the line (0: not in it), predicted wait µs, and the standing's fields: st, att, next, start, fin, exp,
--          cancel, code, detail, status, type, size, ver, born
-- A job that waits but is nowhere, since Redis has lost its place, is put back where somebody asks for it: at the head.
local function put_back(id)
  local _, start_by, end_by, _, client = head(id)
  if not client then return nil end
  call('ZADD', LINE, exact(v), id)
  if start_by ~= end_by then call('ZADD', DEADLINES, start_by, id) end
  hold(client, 1)
  call('HINCRBY', BOOKS, 'repaired_misplaced', 1)
  wake()
  return call('ZRANK', LINE, id)
end

local full = call('ZCARD', INFLIGHT) >= concurrency
local out = { us(now), waiting_on(full), us(call_time) }
for i = 9, #ARGV do
  local id = ARGV[i]
  local s = standing(id)
  local position, wait = 0, 0
  if not s[1] or s[1] == 'waiting' then
    local rank = call('ZRANK', LINE, id) or put_back(id)
    if rank then
      position, wait = rank + 1, paused and 0 or wait_for(rank, full)
    end
  end
  -- 2 KiB hold every record's words; its payload comes after them.
  out[#out + 1] = { call('GETRANGE', prefix .. 'job:' .. id, 0, 2047), position, wait, s }
end
return out
