-- tune: sets or clears live overrides.
-- ARGV[9] operator   ARGV[10..] field, value, ...; an empty value clears the field
-- Fields: rate (as written) with interval (µs), burst, concurrency, capacity, paused ('1'),
-- feedback ('1', '0')
for i = 10, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    call('HDEL', PACE, ARGV[i])
  else
    call('HSET', PACE, ARGV[i], ARGV[i + 1])
  end
end
call('HSET', PACE, 'tuned_by', ARGV[9], 'tuned_at', us(now))
call('PUBLISH', prefix .. 'wake', '')
return { 'tuned' }
