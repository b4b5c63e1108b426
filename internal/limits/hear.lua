-- A process takes or keeps the lease to hear for its region. On the region's Redis.
-- KEYS[1]  the process that has the lease   KEYS[2]  what the region has heard of the stream   KEYS[3]  there while it has heard lately
-- ARGV[1]  the process   ARGV[2]  ms of the lease
-- Returns  '1' if this process hears, else ''; the id up to which the region has heard ('': nothing yet); '1' if it has heard
--          lately, else ''
local holder = redis.call('GET', KEYS[1])
local mine = not holder or holder == ARGV[1]
if mine then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
return { mine and '1' or '', redis.call('GET', KEYS[2]) or '', redis.call('EXISTS', KEYS[3]) == 1 and '1' or '' }
