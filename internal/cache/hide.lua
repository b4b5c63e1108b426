-- Withholds an answer that clients share from one of them, until a younger one is stored.
--
-- KEYS[1]  the answer's key
-- KEYS[2]  set of the marks of those clients; it ends with the answer
-- ARGV[1]  the client's mark
-- ARGV[2]  the most marks: beyond that the answer is removed for all clients
--
-- Returns 1 if the answer is withheld, 0 if there is no such answer.
local left = redis.call('PTTL', KEYS[1])
if left <= 0 then return 0 end
if redis.call('SCARD', KEYS[2]) >= tonumber(ARGV[2]) then
  redis.call('UNLINK', KEYS[1], KEYS[2])
else
  redis.call('SADD', KEYS[2], ARGV[1])
  redis.call('PEXPIRE', KEYS[2], left)
end
return 1
