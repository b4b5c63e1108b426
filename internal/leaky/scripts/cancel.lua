-- cancel: cancels a job, or a subscription to one. The last subscription cancels its job.
-- ARGV[9] job id
-- Returns 'canceled', 'aborting' (its worker is notified), 'final' (it has another final state), or
--         'unknown' and the trace that is left of the job (trace_of)
local function cancel(id, keep, client, joint)
  local s = call('HMGET', prefix .. 'state:' .. id, 'st', 'cancel')
  local state = s[1] or 'waiting'
  if state == 'running' then
    if not s[2] then move(id, 'running', 'cancel', '1') end
    if joint then unjoin(id) end
    call('PUBLISH', prefix .. 'abort', id)
    return 'aborting'
  end
  if state == 'canceled' then return 'canceled' end
  if state == 'waiting' or state == 'delayed' then
    local held = call('ZREM', LINE, id) + call('ZREM', DELAYED, id)
    call('ZREM', DEADLINES, id)
    if held > 0 then hold(client, -1) end -- otherwise Redis has lost its place and its count
  elseif state == 'released' then
    land(id)
  else
    return 'final'
  end
  finish(id, 'canceled', keep)
  return 'canceled'
end

-- leave cancels a subscription to job id.
local function leave(subscription, id, keep, client, has)
  local own = prefix .. 'state:' .. subscription
  if call('EXISTS', own) == 1 then return 'canceled' end
  local record = beginning(id)
  local s = call('HMGET', prefix .. 'state:' .. id, 'st', 'ver', 'fin')
  local live = prefix .. 'shares:' .. id
  if s[3] or call('HLEN', live) <= 2 then -- it is the last one, beside 'join'
    local _, _, _, keep_job, of = numbers(record)
    return keep_job and cancel(id, keep_job, of, true) or 'unknown'
  end
  call('HDEL', live, subscription)
  vacate(has['@'])
  call('HSET', own, 'st', 'canceled', 'fin', us(now), 'exp', us(now + keep * 1000),
    'ver', (s[2] or 0) + 1)
  ended(subscription, client, keep, has['!'])
  call('PEXPIRE', own, keep) -- after the record, as in finish
  call('PUBLISH', prefix .. 'final', subscription)
  return 'canceled'
end

local id = ARGV[9]
local record = beginning(id)
local _, _, _, keep, client = numbers(record)
local has, outcome = marks(record), 'unknown'
if has['='] then
  outcome = leave(id, has['='], keep, client, has)
elseif keep then
  outcome = cancel(id, keep, client, has['&'])
end
return { outcome, outcome == 'unknown' and trace_of(id) }
