-- list: a page of the outbox, the next due first, or of those given up, the newest first.
-- KEYS[1] the zset
-- ARGV[1] '1': from its end   ARGV[2] how many
-- ARGV[3], ARGV[4] score and id of the last one of the page before ('' for the first page)
-- Returns ids and scores in turn.
local call = redis.call
local from_end, score, id = ARGV[1] == '1', ARGV[3], ARGV[4]
local start = 0
if score ~= '' then
  -- If the delivery in the cursor has moved on, the page begins behind its former place.
  if call('ZSCORE', KEYS[1], id) == score then
    start = call(from_end and 'ZREVRANK' or 'ZRANK', KEYS[1], id) + 1
  elseif from_end then
    start = call('ZCOUNT', KEYS[1], '(' .. score, '+inf')
  else
    start = call('ZCOUNT', KEYS[1], '-inf', '(' .. score)
  end
end
return call(from_end and 'ZREVRANGE' or 'ZRANGE', KEYS[1], start, start + ARGV[2] - 1, 'WITHSCORES')
