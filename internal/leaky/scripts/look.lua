-- look: where jobs stand.
-- ARGV[9..] job ids
-- Returns  now, what the line waits on, smoothed call µs, then a table a job: record without its payload, place in
--          the line (0: not in it), predicted wait µs, and the standing's fields: st, att, next, start, fin, exp,
--          cancel, code, detail, status, type, size, ver, born, fields (none of them: it has never left the line); or '' for no such job, and, where there was one, its client's tag, with ! where it was purged and would be on record still
local out = { us(now), waiting_on(full), us(call_time) }
for i = 9, #ARGV do
  local id = ARGV[i]
  local record = call('GETRANGE', prefix .. 'job:' .. id, 0, WORDS)
  local position, wait, s = where(id, record)
  if position then
    out[#out + 1] = { record, position, wait, told(s) }
  else
    out[#out + 1] = { '', trace_of(id) }
  end
end
return out
