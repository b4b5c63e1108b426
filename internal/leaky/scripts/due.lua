-- due: jobs that wait, spread evenly over the line, and when each may no longer start.
-- ARGV[9] how many to look at; a line that is as short or shorter is looked at as a whole
-- Returns now, jobs in the line, {rank, µs, rank, µs, ...}: by rank, without jobs that have no
--         record
local waiting = call('ZCARD', LINE)
local n, found = math.min(waiting, tonumber(ARGV[9])), {}
for i = 0, n - 1 do
  local rank = math.floor((i + 0.5) * waiting / n)
  local id = call('ZRANGE', LINE, rank, rank)[1]
  local _, start_by, end_by = head(id)
  if start_by then
    -- After an attempt only the end counts, as in too_late.
    local attempts = start_by ~= end_by and call('HGET', prefix .. 'state:' .. id, 'att')
    if tonumber(attempts or 0) > 0 then start_by = end_by end
    found[#found + 1] = rank
    found[#found + 1] = us(math.min(tonumber(start_by), tonumber(end_by)))
  end
end
return { us(now), waiting, found }
