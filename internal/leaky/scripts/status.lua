-- status: one backend's line and drain at one moment.
-- Returns now, waiting, delayed, in flight, accepted-at of the next job µs (0: none), gate µs, what the line waits on, smoothed call µs,
--         {rate, burst, concurrency, capacity, paused, tuned_by, tuned_at} overrides, {field, n, ...} books
local inflight = call('ZCARD', INFLIGHT)
local oldest = 0
local first = call('ZRANGE', LINE, 0, 0)
if first[1] then oldest = head(first[1]) or 0 end
local waits = first[1] and waiting_on(inflight >= concurrency) or 'idle'
if not first[1] and paused then waits = 'paused' end
return { us(now), call('ZCARD', LINE), call('ZCARD', DELAYED), inflight, oldest, us(gate), waits, us(call_time),
  call('HMGET', PACE, 'rate', 'burst', 'concurrency', 'capacity', 'paused', 'tuned_by', 'tuned_at'), call('HGETALL', BOOKS) }
