-- The lease of units by `rule`, whose text comes before, with what it needs for leases. While calls wait in
-- a line, the key has another type, and there is no lease.

local stored = redis.call('GET', key)
local state, lasts = stored, nil

if old.units > old.used and stored and numbers_of(stored)[1] == old.birth then
  local reply, text = rule(stored, now, 'lower', old.units - old.used, false, old.at)
  if reply then
    return reply
  end
  state = text
end

local all, on_lease = read_demands(now)
if without_room and (want > 0 or on_lease > 0) then
  state, lasts = without_room(state, on_lease)
end
if want == 0 then
  redis.call('HDEL', asking, process)
  if state ~= stored then
    write(state, lasts)
  end
  return {}
end

local look = rule(state, now, PEEK, 0)
if look.err then
  return look
end
units = share_of(look[3], all)
local reply, text, kept = rule(state, now, TAKE, math.max(units, 1))
if text then
  -- A state that is gone during a lease would have no room for its units.
  state, lasts = text, math.max(kept, length)
end
if state ~= stored then
  write(state, lasts)
end
local allowed = units > 0 and allowed_in(numbers_of(state)) or 0
record(now, units, now + allowed)
reply[1] = units
table.insert(reply, 1, allowed)
return reply
