-- tune: sets or clears live overrides, unless they have changed since an operator read them.
-- ARGV[9]  operator   ARGV[10] reason ('' for none)
-- ARGV[11] how long the overrides that are set last, µs ('': until they are changed)
-- ARGV[12] the version that the operator has read ('': any): revision, time of the last change (a
--          process of the version before counts no revisions), and how many overrides are live,
--          since some may have ended
-- ARGV[13..] field, value, ...; an empty value clears the field
-- Fields: rate (as written) with interval (µs), burst, concurrency, capacity, paused ('1'),
-- feedback ('1', '0')
-- Returns 'tuned', or 'changed': the version is another, and nothing was tuned
local live = 0
for i = 6, 11 do
  if p[i] then live = live + 1 end
end
local t = call('HMGET', PACE, 'revision', 'tuned_at')
local version = (t[1] or '0') .. '.' .. (t[2] or '0') .. '.' .. live
if ARGV[12] ~= '' and ARGV[12] ~= version then return { 'changed' } end

for i = 13, #ARGV, 2 do
  local field, value = ARGV[i], ARGV[i + 1]
  end_of[field] = nil
  if value == '' then
    call('HDEL', PACE, field, 'note_' .. field)
  else
    if ARGV[11] ~= '' then end_of[field] = now + ARGV[11] end
    local note = us(now) .. '\n' .. ARGV[9] .. '\n' .. ARGV[10]
    call('HSET', PACE, field, value, 'note_' .. field, note)
  end
end
write_ends()
call('HINCRBY', PACE, 'revision', 1)
call('HSET', PACE, 'tuned_by', ARGV[9], 'tuned_at', us(now), 'tuned_reason', ARGV[10])
call('PUBLISH', prefix .. 'wake', '')
return { 'tuned' }
