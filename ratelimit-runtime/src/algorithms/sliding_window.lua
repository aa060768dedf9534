-- Sliding window: an exact log on one sorted set, for one or several tiers.
--
-- KEYS[1]        the log: one member per recorded unit, its score the microsecond of its record;
--                and the header "@", the only member with a score below 0: the log's capacity
-- ARGV[1]        op: 0 peeks, 1 takes, 2 settles at fewer units
-- ARGV[2]        cost: the units to take, or, to settle, that were taken; 0 only in a peek
-- ARGV[3]        1 if refused calls are recorded too; 2 if a call of this id may have been decided
--                before: if so, it is admitted and not charged again, and settled only if it was
--                charged at ARGV[5]; otherwise the score of the header that the tiers that decide need, or 0
-- ARGV[4]        id of the call, an integer below 2^52: its units are members id, id + 1, ..; of a peek
--                without one any number
-- ARGV[5]        settle: microsecond at which the units were taken; take: milliseconds after which a log of the
--                tiers that decide expires
-- ARGV[6]        number of tiers that decide, for further ones units are only kept; settle: units
--                that the call takes instead
-- ARGV[7], [8]   period of the first tier, in microseconds, and its threshold
-- ARGV[9], ..    the same for further tiers
-- Returns        {admitted, tier, remaining, wait, reset, more, at}; for a settle {ARGV[4]}, negative if it
--                changes nothing; of a call that goes straight only what these numbers do not follow from,
--                which costs 2 % less: {admitted, remaining, wait, at, tier} or {admitted, wait, reset, tier},
--                without the tier if there is one
--   admitted     ARGV[4], negative unless the call was admitted; other replies have -1 * ARGV[4] before them
--   tier         index of the tier that is reported: of a refusal the one with the longest wait, of
--                an admission the one with the fewest units left
--   remaining    units left in that tier
--   wait         microseconds until the same call is admitted, or, if this one was, until more than
--                `remaining` units are available
--   reset        microseconds until the full quota is available
--   more         microseconds until `remaining` + 1 units are available; 0 if the call was admitted
--   at           microsecond at which the call was charged: of a repeated id, the first time
--
-- Rule: a call is admitted if and only if for every tier the units in (now - period, now] plus its
-- cost are at most the threshold. All tiers are charged, or none.
--
-- Invariant: of all policies that have written to it, the log keeps the units that are younger than
-- the longest period, the newest ones, up to the largest threshold. So no policy misses units that
-- it counts. The score of "@" is both numbers: -(period in milliseconds * 2^17 + threshold).
--
-- What its straight way leaves goes to `general` in `sliding_window_general.lua`. That decides every call,
-- and takes 1.6 times as long at a threshold of 100: so there are two ways.

local call, ARGV = redis.call, ARGV
local TAKE, SETTLE = '1', '2'
local log, op, mode, id = KEYS[1], ARGV[1], ARGV[3], ARGV[4]
-- The first and the last tier that decides, as indices of ARGV.
local FIRST, final = 7, ARGV[6] == '1' and 7 or 5 + 2 * ARGV[6]

-- A command for this many units takes less than a millisecond.
local AT_ONCE = 500

if op == SETTLE then
  local took = tonumber(ARGV[2])
  -- Only the first settle of a call finds its last unit.
  local newest = string.format('%.0f', id + took - 1)
  if mode == '2' and tonumber(call('ZSCORE', log, newest) or 0) ~= tonumber(ARGV[5]) then
    return { -id }
  end
  local removed = 0
  for first = tonumber(ARGV[6]), took - 1, AT_ONCE do
    local units = {}
    for unit = first, math.min(first + AT_ONCE, took) - 1 do
      units[#units + 1] = string.format('%.0f', id + unit)
    end
    removed = call('ZREM', log, unpack(units))
  end
  return { removed > 0 and id + 0 or -id }
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- The straight way of most calls, in few commands: they take one unit, and all tiers decide. It answers as the
-- general way, and leaves to that one, with nothing done, every other call, and every log that has no units,
-- another header, or units of the future. Numbers are slow to format, as arguments of a command and as scores
-- in a reply: most arguments are strings, and few scores are read.
local is_one_unit = op == TAKE and #mode > 1 and ARGV[2] == '1' and not ARGV[final + 2]
local units = is_one_unit and call('ZCARD', log) - 1 or 0
if units > 0 then
  local longest, largest, is_one = ARGV[final] + 0, ARGV[final + 1] + 0, final == FIRST
  for i = FIRST, is_one and 0 or final, 2 do
    local period, threshold = ARGV[i] + 0, ARGV[i + 1] + 0
    ARGV[i], ARGV[i + 1] = period, threshold
    longest = period > longest and period or longest
    largest = threshold > largest and threshold or largest
  end

  -- The header, and the oldest unit of the longest window. Mostly one unit at most has left it.
  local first = call('ZRANGE', log, '0', units < largest and '2' or '1', 'WITHSCORES')
  -- A log keeps units for longer than a period that is no whole milliseconds.
  local is_known = first[2] == mode and longest % 1000 == 0
  local leaves, expired = first[4] + longest - now, nil
  if is_known and leaves <= 0 then
    expired, leaves = '1', first[6] and first[6] + longest - now or 0
    if leaves <= 0 then
      expired = call('ZCOUNT', log, '0', now - longest)
      if expired < units then
        leaves = call('ZRANGE', log, expired + 1, expired + 1, 'WITHSCORES')[2] + longest - now
      end
    end
    units = units - expired
  end
  is_known = is_known and leaves > 0 and leaves <= longest

  -- Of a refusal the tier with the longest wait. No wait is longer than that for the newest unit.
  local tier, remaining, wait, last, lives
  if not is_known then
    units = largest
  elseif is_one and units == largest then
    wait, last = leaves, call('ZRANGE', log, '-1', '-1', 'WITHSCORES')[2] + 0
  elseif not is_one then
    lives = {}
    for i = final, FIRST, -2 do
      local period, threshold, live = ARGV[i], ARGV[i + 1], units
      if period < longest and not wait then
        live = units + (expired or 0) - call('ZCOUNT', log, '0', now - period)
      end
      lives[i] = live
      if live >= threshold and not (wait and last + period - now < wait) then
        local until_left = leaves + period - longest
        if units ~= threshold then
          local unit = call('ZRANGE', log, -threshold, -threshold, 'WITHSCORES')[2]
          until_left = unit + period - now
        end
        if until_left > 0 and (not wait or until_left >= wait) then
          tier, wait = (i - FIRST) / 2, until_left
          last = last or call('ZRANGE', log, '-1', '-1', 'WITHSCORES')[2] + 0
        end
      end
    end
  end
  if wait and last <= now then
    return { -id, wait, last + longest - now, tier }
  end

  if not wait and units < largest then
    if expired and units + expired > AT_ONCE then
      -- As below, a large log is trimmed only beyond its capacity.
      expired = math.min(units + expired + 1 - largest, AT_ONCE + 1)
    end
    if expired and expired + 0 > 0 then
      call('ZREMRANGEBYRANK', log, '1', expired)
    end
    local micros = time[2]
    if #micros < 6 then
      micros = string.sub('00000' .. micros, -6)
    end
    call('ZADD', log, time[1] .. micros, id)
    call('PEXPIRE', log, ARGV[5])
    if is_one then
      return { id + 0, largest - units - 1, leaves, now }
    end
    -- Of an admission the tier with the fewest units left, of those the one with the longest wait.
    for i = FIRST, final, 2 do
      local period, live = ARGV[i], lives[i]
      local left = ARGV[i + 1] - live - 1
      if not tier or left <= remaining then
        local until_left = period
        if live == units then
          until_left = leaves + period - longest
        elseif live > 0 then
          local rank = -live - 1 .. ''
          until_left = call('ZRANGE', log, rank, rank, 'WITHSCORES')[2] + period - now
        end
        if not tier or left < remaining or until_left > wait then
          tier, remaining, wait = (i - FIRST) / 2, left, until_left
        end
      end
    end
    return { id + 0, remaining, wait, now, tier }
  end
end

return general(log, ARGV, now)
