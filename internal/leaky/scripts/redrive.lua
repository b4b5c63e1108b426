-- redrive: puts failed jobs back into the line, at the ends of their flows, as if they had just
-- been offered: with all attempts, their full max_age and no start_within. Id, payload and metadata
-- stay. Their permits were returned when they failed. The subscriptions to such a job are restored,
-- and others may join it, unless another job with its Join is under way. The id of a subscription
-- stands for its job.
-- ARGV[9]    none that failed later, µs ('': whenever it failed)
-- ARGV[10..] job ids
-- Returns for each job: 'redriven', 'not_failed' (or redriven already), 'unknown' or 'line_full'.
--         It stops after 1 MiB of rewritten records: call again for the remaining jobs
-- Idempotent: a job that was redriven isn't failed.
local latest = tonumber(ARGV[9])
local depth = call('ZCARD', LINE) + call('ZCARD', DELAYED)
local rewritten = 0

local function redrive(id)
  local record = call('GET', prefix .. 'job:' .. id) or ''
  local has, client, at = marks(record)
  if has['='] then return redrive(has['=']) end
  local accepted, _, end_by, keep = numbers(record)
  if not keep then return 'unknown' end
  local key = prefix .. 'state:' .. id
  local s = call('HMGET', key, 'st', 'born', 'fin')
  if s[1] ~= 'failed' or latest and tonumber(s[3] or 0) > latest then return 'not_failed' end
  if depth >= capacity then return 'line_full' end

  local rest = string.sub(record, at)
  local text = rest
  local ends = us(now + end_by - accepted)
  rest = (has['!'] and '! ' or '') .. rest
  if has['$'] then rest = '$' .. has['$'] .. ' ' .. rest end
  if has['&'] then rest = '& ' .. rest end
  call('SET', prefix .. 'job:' .. id,
    us(now) .. ' ' .. ends .. ' ' .. ends .. ' ' .. keep .. ' ' .. client .. ' ' .. rest)
  -- run stays, or an old ticket would be valid again. by stays, or an old settlement that is
  -- repeated would be forfeited.
  call('HDEL', key, 'att', 'tag', 'due', 'slot', 'owner', 'start', 'next', 'fin', 'exp', 'cancel',
    'code', 'detail', 'status', 'type', 'size', 'fields')
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
    local n = each_subscription(id, function(one) call('PERSIST', prefix .. 'job:' .. one) end)
    rewritten = rewritten + 1024 * n -- as much work as 1 KiB each
  end
  call('ZREM', FAILED, id)
  line_up(id, client, text)
  call('HINCRBY', BOOKS, 'failed', -1)
  call('HINCRBY', BOOKS, 'redriven', 1)
  depth, rewritten = depth + 1, rewritten + #record
  return 'redriven'
end

local out = {}
for i = 10, #ARGV do
  if rewritten >= 1048576 then break end
  out[#out + 1] = redrive(ARGV[i])
end
return out
