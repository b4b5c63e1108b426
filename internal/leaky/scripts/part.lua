-- part: the answer to a shared job is for its first caller only, so the other subscriptions become
-- jobs of their own: with their ids and the job's payload, at the ends of their flows. The job
-- can't be joined any more.
-- ARGV[9] job id   ARGV[10] run   ARGV[11] the worker's nonce
-- ARGV[12] '1': further subscriptions of the first one's client stay (otherwise '')
-- ARGV[13] bytes to write at most; the first may be larger   ARGV[14] subscriptions to part at most
-- Returns 'parted', 'more' (some are left: call again) or 'forfeited' (the lease had expired)
-- Idempotent: a parted subscription is gone. The job runs on, and its worker settles it afterwards.
local id = ARGV[9]
local bytes, most = tonumber(ARGV[13]), tonumber(ARGV[14])
local s = call('HMGET', prefix .. 'state:' .. id, 'st', 'run', 'owner', 'ver')
if s[1] ~= 'running' or s[2] ~= ARGV[10] or s[3] ~= ARGV[11] then return { 'forfeited' } end
local record = call('GET', prefix .. 'job:' .. id)
if not record then return { 'forfeited' } end
local has, _, at = marks(record)
if not has['&'] then return { 'parted' } end
unjoin(id)
local payload = string.match(string.sub(record, at), '\n(.*)$') or ''

-- The subscriptions, the oldest first.
local subscriptions = {}
each_subscription(id, function(one, client)
  subscriptions[#subscriptions + 1] = { id = one, client = client, at = tonumber((head(one))) or 0 }
end)
table.sort(subscriptions, function(a, b)
  if a.at ~= b.at then return a.at < b.at end
  return a.id < b.id
end)
local live, callers = prefix .. 'shares:' .. id, prefix .. 'callers:' .. id
local first = call('HGET', callers, 'first')
if #subscriptions > 0 and not (first and call('HEXISTS', live, first) == 1) then
  first = subscriptions[1].id
  call('HSET', callers, 'first', first)
end

-- Different anonymous callers may have the same address.
local client = string.match(call('HGET', live, first or '') or '', '^%x+')
local first_record = call('GETRANGE', prefix .. 'job:' .. (first or ''), 0, METADATA)
if ARGV[12] ~= '1' or string.find(first_record, '"c":"ip:', 1, true) then client = nil end

local parted, word = 0, 'parted'
for _, one in ipairs(subscriptions) do
  if one.id ~= first and one.client ~= client then
    if parted > 0 and bytes < #payload or parted >= most then
      word = 'more'
      break
    end
    local text = call('GET', prefix .. 'job:' .. one.id)
    call('HDEL', live, one.id)
    if text then -- otherwise Redis has lost it
      local counts, _, from = marks(text)
      local mark, after = string.find(text, '=' .. id .. ' ', 1, true)
      call('SET', prefix .. 'job:' .. one.id,
        string.sub(text, 1, mark - 1) .. string.sub(text, after + 1) .. payload)
      -- The version goes on from that of the shared job.
      call('HSET', prefix .. 'state:' .. one.id, 'ver', s[4] or 0)
      move(one.id, 'waiting')
      line_up(one.id, one.client, string.sub(text, from))
      if counts['$'] then live_bytes(one.client, counts['$']) end
      bytes, parted = bytes - #payload, parted + 1
    end
  end
end
if parted > 0 then call('HINCRBY', BOOKS, 'accepted', parted) end
return { word }
