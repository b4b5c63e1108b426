-- stop: records whether the queue of tickets is paused. While it is, nothing is granted.
-- ARGV[9] '1': it is, for the next 5 s only, as the reporting worker may die; '0': it isn't any
--         more
-- Returns 'noted'
-- Idempotent.
if ARGV[9] == '1' then
  call('HSET', PACE, 'stopped', us(now + 5000000))
else
  call('HDEL', PACE, 'stopped')
  wake()
end
return { 'noted' }
