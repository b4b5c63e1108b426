-- purge: takes away what is kept of a job that has ended, or of a share in one. The job goes with the last of its shares, and they with it.
-- A job for many is no client's: nothing tells that it was there.
-- ARGV[9] job id
-- Returns 'purged' (also where it was gone before), 'not_ended' or 'unknown'
-- What tells that it was there stays as finish left it; a client's list tells of no job that isn't on record.
local function remove(id, client)
  call('DEL', prefix .. 'job:' .. id, prefix .. 'state:' .. id, prefix .. 'result:' .. id)
  call('ZREM', FAILED, id)
  if client then call('SET', prefix .. 'gone:' .. id, client, 'NX', 'PX', DAY) end -- a job that ended before there were any has none
end

local function remove_job(id, client)
  each_share(id, remove)
  call('DEL', prefix .. 'shares:' .. id, prefix .. 'callers:' .. id)
  remove(id, client)
end

local function final(id)
  return call('HGET', prefix .. 'state:' .. id, 'fin')
end

local id = ARGV[9]
local has, client = marks(beginning(id))
if not client then return { call('EXISTS', prefix .. 'gone:' .. id) == 1 and 'purged' or 'unknown' } end
local job = has['=']
if not final(id) and not (job and final(job)) then return { 'not_ended' } end
if not job then
  remove_job(id, not has['&'] and client)
  return { 'purged' }
end
remove(id, client)
local live = prefix .. 'shares:' .. job
if call('HDEL', live, id) == 1 and call('HLEN', live) == 1 then -- 'join' is left
  remove_job(job)
end
return { 'purged' }
