-- The decision of an algorithm that counts for each tier. While nobody waits, the state is read, and written if it
-- has changed, as `rule` in `per_tier_rule.lua` decides. Everything else goes to `in_line` in `per_tier_line.lua`.
--
-- KEYS[1]        the state: "<letter><birth> <last> <number> ..": when it was created and last written,
--                in microseconds, and the numbers of each count
-- KEYS[2]        of a settle those of late: their numbers, each with the microsecond until which it is kept
-- ARGV, reply    as in `arguments.lua` and `names.lua`; the numbers of a tier are in the file of the algorithm
--
-- A settle is applied once. Fewer units are those of the call no more; nothing happens after a reset.
-- More units are taken now, whatever room there is, also if the state has expired meanwhile.
--
-- Invariant: units count for every tier in the state, under any policy. So no policy misses units that
-- were taken under another one.

local key, op, cost = KEYS[1], ARGV[OP], tonumber(ARGV[COST])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local stored = redis.pcall('GET', key)
if type(stored) == 'table' or op ~= TAKE and op ~= PEEK then
  return in_line(key, ARGV, stored, now)
end
local reply, text, lasts = rule(ARGV, stored, now, op, cost, ARGV[MODE] == COUNT_REJECTED)
if reply[VERDICT] == 0 and ARGV[DETAIL] ~= '0' then
  return in_line(key, ARGV, stored, now, reply, text, lasts)
end
if text then
  write(key, text, lasts)
end
reply[VERDICT] = reply[VERDICT] == 1 and ARGV[ID] + 0 or -ARGV[ID]
return reply
