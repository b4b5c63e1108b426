-- cancel: the client no longer wants the job.
-- ARGV[9] job id
-- Returns 'canceled', 'aborting' (its worker is told), 'final' (it ended otherwise) or 'unknown'
local id = ARGV[9]
local _, _, _, keep, client = head(id)
if not keep then return { 'unknown' } end
local s = call('HMGET', prefix .. 'state:' .. id, 'st', 'cancel')
local state = s[1] or 'waiting'
if state == 'running' then
  if not s[2] then move(id, 'running', 'cancel', '1') end
  call('PUBLISH', prefix .. 'abort', id)
  return { 'aborting' }
end
if state == 'canceled' then return { 'canceled' } end
if state == 'waiting' or state == 'delayed' then
  local held = call('ZREM', LINE, id) + call('ZREM', DELAYED, id)
  call('ZREM', DEADLINES, id)
  if held > 0 then hold(client, -1) end -- else Redis has lost its place, and the count with it
elseif state == 'released' then
  land(id)
else
  return { 'final' }
end
finish(id, 'canceled', keep)
return { 'canceled' }
