-- unclaim: gives back a claim, unless it has run out and is another's by now. It runs without the prelude.
-- KEYS[1] the claim
-- ARGV[1] by whom it was taken
-- Returns 1 where it was given back
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
