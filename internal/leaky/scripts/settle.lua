-- settle: how an attempt ended.
-- ARGV[7] job id   ARGV[8] run   ARGV[9] the worker's nonce
-- ARGV[10] succeeded | failed | canceled | expired | delayed | waiting
-- ARGV[11] delayed: backoff, µs   ARGV[12] '1': the backend throttled the call   ARGV[13] gate, µs (0: 1 s doubling to 1 m)
-- ARGV[14], ARGV[15] failure's code and detail ('' for none)
-- ARGV[16] status of the answer to keep ('' for none)   ARGV[17] its content type   ARGV[18] its bytes
-- ARGV[19] length of the call, µs (0: don't learn from it)
-- Returns 'settled' or 'forfeited' (the lease was lost before: nothing changed)
-- Idempotent by run and nonce.
local id, run, owner, to = ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local key = prefix .. 'state:' .. id
local s = call('HMGET', key, 'st', 'run', 'owner', 'tag', 'by', 'cancel')
local me = owner .. ':' .. run
if s[5] == me then return { 'settled' } end
if s[1] ~= 'running' or s[2] ~= run or s[3] ~= owner then return { 'forfeited' } end
local _, _, end_by, keep, client = head(id)
if not keep then return { 'forfeited' } end

-- A job that is to be canceled gets no further attempt.
if s[6] and (to == 'waiting' or to == 'delayed') then to = 'canceled' end

land(id)
call('HSET', key, 'by', me, 'code', ARGV[14], 'detail', ARGV[15])
if to == 'waiting' or to == 'delayed' then
  if to == 'waiting' then
    call('HINCRBY', key, 'att', -1)
    requeue(id, s[4], client)
  else
    -- A backoff past the job's end is cut there, so it expires in time.
    local next_at = us(math.min(now + tonumber(ARGV[11]), tonumber(end_by)))
    move(id, 'delayed', 'next', next_at)
    call('ZADD', DELAYED, next_at, id)
    hold(client, 1)
  end
else
  if ARGV[16] ~= '' then
    call('SET', prefix .. 'result:' .. id, ARGV[18], 'PX', keep)
    call('HSET', key, 'status', ARGV[16], 'type', ARGV[17], 'size', #ARGV[18])
  end
  finish(id, to, keep)
end

local took = tonumber(ARGV[19])
if took > 0 then
  call('HSET', PACE, 'call', us(call_time == 0 and took or call_time + (took - call_time) / 8))
end
if ARGV[12] == '1' then
  call('HINCRBY', BOOKS, 'throttled', 1)
  local rest = tonumber(ARGV[13])
  if rest == 0 and now >= gate then -- a closed gate has counted this trouble already
    local streak = call('HINCRBY', PACE, 'streak', 1)
    rest = math.min(1000000 * 2 ^ (streak - 1), 60 * 1000000)
  end
  call('HSET', PACE, 'gate', us(math.max(gate, now + rest)), 'at', us(now), 'last', exact(last))
elseif to == 'succeeded' then
  call('HDEL', PACE, 'streak')
end
return { 'settled' }
