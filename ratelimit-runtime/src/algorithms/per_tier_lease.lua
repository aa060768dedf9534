-- exchange(ARGV, lease, ends_in, without_room, come_back) -> the reply to a request for a lease
--
-- Leases of the algorithms that count for each tier. While calls wait in a line, the key has another type, and
-- there is no lease.
--
-- ARGV, lease         as in `lease.lua`
-- ends_in(it, now)    of windows: microseconds until a count's window ends. A lease ends with the first of them, so
--                     that units are used in the windows that count them. Until then the weight of a counter's
--                     earlier window only falls
-- without_room(ARGV, stored, tokens, length, now)
--                     of buckets: the state with no room for so many tokens, and the microseconds for which it
--                     counts
-- come_back(stored, units, late)
--                     of buckets: the units that a lease gives back so many microseconds after its end

local ARGV, lease, ends_in, without_room, come_back = ...
local key, old, length = KEYS[1], lease.old, lease.length
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local stored = redis.call('GET', key)
local state, lasts = stored, nil

local unused = old.units - old.used
if come_back and stored and old.units > 0 then
  unused = come_back(stored, unused, now - old.at - length)
end
if unused > 0 and stored and numbers_of(stored)[1] == old.birth then
  local reply, text = rule(ARGV, stored, now, 'lower', unused, false, old.at)
  if reply then
    return reply
  end
  state = text
end

local all, on_lease = read_demands(lease, now)
if without_room and (lease.want > 0 or on_lease > 0) then
  state, lasts = without_room(ARGV, state, on_lease, length, now)
end
if lease.want == 0 then
  leave(lease)
  if state ~= stored then
    write(key, state, lasts)
  end
  return { -ARGV[ID] }
end

local look = rule(ARGV, state, now, PEEK, 0)
if look.err then
  return look
end
local units = share_of(lease, look[REMAINING], all)
local reply, text, kept = rule(ARGV, state, now, TAKE, math.max(units, 1))
if text then
  -- A state that is gone during a lease would have no room for its units.
  state, lasts = text, math.max(kept, length)
end
if state ~= stored then
  write(key, state, lasts)
end
local allowed = 0
if units > 0 then
  allowed = length
  for _, it in ipairs(ends_in and counts_of(numbers_of(state), NUMBERS, decode) or {}) do
    allowed = math.min(allowed, ends_in(it, now))
  end
end
record(lease, now, units, now + allowed)
reply[VERDICT], reply[ENTRY], reply[ALLOWED], reply[UNITS] = -ARGV[ID], 0, allowed, units
return reply
