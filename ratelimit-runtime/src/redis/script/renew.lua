-- Renewal of permits that one process holds under one key.
--
-- KEYS[1]        the permits: their ids, each with the microsecond from which it is free; and claims, as in `gates.lua`
-- ARGV[1]        timeout of a permit, in microseconds
-- ARGV[2]        number of permits
-- ARGV[3], ..    ids of the permits, at most 1 000
-- Returns        -ARGV[3], and the ids whose place another call has taken
--
-- A permit that is gone takes a free place again: it may have expired while its process was cut off, or
-- the state may be lost.

local permits, timeout, most = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local till = string.format('%.0f', now + timeout)

local renewed, lost = {}, { -ARGV[3] }
for i = 3, #ARGV do
  renewed[#renewed + 1] = till
  renewed[#renewed + 1] = ARGV[i]
end
if redis.call('ZADD', permits, 'XX', 'CH', unpack(renewed)) < #ARGV - 2 then
  -- Scores below 0 are those of claims, which `gates.lua` removes.
  redis.call('ZREMRANGEBYSCORE', permits, 0, string.format('%.0f', now))
  local held = redis.call('ZCOUNT', permits, 0, '+inf')
  for i = 3, #ARGV do
    if not redis.call('ZSCORE', permits, ARGV[i]) then
      if held < most then
        held = held + 1
        redis.call('ZADD', permits, till, ARGV[i])
      else
        lost[#lost + 1] = ARGV[i]
      end
    end
  end
end
if redis.call('PTTL', permits) < timeout / 1000 then
  redis.call('PEXPIRE', permits, string.format('%d', math.floor(timeout / 1000) + 999))
end
return lost
