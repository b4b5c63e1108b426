-- preview: keeps the failed jobs that an operator may redrive later, and predicts their wait.
-- ARGV[9]  token   ARGV[10] the jobs, as Go encodes them   ARGV[11] how many they are
-- ARGV[12] how long they are kept, ms   ARGV[13] previews of a backend that are kept, at most
-- Returns now, jobs that wait, jobs that the line still takes, µs until the last of the previewed
--         jobs would start ('': paused)
-- Idempotent by token.
local token, n, keep, most = ARGV[9], tonumber(ARGV[11]), ARGV[12], tonumber(ARGV[13])
if n > 0 then
  local tokens = prefix .. 'previews'
  call('SET', prefix .. 'preview:' .. token, ARGV[10], 'PX', keep)
  call('ZADD', tokens, us(now), token)
  for _, old in ipairs(call('ZRANGE', tokens, 0, -1 - most)) do
    call('DEL', prefix .. 'preview:' .. old)
    call('ZREM', tokens, old)
  end
  call('PEXPIRE', tokens, keep)
end
local depth = call('ZCARD', LINE) + call('ZCARD', DELAYED)
local full = call('ZCARD', INFLIGHT) >= concurrency
local wait = paused and '' or us(wait_for(math.max(depth + n - 1, 0), full))
return { us(now), depth, math.max(capacity - depth, 0), wait }
