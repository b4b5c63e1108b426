-- renew: a worker is alive and still calls the backend for these jobs.
-- ARGV[9] the worker's nonce   ARGV[10] length of a lease, µs   ARGV[11..] job id, run, ...
-- Returns now, then for each job: 'held', 'stop' (held, but to be canceled) or 'lost'
local owner, lease = ARGV[9], tonumber(ARGV[10])
local out = { us(now) }
for i = 11, #ARGV, 2 do
  local id, run = ARGV[i], ARGV[i + 1]
  local s = call('HMGET', prefix .. 'state:' .. id, 'st', 'run', 'owner', 'cancel')
  if s[1] == 'running' and s[2] == run and s[3] == owner then
    call('ZADD', INFLIGHT, us(now + lease), id)
    out[#out + 1] = s[4] and 'stop' or 'held'
  else
    out[#out + 1] = 'lost'
  end
end
return out
