-- straight(log, ARGV, now) -> the reply, or nil
--   log, ARGV, reply   as in `log.lua`
--   now                microsecond of the decision
--
-- The straight way of a log with entries, in few commands: one tier decides, the log counts for no other, and nobody
-- waits. It answers as the general way, and leaves to that one, with nothing done, every other call: then it
-- returns nil. It needs the functions of `entry.lua`.
-- Numbers are slow to format as arguments of a command, strings of integers are not.

local log, ARGV, now = ...
local call, MOST_UNITS, CROWDED = redis.call, 99999999, 90000
local mode = ARGV[MODE]
local is_plain = mode == PLAIN or #mode > 1
if ARGV[OP] ~= TAKE or not is_plain or ARGV[DECIDING] ~= '1' or ARGV[TIERS + 2] then
  return
end
local cost, period, threshold = tonumber(ARGV[COST]), ARGV[TIERS], ARGV[TIERS + 1] + 0
local length = period + 0
-- The header, and the oldest entries. Mostly one of them at most has left the window.
local first, oldest = call('ZRANGE', log, '0', '4', 'WITHSCORES'), 7
local birth, since, units = first[2], first[4], -1 - (first[6] or 0)
if first[3] == 'g' then
  birth, since = since, birth
end
local is_known = first[5] == '#' .. period and (first[3] == 'g' and first[1] or first[3]) == '@' .. period
if not (is_known and first[8] and first[8] + since > 0) then
  return
end
local to = now - length
if first[8] - to <= 0 then
  units, oldest = units - units_of(first[7]), 9
end
local stamp = tonumber(first[oldest + 1])
if not stamp or stamp <= to or stamp > now or units > threshold then
  return
end
local remaining, leaves, id = threshold - units, stamp + length - now, ARGV[ID] + 0
if cost > remaining then
  local wait, excess = leaves, cost - remaining - units_of(first[oldest])
  if excess > 0 then
    local next = oldest == 7 and first[10]
    wait = next and excess <= units_of(first[9]) and next + length - now
  end
  if not wait or cost > threshold or (ARGV[DETAIL] ~= '0' and mode == PLAIN) then
    return
  end
  local newest = call('ZRANGE', log, '-1', '-1', 'WITHSCORES')[2]
  local more = cost > remaining + 1 and leaves or wait
  if newest - now <= 0 then
    return { -id, wait, newest + length - now, remaining, now, 0, more }
  end
elseif cost <= MOST_UNITS and (units < CROWDED or call('ZCARD', log) < CROWDED) then
  local entry = string.format('%s%08d', ARGV[ID], cost)
  if not call('ZSCORE', log, entry) then
    if oldest > 7 then
      call('ZREM', log, first[7])
    end
    call('ZADD', log, string.format('%d', now), entry, string.format('%d', -1 - units - cost),
      first[5], string.format('%d', -to), '@' .. period)
    call('PEXPIRE', log, lasting(length))
    return { id, leaves, length, remaining - cost, now, 0, 0, -birth }
  end
end
