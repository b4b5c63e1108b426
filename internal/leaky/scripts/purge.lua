-- purge: removes the record, payload and result of a job that has ended, or a subscription to one.
-- The last subscription takes the job along, and a job its subscriptions.
-- ARGV[9] job id
-- Returns 'purged' (also if it was gone before), 'not_ended' or 'unknown'
-- The trace that finish has written stays, and now has the time at which the record would have
-- expired: until then the id isn't used again. A shared job is unowned and leaves no trace.
-- Clients' lists omit jobs that aren't on record.
local function remove(id, client, till)
  call('DEL', prefix .. 'job:' .. id, prefix .. 'state:' .. id, prefix .. 'result:' .. id)
  call('ZREM', FAILED, id)
  if not client then return end
  local key, text = prefix .. 'gone:' .. id, client .. ' ' .. us(till)
  local left = call('PTTL', key)
  if left <= 0 then left = DAY end -- a job of a release without traces has none
  call('SET', key, text, 'PX', left)
end

local function remove_job(id, client, till)
  local has, of = marks(beginning(id))
  if has['$'] then drop_bytes(id, of, has['$']) end
  each_subscription(id, function(one, of) remove(one, of, till) end)
  call('DEL', prefix .. 'shares:' .. id, prefix .. 'callers:' .. id)
  remove(id, client, till)
end

-- final returns until when a job that has ended is kept; nil if it hasn't ended.
local function final(id)
  local s = call('HMGET', prefix .. 'state:' .. id, 'fin', 'exp')
  return s[1] and tonumber(s[2] or s[1])
end

local id = ARGV[9]
local has, client = marks(beginning(id))
if not client then
  return { call('EXISTS', prefix .. 'gone:' .. id) == 1 and 'purged' or 'unknown' }
end
local job = has['=']
local till = final(id) or job and final(job)
if not till then return { 'not_ended' } end
if not job then
  remove_job(id, not has['&'] and client, till)
  return { 'purged' }
end
remove(id, client, till)
local live = prefix .. 'shares:' .. job
if call('HDEL', live, id) == 1 and call('HLEN', live) == 1 then -- 'join' is left
  remove_job(job, nil, till)
end
return { 'purged' }
