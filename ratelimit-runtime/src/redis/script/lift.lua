-- Lifts a block that began while units were taken which are given back now: without them there would have been
-- room, so that it is for no offence.
--
-- KEYS[1]        the last block: "level until length", as in `gates.lua`
-- ARGV[1]        microsecond at which the units were taken
-- Returns        {-ARGV[1]}

local level, till, length = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) (%d+) (%d+)$')
-- The length of a block that is lifted is 0.
if level and length + 0 > 0 and till - length >= ARGV[1] + 0 then
  redis.call('SET', KEYS[1], string.format('%d %.0f 0', level - 1, till - length), 'KEEPTTL')
end
return { -ARGV[1] }
