-- health: the backend's health according to feedback.
-- Returns µs until the gate opens (0: it is open), '1' while a probe is under way, the factor
return { us(math.max(gate - now, 0)), probe and probe ~= 'due' and '1' or '0', exact(factor) }
