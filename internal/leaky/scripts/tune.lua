-- tune: sets or clears live overrides.
-- ARGV[7] who   ARGV[8..] field, value, ...; an empty value clears the field
-- Fields: rate (as written) with interval (µs), burst, concurrency, capacity, paused ('1')
for i = 8, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    call('HDEL', PACE, ARGV[i])
  else
    call('HSET', PACE, ARGV[i], ARGV[i + 1])
  end
end
call('HSET', PACE, 'tuned_by', ARGV[7], 'tuned_at', us(now))
call('PUBLISH', prefix .. 'wake', '')
return { 'tuned' }
