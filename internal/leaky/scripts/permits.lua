-- permits: finds open permits that belong to no job.
-- ARGV[9] how long a permit may be open, µs   ARGV[10] permits to look at
-- Returns how many never had a job, then those that the caller must return: they stay open until it
--         has
-- Idempotent.
local lease, most = tonumber(ARGV[9]), tonumber(ARGV[10])

-- lives reports whether a job or subscription on record holds these permits and hasn't ended.
local function ended_by_itself(id) return call('HGET', prefix .. 'state:' .. id, 'fin') end
local function lives(permits)
  local id = string.match(permits, '^[^~@#]+')
  local has = marks(beginning(id))
  if has['@'] ~= permits or ended_by_itself(id) then return false end
  return not (has['='] and ended_by_itself(has['=']))
end

local out, left = { 0 }, most
local function look(from, to)
  local rows = redis.pcall('ZRANGEBYSCORE', PERMITS, from, to, 'WITHSCORES', 'LIMIT', 0, left)
  if rows.err then -- the key has another type, so no script wrote it
    call('DEL', PERMITS)
    return
  end
  left = left - #rows / 2
  for i = 1, #rows, 2 do
    if lives(rows[i]) then
      call('ZREM', PERMITS, rows[i])
    else
      if rows[i + 1] ~= '0' then out[1] = out[1] + 1 end
      out[#out + 1] = rows[i]
    end
  end
end

look('-inf', us(now - lease))
if left > 0 then look(us(now + lease), '+inf') end -- the clock was set back
return out
