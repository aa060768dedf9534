-- exchange(ARGV, lease) -> the reply to a request for a lease
--
-- Leases of the algorithms that count for each tier. While calls wait in a line, the key has another type, and
-- there is no lease. Two functions of the algorithm decide:
--
-- allowed_in(numbers, length, now)
--                     -> microseconds for which units may be used that were taken now, of a state's numbers
-- without_room(ARGV, stored, tokens, length, now), or nil
--                     -> the state with no room for so many tokens, and the microseconds for which it counts

local ARGV, lease = ...
local key, old, length = KEYS[1], lease.old, lease.length
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local stored = redis.call('GET', key)
local state, lasts = stored, nil

if old.units > old.used and stored and numbers_of(stored)[1] == old.birth then
  local reply, text = rule(ARGV, stored, now, 'lower', old.units - old.used, false, old.at)
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
  return { -ARGV[4] }
end

local look = rule(ARGV, state, now, PEEK, 0)
if look.err then
  return look
end
local units = share_of(lease, look[3], all)
local reply, text, kept = rule(ARGV, state, now, TAKE, math.max(units, 1))
if text then
  -- A state that is gone during a lease would have no room for its units.
  state, lasts = text, math.max(kept, length)
end
if state ~= stored then
  write(key, state, lasts)
end
local allowed = units > 0 and allowed_in(numbers_of(state), length, now) or 0
record(lease, now, units, now + allowed)
return { -ARGV[4], allowed, units, unpack(reply, 2) }
