-- status: one backend's line and drain at one moment.
-- ARGV[9..] names of settings that may be overridden
-- Returns now, waiting, delayed, in flight, accepted-at of the next job µs (0: none), gate µs, what
--         the line waits on, smoothed call µs,
--         {tuned_by, tuned_at, tuned_reason, revision, then for each of ARGV[9..]: the override and
--         its note (tune.lua); then for each of them: its end µs (0: none)},
--         {field, n, ...} books,
--         {factor, cause, '1': a probe is under way, interval µs, concurrency} in force by
--         feedback,
--         {µs, bucket, n, bucket, n, ...} calls that ended within those µs, this minute and the
--         last
local inflight = call('ZCARD', INFLIGHT)
local oldest = 0
local first = call('ZRANGE', LINE, 0, 0)
if first[1] then oldest = head(first[1]) or 0 end
local waits = first[1] and waiting_on(inflight >= concurrency) or 'idle'
if not first[1] and paused then waits = waiting_on() end
local recent = { us(now - (math.floor(now / MINUTE) - 1) * MINUTE) }
for ago = 0, 1 do
  for _, v in ipairs(call('HGETALL', minute_key(ago))) do recent[#recent + 1] = v end
end
local cause = factor < 1 and call('HGET', PACE, 'cause') or ''
local fields = { 'tuned_by', 'tuned_at', 'tuned_reason', 'revision' }
for i = 9, #ARGV do fields[2 * i - 13], fields[2 * i - 12] = ARGV[i], 'note_' .. ARGV[i] end
local overrides = call('HMGET', PACE, unpack(fields))
for i = 9, #ARGV do
  local t = end_of[ARGV[i]]
  if t and t <= now then overrides[2 * i - 13] = '' end
  overrides[#overrides + 1] = us(t or 0)
end
local probing = probe and probe ~= 'due' and '1' or '0'
return { us(now), call('ZCARD', LINE), call('ZCARD', DELAYED), inflight, oldest, us(gate), waits,
  us(call_time), overrides, call('HGETALL', BOOKS),
  { exact(factor), cause, probing, exact(interval), concurrency }, recent }
