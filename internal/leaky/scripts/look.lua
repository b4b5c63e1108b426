-- look: jobs and their standings.
-- ARGV[9..] job ids
-- Returns  now, what the line waits on, smoothed call µs, then a table per job: record without its
--          payload, place in the line (0: not in it), predicted wait µs, and the fields of the
--          standing: st, att, next, start, fin, exp, cancel, code, detail, status, type, size, ver,
--          born, fields (empty if it has never left the line). For a job that isn't on record: '',
--          and the trace that is left of it (trace_of)
local out = { us(now), waiting_on(full), us(call_time) }
for i = 9, #ARGV do
  local id = ARGV[i]
  local record = call('GETRANGE', prefix .. 'job:' .. id, 0, METADATA)
  local position, wait, s = where(id, record)
  if position then
    out[#out + 1] = { record, position, wait, or_nothing(s) }
  else
    out[#out + 1] = { '', trace_of(id) }
  end
end
return out
