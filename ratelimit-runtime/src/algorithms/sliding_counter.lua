-- Sliding counter: two adjacent windows, the earlier one weighted, on one string.
--
-- KEYS[1]        the state: "c<birth> <last> <period> <since> <previous> <current> ..": when it was
--                created and last written, and for each period since when it is counted (0: from
--                the beginning), and the units of the window before, and of the one that held `last`
-- ARGV[1]        1 to take, 0 to look without taking, or the microsecond at which units were taken
--                that are to be given back
-- ARGV[2]        cost: the units the call takes (0 only to look), or gives back
-- ARGV[3]        1 if refused calls are recorded too, otherwise 0
-- ARGV[4]        the birth of the state that units are given back to, otherwise 0
-- ARGV[5]        how many of the tiers decide; those after them are only counted
-- ARGV[6] .. [8] a tier's period in microseconds, its threshold, and the microseconds of a tick:
--                the fewest with which threshold * (period in ticks) is at most 2^53
-- ARGV[9], ..    the same for further tiers
-- Returns        {admitted, tier, remaining, wait, reset, more, now, birth}: 1 or 0, the index of
--                the tier spoken of, the units left in it, microseconds until the call is admitted
--                (or, admitted, until more than `remaining` can be had), until the full quota is
--                back, and, refused, until `remaining` + 1 units can be had, the microsecond of the
--                decision, and the state's birth; nothing when units are given back
--
-- Rule: a call is admitted if and only if for every tier previous * (time left in the current
-- window) / period + current + cost is at most the threshold. All products are exact.
--
-- Invariant: of every period in the state, `current` is at least the units recorded in its window,
-- and `previous` + `current` those in both windows, as far as the state goes back. Whichever policy
-- decides, every period in the state counts the units: another policy finds none of them missing.

local key, take, cost = KEYS[1], ARGV[1] == '1', tonumber(ARGV[2])
local count_rejected, own = ARGV[3] == '1', tonumber(ARGV[5])

-- As many periods of other policies are counted; the ones decided by longest ago go.
local OTHERS = 8

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

local stored, birth, last, held = redis.call('GET', key), now, now, {}
if stored then
  local numbers = {}
  for number in string.gmatch(stored, '%d+') do
    numbers[#numbers + 1] = tonumber(number)
  end
  if #numbers % 4 ~= 2 or #numbers < 6 or not string.find(stored, '^c[%d ]+$') then
    return redis.error_reply('WRONGTYPE the key holds no sliding counter')
  end
  birth, last = numbers[1], numbers[2]
  for i = 3, #numbers, 4 do
    held[#held + 1] = {
      period = numbers[i],
      since = numbers[i + 1],
      previous = numbers[i + 2],
      current = numbers[i + 3],
    }
  end
end

local function text(at, counters)
  local words = { string.format('c%.0f %.0f', birth, at) }
  for i, it in ipairs(counters) do
    words[i + 1] =
      string.format('%.0f %.0f %.0f %.0f', it.period, it.since, it.previous, it.current)
  end
  return table.concat(words, ' ')
end

local given_back = tonumber(ARGV[1])
if given_back > 1 then
  -- To the windows that they were counted in, unless the state is another one by now.
  if stored and birth == tonumber(ARGV[4]) then
    for _, it in ipairs(held) do
      local start, counted = last - last % it.period, given_back - given_back % it.period
      if it.since <= given_back and counted == start then
        it.current = math.max(it.current - cost, 0)
      elseif it.since <= given_back and counted + it.period == start then
        it.previous = math.max(it.previous - cost, 0)
      end
    end
    redis.call('SET', key, text(last, held), 'KEEPTTL')
  end
  return {}
end

-- The windows as they are now.
local ahead = false
for _, it in ipairs(held) do
  local passed = divide(now, it.period) - divide(last, it.period)
  if passed == 1 then
    it.previous, it.current = it.current, 0
  elseif passed > 1 then
    it.previous, it.current = 0, 0
  end
  -- A window of the future, left by a clock that stepped back, is one of now from here on.
  ahead = ahead or passed < 0
end

-- At least the units recorded from `at` on, of what the state knows.
local function recorded_since(at)
  if last < at then
    return 0
  end
  local least, most
  for _, it in ipairs(held) do
    local start = now - now % it.period
    local both = it.previous + it.current
    most = math.max(most or 0, both)
    if start - it.period <= at then
      least = math.min(least or both, start <= at and it.current or both)
    end
  end
  return least or most or 0
end

-- Adds a counter of this period, if there is none yet: the one that is held, or one that carries
-- over what the others know.
local counters, is_new = {}, false
local function add(period)
  for _, it in ipairs(counters) do
    if it.period == period then
      return
    end
  end
  for _, it in ipairs(held) do
    if it.period == period then
      it.is_added = true
      counters[#counters + 1] = it
      return
    end
  end
  -- A policy is known from its first call on, also if that is refused.
  is_new = true
  local start = now - now % period
  local current = recorded_since(start)
  counters[#counters + 1] = {
    period = period,
    since = #held > 0 and now or 0,
    previous = math.max(recorded_since(start - period) - current, 0),
    current = current,
  }
end
for i = 6, #ARGV, 3 do
  add(tonumber(ARGV[i]))
end

-- What the two windows weigh together, rounded up to whole units.
local function used(it)
  -- Less time left than there is would be less weight: it is rounded up.
  local left = math.min(divide_up(it.start + it.period - now, it.tick), it.ticks)
  return it.current + divide_up(math.min(it.previous, it.exact) * left, it.ticks)
end

-- How long until this many units, at most the threshold, can be had.
local function until_free(it, weight, units)
  if weight + units <= it.threshold then
    return 0
  end
  local weighs, free = it.previous, it.threshold - units - it.current
  local ends = it.start + it.period - now
  if free < 0 then
    -- Not in this window: in the next one, in which the current units weigh, or at its end.
    weighs, free = it.current, it.threshold - units
    ends = ends + it.period
  end
  -- The most ticks with which `weighs` leaves room: what is left of a window is to be no more.
  local most = divide(free * it.ticks, math.max(math.min(weighs, it.exact), 1))
  return ends - most * it.tick
end

local admitted = true
for index = 1, own do
  local it = counters[index]
  it.threshold, it.tick = tonumber(ARGV[3 * index + 4]), tonumber(ARGV[3 * index + 5])
  it.start, it.ticks = now - now % it.period, divide(it.period, it.tick)
  -- More units than that are counted, and weigh no more: all products stay exact.
  it.exact = divide(9007199254740992, it.ticks)
  admitted = admitted and (cost == 0 or used(it) + cost <= it.threshold)
end
local taken = admitted or count_rejected

local tier, remaining, wait
local reset, grown = 0, 0
for index = 1, own do
  local it = counters[index]
  local threshold, before = it.threshold, it.current
  if taken then
    it.current = math.max(before, math.min(before + cost, threshold))
    grown = math.max(grown, it.current - before)
  end
  local weight = used(it)
  local left = math.max(threshold - weight, 0)
  local wanted = admitted and math.min(left + 1, threshold) or cost
  local leaves = until_free(it, weight, wanted)
  local closer = admitted and (not tier or left < remaining)
  if not tier or closer or leaves > wait and (left == remaining or not admitted) then
    tier, remaining, wait = index - 1, left, leaves
  end
  reset = math.max(reset, until_free(it, weight, threshold))
end

local more = admitted and 0 or wait
if not admitted and cost > remaining + 1 then
  more = 0
  for index = 1, own do
    local it = counters[index]
    local units = math.min(remaining + 1, it.threshold)
    more = math.max(more, until_free(it, used(it), units))
  end
end

if take and (taken or ahead or is_new) then
  for _, it in ipairs(held) do
    if not it.is_added and #counters < own + OTHERS then
      counters[#counters + 1] = it
    end
  end
  local lasts = reset
  for index = own + 1, #counters do
    local it = counters[index]
    it.current = math.min(it.current + grown, 4294967295)
    local windows = it.current > 0 and 2 or it.previous > 0 and 1 or 0
    lasts = math.max(lasts, windows * it.period - now % it.period)
  end
  local ttl = math.floor(lasts / 1000) + 999
  redis.call('SET', key, text(now, counters), 'PX', ttl)
end

return { admitted and 1 or 0, tier, remaining, wait, reset, more, now, birth }
