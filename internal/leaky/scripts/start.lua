-- start: a worker claims a released job.
-- ARGV[9] job id   ARGV[10] run of the ticket   ARGV[11] the worker's nonce
-- ARGV[12] length of a lease, µs
-- ARGV[13] how late a start may be before it needs another slot, µs   ARGV[14] horizon, µs
-- Returns  'gone', now                      the ticket isn't the job's newest: do nothing
--          'back', now                      the job is at the head of the line again: paused, gate
--                                           closed, another job probes, no slot in reach, or past
--                                           its deadline (release ends it)
--          'go', now, due, attempt, record  call the backend at due
-- Idempotent by run and nonce, for half a lease. A later call is for a doubled message, whose
-- attempt has ended.
local id, run, owner = ARGV[9], ARGV[10], ARGV[11]
local lease, late, horizon = tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14])
local s = call('HMGET', prefix .. 'state:' .. id, 'st', 'run', 'owner', 'due', 'slot', 'tag', 'att')
local mine = s[1] == 'running' and s[3] == owner
  and tonumber(call('ZSCORE', INFLIGHT, id) or 0) - now > lease / 2
if s[2] ~= run or not (mine or s[1] == 'released') then return { 'gone', us(now) } end
local record = call('GET', prefix .. 'job:' .. id)
if not record then return { 'gone', us(now) } end -- release cleans up when the lease expires
if mine then return { 'go', us(now), s[4], tonumber(s[7]), record } end

local due, slot = tonumber(s[4]), tonumber(s[5])
local _, start_by, end_by, _, client = numbers(record)
local give_back = paused or now < gate or probe and probe ~= id
  or too_late(id, start_by, end_by, now)
-- The slot was missed by more than a burst makes up for, or is out of reach because the clock was
-- set back. If another slot was granted since, the job takes the next one, or the backend would get
-- two starts at once. Otherwise its own slot moves to now.
local too_far = due > now + horizon
if not give_back and (now - slot > lag + late or too_far) then
  slot = (too_far or last > slot) and next_slot(now) or now
  due = math.max(slot, now)
  give_back = due > now + horizon
  if not give_back then
    call('HSET', PACE, 'last', exact(slot), 'at', us(now), 'gate', us(gate))
  end
end
if give_back then
  land(id)
  requeue(id, s[6], client)
  return { 'back', us(now) }
end
local attempt = call('HINCRBY', prefix .. 'state:' .. id, 'att', 1)
move(id, 'running', 'owner', owner, 'due', us(due), 'slot', exact(slot), 'start', us(due))
call('ZADD', INFLIGHT, us(math.max(now, due) + lease), id)
call('HINCRBY', BOOKS, 'started', 1)
return { 'go', us(now), us(due), attempt, record }
