-- exchange(ARGV, lease) -> the reply to a request for a lease
--
-- ARGV, lease   as in `lease.lua`, of which it needs the functions, and `general` in `general.lua`
--
-- Leases of a sliding window. The entry of a lease counts as if all units were used at the lease's end: windows
-- are then exact, however late they are used.

local ARGV, lease = ...
local log, units = KEYS[1], 0
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local reply = general(log, ARGV, now, lease.old, function(free)
  if lease.want == 0 then
    leave(lease)
    return
  end
  units = share_of(lease, free, read_demands(lease, now))
  return units, units > 0 and now + lease.length or 0
end)
if lease.want == 0 then
  return reply
end
units = reply[VERDICT] > 0 and units or 0
local allowed = 0
if units > 0 then
  local entry = member(reply[ENTRY], units)
  allowed = lease.length
  redis.call('ZADD', log, 'XX', reply[AT] + lease.length, entry)
  redis.call('ZADD', log, 'LT', -reply[AT] - lease.length, 'l')
  reply[RESET] = reply[RESET] + lease.length
end
record(lease, reply[AT], units, reply[AT] + allowed)
reply[ALLOWED], reply[UNITS] = allowed, units
return reply
