-- A process takes or keeps the lease to hear for its region. On the region's Redis.
-- KEYS[1]  the process that has the lease   KEYS[2]  what the region has heard of the stream
-- ARGV[1]  the process   ARGV[2]  ms of the lease
-- Returns  the id up to which the region has heard ('': nothing yet); nothing where another process has the lease
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return false end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return redis.call('GET', KEYS[2]) or ''
