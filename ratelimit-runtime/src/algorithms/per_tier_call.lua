-- The decision of an algorithm that counts for each tier. While nobody waits, the state is read, and written if it
-- has changed, as `rule` in `per_tier_rule.lua` decides. Everything else goes to `in_line` in `per_tier_line.lua`.
--
-- KEYS[1]        the state: "<letter><birth> <last> <number> ..": when it was created and last written,
--                in microseconds, and the numbers of each count
-- ARGV[1]        op: 0 peeks, 1 takes, 2 settles, 3 advances; these have other arguments
-- ARGV[2]        cost: the units to take; 0 only in a peek
-- ARGV[3]        1 if refused calls are recorded too, otherwise 0
-- ARGV[4]        a number that the reply names
-- ARGV[5]        take: microseconds that the call may wait for its turn, and after a space the number of
--                turns that may lie ahead then; otherwise 0
-- ARGV[6]        number of tiers that decide; further ones are only counted
-- ARGV[7], ..    numbers of the first tier, then of further tiers
-- Returns        {admitted, tier, remaining, wait, reset, more, at, birth}; for a settle {ARGV[4]}, negative if it
--                changes nothing
--   admitted     ARGV[4], negative unless the call was admitted; other replies have -1 * ARGV[4] before them
--   tier         index of the tier that is reported: of a refusal the one with the longest wait, of
--                an admission the one with the fewest units left
--   remaining    units left in that tier
--   wait         microseconds until the same call is admitted, or, if this one was, until more than
--                `remaining` units are available
--   reset        microseconds until the full quota is available
--   more         microseconds until `remaining` + 1 units are available; if the call was admitted, until
--                its turn, and 0 if it passes now: its other numbers are those of its turn
--   at           microsecond at which the call was charged; 0 of one that a line refuses
--   birth        microsecond at which the state was created
--
-- To settle:
-- KEYS[2]        the settles of late: their numbers, each with the microsecond until which it is kept
-- ARGV[2], [3]   units that the call took, and units that it takes instead
-- ARGV[4]        birth of the state that they were taken from
-- ARGV[5]        microsecond at which they were taken
-- ARGV[6], [7]   number of the settle, and microseconds for which it is kept
-- ARGV[8]        microsecond before which the state cannot have expired
-- ARGV[9], ..    numbers of a tier, as from ARGV[7] on
--
-- A settle is applied once. Fewer units are those of the call no more; nothing happens after a reset.
-- More units are taken now, whatever room there is, also if the state has expired meanwhile.
--
-- Invariant: units count for every tier in the state, under any policy. So no policy misses units that
-- were taken under another one.

local PEEK, TAKE = '0', '1'
local key, op, cost = KEYS[1], ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local stored = redis.pcall('GET', key)
if type(stored) == 'table' or op ~= TAKE and op ~= PEEK then
  return in_line(key, ARGV, stored, now)
end
local reply, text, lasts = rule(ARGV, stored, now, op, cost, ARGV[3] == '1')
if reply[1] == 0 and ARGV[5] ~= '0' then
  return in_line(key, ARGV, stored, now, reply, text, lasts)
end
if text then
  write(key, text, lasts)
end
reply[1] = reply[1] == 1 and ARGV[4] + 0 or -ARGV[4]
return reply
