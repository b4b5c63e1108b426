-- explain: one job, what is ahead of it in the line, and the drain, all at one moment.
-- (Go puts status as a function, and where, before it.)
-- ARGV[9..] names of settings that may be overridden, as for status; the last is the job's id
-- Returns {status's values}, {the job as look returns it}, and where trouble last lowered the
--         factor, µs (0: it isn't lowered), then, for a job in the line:
--         how many jobs ahead of it were looked at, how many clients those have, the rank that a
--         high job of the same client would get now (-1: this one is high), and up to 8 tables,
--         of the clients with the most of those jobs: how many, and the id and the record (without
--         its payload) of one of them
-- Looks at 200 jobs ahead at most: all, or 100 that are spread evenly.
local ALL, SPREAD, CLIENTS = 200, 100, 8
local id = table.remove(ARGV) -- status takes the rest
local record = call('GETRANGE', prefix .. 'job:' .. id, 0, METADATA)
local position, wait, s = where(id, record)
local cut = factor < 1 and call('HGET', PACE, 'cut') or 0
if not position then return { status(), { '', trace_of(id) }, cut } end
local out = { status(), { record, position, wait, or_nothing(s) }, cut }
if position == 0 then return out end

local ahead, ids = position - 1, {}
if ahead <= ALL then
  if ahead > 0 then ids = call('ZRANGE', LINE, 0, ahead - 1) end
else
  for i = 0, SPREAD - 1 do
    local rank = math.floor((i + 0.5) * ahead / SPREAD)
    ids[#ids + 1] = call('ZRANGE', LINE, rank, rank)[1]
  end
end
local by, clients = {}, {}
for _, one in ipairs(ids) do
  local _, _, _, _, client = head(one)
  if client then
    if not by[client] then
      by[client] = { 0, one }
      clients[#clients + 1] = by[client]
    end
    by[client][1] = by[client][1] + 1
  end
end
table.sort(clients, function(a, b)
  if a[1] ~= b[1] then return a[1] > b[1] end
  return a[2] < b[2]
end)

-- The place that offer.lua would give: past the client's last high job, and past equal tags.
local rank = -1
local _, client, at = marks(record)
local readable, m = pcall(cjson.decode, string.match(record, '^[^\n]*', at or 1))
if client and readable and m.p ~= 'high' then
  local weight = (m.w or 1) * (m.p == 'low' and 16 or 4)
  local flow_tag = tonumber(call('ZSCORE', FLOWS, client .. ':high') or 0)
  local tag = math.max(v, flow_tag) + 1 / weight
  rank = math.min(call('ZCOUNT', LINE, '-inf', '(' .. exact(tag + CLOSE)), ahead)
end
out[4], out[5], out[6] = #ids, #clients, rank
for i = 1, math.min(#clients, CLIENTS) do
  local n, one = clients[i][1], clients[i][2]
  out[#out + 1] = { n, one, call('GETRANGE', prefix .. 'job:' .. one, 0, METADATA) }
end
return out
