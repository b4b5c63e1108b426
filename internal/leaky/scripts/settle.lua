-- settle: stores the outcome of an attempt.
-- ARGV[9] job id   ARGV[10] run   ARGV[11] the worker's nonce
-- ARGV[12] succeeded | failed | canceled | expired | delayed | waiting
-- ARGV[13] delayed: backoff, µs
-- ARGV[14] the call's sign of the backend's health: answered, throttled, timeout, unreachable or ''
--          (none); succeeded implies answered
-- ARGV[15] throttled: the backend's Retry-After, µs (0: none; then 1 s, doubling to 1 m)
-- ARGV[16], ARGV[17] failure's code and detail ('' for none)
-- ARGV[18] status of the answer to keep ('' for none)   ARGV[19] its content type
-- ARGV[20] its bytes   ARGV[21] length of the call, µs (0: not used)
-- ARGV[22] the kept answer's fields ('' for none)
-- Returns 'settled' or 'forfeited' (the lease had expired: nothing changed), the factor, µs until
--         the gate opens, and the changes: gate_closed, lowered, raised_to_full, probe_passed
-- Idempotent by run and nonce, except that changes are returned once.
local SECOND = 1000000
local COOL_DOWN = 5 * SECOND -- troubles within it count as one; one success makes up for as much
local RECOVERY = 60 * SECOND -- from factor 0 to 1
local FLOOR = 0.05

local id, run, owner, to, backoff = ARGV[9], ARGV[10], ARGV[11], ARGV[12], tonumber(ARGV[13])
local sign, rest = ARGV[14], tonumber(ARGV[15])
local changes = {}
local function answer(word)
  return { word, exact(factor), us(math.max(gate - now, 0)), unpack(changes) }
end

local key = prefix .. 'state:' .. id
local s = call('HMGET', key, 'st', 'run', 'owner', 'tag', 'by', 'cancel')
local me = owner .. ':' .. run
if s[5] == me then return answer('settled') end
if s[1] ~= 'running' or s[2] ~= run or s[3] ~= owner then return answer('forfeited') end
local _, _, end_by, keep, client = head(id)
if not keep then return answer('forfeited') end

-- A job that is to be canceled gets no further attempt.
if s[6] and (to == 'waiting' or to == 'delayed') then to = 'canceled' end
if to == 'waiting' then
  call('HINCRBY', key, 'att', -1)
  -- Without feedback there is no gate for a throttled job to wait at, so it is delayed.
  if sign == 'throttled' and not feedback then
    to, backoff = 'delayed', rest > 0 and rest or SECOND
  end
end

land(id)
call('HSET', key, 'by', me, 'code', ARGV[16], 'detail', ARGV[17])
if to == 'waiting' then
  requeue(id, s[4], client)
elseif to == 'delayed' then
  -- A backoff is cut at the job's end, so that the job expires in time.
  local next_at = us(math.min(now + backoff, tonumber(end_by)))
  move(id, 'delayed', 'next', next_at)
  call('ZADD', DELAYED, next_at, id)
  hold(client, 1)
else
  if ARGV[18] ~= '' then
    call('SET', prefix .. 'result:' .. id, ARGV[20], 'PX', keep)
    call('HSET', key, 'status', ARGV[18], 'type', ARGV[19], 'size', #ARGV[20])
    if ARGV[22] ~= '' then call('HSET', key, 'fields', ARGV[22]) end
  end
  finish(id, to, keep)
end

local took = tonumber(ARGV[21])
if took > 0 then
  call('HSET', PACE, 'call', us(call_time == 0 and took or call_time + (took - call_time) / 8))
  note_call(took)
end
if sign == 'throttled' then call('HINCRBY', BOOKS, 'throttled', 1) end
if not feedback then return answer('settled') end

-- Feedback: the call's sign of the backend's health.
local function since(field) -- 0 for a time in the future, from before the clock was set back
  local t = tonumber(call('HGET', PACE, field) or 0)
  return t <= now and t or 0
end

local function lower()
  call('HSET', PACE, 'cause', sign)
  if now - since('cut') < COOL_DOWN then return end
  if factor > FLOOR then changes[#changes + 1] = 'lowered' end
  factor = math.max(FLOOR, factor / 2)
  call('HSET', PACE, 'factor', exact(factor), 'cut', us(now))
end

-- raise raises the factor by the time since the last success or trouble.
local function raise()
  call('HDEL', PACE, 'streak')
  if factor == 1 then return end
  factor = math.min(1, factor + math.min(now - math.max(since('cut'), since('healed')),
    COOL_DOWN) / RECOVERY)
  if factor < 1 then
    call('HSET', PACE, 'factor', exact(factor), 'healed', us(now))
  else
    call('HDEL', PACE, 'factor', 'cut', 'healed', 'cause')
    changes[#changes + 1] = 'raised_to_full'
  end
end

-- While the backend rests, and until a probe has passed, only the probe's call is a new sign: the
-- others began before. A longer rest that the backend asks for counts all the same.
local probes = id == probe
local new_sign = probes or not probe and now >= gate
local trouble = sign == 'throttled' or sign == 'timeout' or sign == 'unreachable'
if trouble and new_sign then
  lower()
  if sign == 'throttled' and rest == 0 then
    rest = math.min(SECOND * 2 ^ (call('HINCRBY', PACE, 'streak', 1) - 1), 60 * SECOND)
  end
elseif to == 'succeeded' and new_sign and now >= gate then
  raise()
end
if sign == 'throttled' then
  if now >= gate and rest > 0 then changes[#changes + 1] = 'gate_closed' end
  gate = math.max(gate, now + rest)
  call('HSET', PACE, 'gate', us(gate), 'at', us(now), 'last', exact(last))
  if not probe then call('HSET', PACE, 'probe', 'due') end
end
if probes then
  -- If an older call has lengthened the rest meanwhile, another probe follows it.
  if not trouble and now >= gate and (sign == 'answered' or to == 'succeeded') then
    call('HDEL', PACE, 'probe')
    changes[#changes + 1] = 'probe_passed'
  else
    call('HSET', PACE, 'probe', 'due')
  end
end
return answer('settled')
