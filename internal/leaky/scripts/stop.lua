-- stop: whether the queue that brings tickets to the workers stands still. While it does nothing is granted.
-- ARGV[9] '1': it does, and this holds for 5 s, for the worker that says so may die; '0': it goes on
-- Returns 'noted'. Idempotent.
if ARGV[9] == '1' then
  call('HSET', PACE, 'stopped', us(now + 5000000))
else
  call('HDEL', PACE, 'stopped')
  wake()
end
return { 'noted' }
