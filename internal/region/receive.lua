-- A process takes or keeps the lease to receive for its region. On the region's Redis.
-- KEYS[1]  the process that has the lease
-- KEYS[2]  the id up to which the region has received the stream
-- KEYS[3]  there while the region has received lately
-- ARGV[1]  the process   ARGV[2]  ms of the lease
-- Returns  '1' if this process receives, otherwise ''; that id ('': nothing yet); '1' if the region
--          has received lately, otherwise ''
-- Idempotent.
local holder = redis.call('GET', KEYS[1])
local mine = not holder or holder == ARGV[1]
if mine then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
local lately = redis.call('EXISTS', KEYS[3]) == 1
return { mine and '1' or '', redis.call('GET', KEYS[2]) or '', lately and '1' or '' }
