
-- The entry of a lease counts as if all units were used at the lease's end: windows are then exact, however
-- late they are used.

local reply = decide(true)
if want == 0 then
  return reply
end
units = reply[1] == 1 and units or 0
local allowed = 0
if units > 0 then
  local entry = string.format('%.0f%08d', reply[9], units)
  allowed = length
  redis.call('ZADD', KEYS[1], 'XX', reply[7] + length, entry)
  redis.call('ZADD', KEYS[1], 'LT', -reply[7] - length, 'l')
  reply[5] = reply[5] + length
end
record(reply[7], units, reply[7] + allowed)
reply[1] = units
table.insert(reply, 1, allowed)
return reply
