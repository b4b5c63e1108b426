-- part: the answer to a job that callers share is for the first of them alone, so the others' shares become jobs of their own:
-- with their ids, with the job's payload, at their flows' ends. Nobody joins the job any more.
-- ARGV[9] job id   ARGV[10] run   ARGV[11] the worker's nonce   ARGV[12] '1': further shares of the first one's client stay ('' else)
-- ARGV[13] bytes to write at most, but for one share   ARGV[14] shares to part at most
-- Returns 'parted', 'more' (others are left: call again) or 'forfeited' (the lease was lost)
-- Idempotent by nature: who has been parted has no share any more. The job runs on; its worker settles it afterwards.
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

-- The shares, the oldest first.
local shares = {}
each_share(id, function(share, client)
  shares[#shares + 1] = { id = share, client = client, at = tonumber((head(share))) or 0 }
end)
table.sort(shares, function(a, b)
  if a.at ~= b.at then return a.at < b.at end
  return a.id < b.id
end)
local live, callers = prefix .. 'shares:' .. id, prefix .. 'callers:' .. id
local first = call('HGET', callers, 'first')
if #shares > 0 and not (first and call('HEXISTS', live, first) == 1) then
  first = shares[1].id
  call('HSET', callers, 'first', first)
end

-- Callers without a key may share an address, and are different people all the same.
local client = string.match(call('HGET', live, first or '') or '', '^%x+')
if ARGV[12] ~= '1' or string.find(call('GETRANGE', prefix .. 'job:' .. (first or ''), 0, WORDS), '"c":"ip:', 1, true) then client = nil end

local parted, word = 0, 'parted'
for _, share in ipairs(shares) do
  if share.id ~= first and share.client ~= client then
    if parted > 0 and bytes < #payload or parted >= most then
      word = 'more'
      break
    end
    local text = call('GET', prefix .. 'job:' .. share.id)
    call('HDEL', live, share.id)
    if text then -- else Redis has lost it
      local counts, _, words = marks(text)
      local mark, after = string.find(text, '=' .. id .. ' ', 1, true)
      call('SET', prefix .. 'job:' .. share.id, string.sub(text, 1, mark - 1) .. string.sub(text, after + 1) .. payload)
      call('HSET', prefix .. 'state:' .. share.id, 'ver', s[4] or 0) -- it goes on from the job's
      move(share.id, 'waiting')
      line_up(share.id, share.client, string.sub(text, words))
      if counts['$'] then live_bytes(share.client, counts['$']) end
      bytes, parted = bytes - #payload, parted + 1
    end
  end
end
if parted > 0 then call('HINCRBY', BOOKS, 'accepted', parted) end
return { word }
