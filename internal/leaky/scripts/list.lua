-- list: the jobs of one zset, from a place in it on.
-- ARGV[9]  which of KEYS   ARGV[10] '1': from its end to its beginning
-- ARGV[11], ARGV[12] score and id of the last job looked at before ('' for none)
-- ARGV[13] jobs to return   ARGV[14] jobs to look at
-- ARGV[15..18] only those with this client (its tag), operation, state, failure's code ('' for any)
-- ARGV[19] only those with at most this score ('' for any)
-- Returns now, what the line waits on, smoothed call µs, score and id of the last job looked at (''
--         if none is left), how many were looked at, then a table per job: its id, and the values
--         of look
local index, reverse, limit, most = tonumber(ARGV[9]), ARGV[10] == '1', tonumber(ARGV[13]),
  tonumber(ARGV[14])
local by_client, by_operation, by_state, by_code, top = ARGV[15], ARGV[16], ARGV[17], ARGV[18],
  tonumber(ARGV[19])
local key = KEYS[index]
if by_client .. by_operation .. by_state .. by_code == '' then most = math.min(most, limit + 1) end

-- owner returns a record's client and operation. Go writes the operation first, and its name needs
-- no escapes.
local function owner(record)
  local _, client, at = marks(record)
  if client then return client, string.match(record, '^{"o":"([^"]*)"', at) end
end

local full = call('ZCARD', INFLIGHT) >= concurrency
local out = { us(now), waiting_on(full), us(call_time), '', '', 0 }
local rows, skipped = part(key, ARGV[11], ARGV[12], most, reverse)
local found = 0
for i = 1, #rows, 2 do
  local id, score = rows[i], rows[i + 1]
  if top and tonumber(score) > top then break end
  if found == limit then
    out[4], out[5] = rows[i - 1], rows[i - 2]
    break
  end
  out[6] = out[6] + 1
  local record = call('GETRANGE', prefix .. 'job:' .. id, 0, METADATA)
  local client, operation = owner(record)
  if client and (by_client == '' or by_client == client)
    and (by_operation == '' or by_operation == operation) then
    local s = standing(id)
    if (by_state == '' or by_state == (s[1] or 'waiting'))
      and (by_code == '' or by_code == s[8]) then
      local position, wait = 0, 0
      if key == LINE then
        local rank = skipped + (i - 1) / 2
        position, wait = rank + 1, paused and 0 or wait_for(rank, full)
      end
      found = found + 1
      out[#out + 1] = { id, record, position, wait, s }
    end
  end
  if i + 1 == #rows and i + 1 == 2 * most then out[4], out[5] = score, id end
end
return out
