-- Sliding counter: two adjacent windows, the earlier one weighted, on one string.
--
-- KEYS[1]        the windows: "start previous current" for each tier: the start of the current
--                window in microseconds, a multiple of the period, and the units in both windows
-- ARGV[1]        1 to take, 0 to look without taking, or the microsecond at which units were taken
--                that are to be given back
-- ARGV[2]        cost: the units the call takes (0 only to look), or gives back
-- ARGV[3]        1 if refused calls are recorded too, otherwise 0
-- ARGV[4] .. [6] a tier's period in microseconds, its threshold, and the microseconds of a tick:
--                the fewest with which threshold * (period in ticks) is at most 2^53
-- ARGV[7], ..    the same for further tiers
-- Returns        {admitted, tier, remaining, wait, reset, more, now}: 1 or 0, the index of the tier
--                spoken of, the units left in it, microseconds until the call is admitted (or,
--                admitted, until more than `remaining` can be had), until the full quota is back,
--                and, refused, until `remaining` + 1 units can be had, and the microsecond of the
--                decision; nothing when units are given back
--
-- Rule: a call is admitted if and only if for every tier previous * (time left in the current
-- window) / period + current + cost is at most the threshold. A call of nothing is admitted. All
-- products are exact.

local key, take, cost, count_rejected = KEYS[1], ARGV[1] == '1', tonumber(ARGV[2]), ARGV[3] == '1'

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- Whole quotients, exact up to 2^53: a plain division would round.
local function divide(a, b)
  return (a - a % b) / b
end

local function divide_up(a, b)
  local rest = a % b
  return (a - rest) / b + (rest > 0 and 1 or 0)
end

local stored, numbers = redis.call('GET', key), {}
if stored then
  for number in string.gmatch(stored, '%d+') do
    numbers[#numbers + 1] = tonumber(number)
  end
  if #numbers == 0 or #numbers % 3 > 0 or string.find(stored, '[^%d ]') then
    return redis.error_reply('WRONGTYPE the key holds no sliding counter')
  end
end

if tonumber(ARGV[1]) > 1 then
  -- To the windows that they were counted in; of a tier that is no more they stay.
  local windows = {}
  for i = 1, #numbers, 3 do
    local start, previous, current = numbers[i], numbers[i + 1], numbers[i + 2]
    local period = tonumber(ARGV[i + 3]) or math.huge
    local counted = tonumber(ARGV[1]) - tonumber(ARGV[1]) % period
    if counted == start then
      current = math.max(current - cost, 0)
    elseif counted + period == start then
      previous = math.max(previous - cost, 0)
    end
    windows[#windows + 1] = string.format('%.0f %.0f %.0f', start, previous, current)
  end
  if stored then
    redis.call('SET', key, table.concat(windows, ' '), 'KEEPTTL')
  end
  return {}
end

-- What the two windows weigh together, rounded up to whole units.
local function used(counter)
  local ticks = divide(counter.period, counter.tick)
  -- Less time left than there is would be less weight: it is rounded up.
  local left = math.min(divide_up(counter.start + counter.period - now, counter.tick), ticks)
  return counter.current + divide_up(counter.previous * left, ticks)
end

-- How long until this many units, at most the threshold, can be had.
local function until_free(counter, weight, units)
  if weight + units <= counter.threshold then
    return 0
  end
  local weighs, free = counter.previous, counter.threshold - units - counter.current
  local ends = counter.start + counter.period - now
  if free < 0 then
    -- Not in this window: in the next one, in which the current units weigh, or at its end.
    weighs, free = counter.current, counter.threshold - units
    ends = ends + counter.period
  end
  -- The most ticks with which `weighs` leaves room: what is left of a window is to be no more.
  local most = divide(free * divide(counter.period, counter.tick), math.max(weighs, 1))
  return ends - most * counter.tick
end

local admitted, ahead, counters = true, false, {}
for i = 4, #ARGV, 3 do
  local index = #counters
  local period, threshold = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  local start = numbers[3 * index + 1] or 0
  local previous, current = numbers[3 * index + 2] or 0, numbers[3 * index + 3] or 0
  local passed = divide(now, period) - divide(start, period)
  if passed == 1 then
    previous, current = current, 0
  elseif passed > 1 then
    previous, current = 0, 0
  end
  local counter = {
    start = now - now % period,
    -- What a lowered threshold leaves too large counts as the threshold: products stay exact.
    previous = math.min(previous, threshold),
    current = math.min(current, threshold),
    period = period,
    threshold = threshold,
    tick = tonumber(ARGV[i + 2]),
  }
  -- A window of the future, left by a clock that stepped back, is one of now from here on.
  ahead = ahead or start > counter.start
  admitted = admitted and (cost == 0 or used(counter) + cost <= threshold)
  counters[index + 1] = counter
end
local taken = admitted or count_rejected

local tier, remaining, wait
local reset, windows = 0, {}
for index, counter in ipairs(counters) do
  local threshold = counter.threshold
  if taken then
    counter.current = math.min(counter.current + cost, threshold)
  end
  local weight = used(counter)
  local left = math.max(threshold - weight, 0)
  local wanted = admitted and math.min(left + 1, threshold) or cost
  local leaves = until_free(counter, weight, wanted)
  local closer = admitted and (not tier or left < remaining)
  if not tier or closer or leaves > wait and (left == remaining or not admitted) then
    tier, remaining, wait = index - 1, left, leaves
  end
  reset = math.max(reset, until_free(counter, weight, threshold))
  windows[index] =
    string.format('%.0f %.0f %.0f', counter.start, counter.previous, counter.current)
end

local more = admitted and 0 or wait
if not admitted and cost > remaining + 1 then
  more = 0
  for _, counter in ipairs(counters) do
    local units = math.min(remaining + 1, counter.threshold)
    more = math.max(more, until_free(counter, used(counter), units))
  end
end

if take and (taken or ahead) then
  local ttl = math.floor(reset / 1000) + 999
  redis.call('SET', key, table.concat(windows, ' '), 'PX', ttl)
end

return { admitted and 1 or 0, tier, remaining, wait, reset, more, now }
