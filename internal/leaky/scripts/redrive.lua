-- redrive: failed jobs go back into the line, at their flow's end, as if they had just been offered: with all attempts, their
-- full max_age and no start_within. Id, payload and words stay. Places that they held in limits were given back when they failed.
-- Whoever has a share in such a job has it again, and others may join it, unless another is under way. A share stands for its job.
-- ARGV[9..] job ids
-- Returns a word a job: 'redriven', 'not_failed' (it isn't, or is redriven already), 'for_nobody' (a refresh that no caller has a
--         share in), 'unknown' or 'line_full'; fewer words than jobs
--         where those that were rewritten came to 1 MiB: the rest is to be asked for again
-- Idempotent by nature: a job that was redriven isn't failed.
local depth = call('ZCARD', LINE) + call('ZCARD', DELAYED)
local rewritten = 0

local function redrive(id)
  local record = call('GET', prefix .. 'job:' .. id) or ''
  local has, client, at = marks(record)
  if has['='] then return redrive(has['=']) end
  local accepted, _, end_by, keep = numbers(record)
  if not keep then return 'unknown' end
  local key = prefix .. 'state:' .. id
  local s = call('HMGET', key, 'st', 'born')
  if s[1] ~= 'failed' then return 'not_failed' end
  if has['&'] and for_nobody(id) then return 'for_nobody' end
  if depth >= capacity then return 'line_full' end

  local rest = string.sub(record, at)
  local text = rest
  local ends = us(now + end_by - accepted)
  rest = (has['!'] and '! ' or '') .. rest
  if has['$'] then rest = '$' .. has['$'] .. ' ' .. rest end
  if has['&'] then rest = '& ' .. rest end
  call('SET', prefix .. 'job:' .. id, us(now) .. ' ' .. ends .. ' ' .. ends .. ' ' .. keep .. ' ' .. client .. ' ' .. rest)
  -- run stays, or an old ticket would be good again; by stays, or an old settlement, repeated, would be told that it was lost.
  call('HDEL', key, 'att', 'tag', 'due', 'slot', 'owner', 'start', 'next', 'fin', 'exp', 'cancel', 'code', 'detail', 'status', 'type', 'size',
    'fields')
  call('PERSIST', key)
  move(id, 'waiting', 'born', s[2] or accepted)
  if has['$'] then
    drop_bytes(id, client, has['$'])
    live_bytes(client, has['$'])
  end
  call('DEL', prefix .. 'result:' .. id, prefix .. 'gone:' .. id)
  if has['&'] then
    call('PERSIST', prefix .. 'shares:' .. id)
    call('PERSIST', prefix .. 'callers:' .. id)
    local joint = prefix .. 'joint:' .. (call('HGET', prefix .. 'shares:' .. id, 'join') or '')
    call('SET', joint, id, 'NX', 'PX', us(math.max(end_by - accepted, 0) / 1000 + keep))
    local shares = each_share(id, function(share) call('PERSIST', prefix .. 'job:' .. share) end)
    rewritten = rewritten + 1024 * shares -- as much work as 1 KiB each
  end
  call('ZREM', FAILED, id)
  line_up(id, client, text)
  call('HINCRBY', BOOKS, 'failed', -1)
  call('HINCRBY', BOOKS, 'redriven', 1)
  depth, rewritten = depth + 1, rewritten + #record
  return 'redriven'
end

local out = {}
for i = 9, #ARGV do
  if rewritten >= 1048576 then break end
  out[#out + 1] = redrive(ARGV[i])
end
return out
