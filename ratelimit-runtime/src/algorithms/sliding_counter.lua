-- Sliding counter: for each period two adjacent windows, the earlier one weighted. `per_tier_rule.lua`
-- and `quotients.lua` come before.
--
-- Tier           period, in microseconds, threshold, and tick, the fewest microseconds with which
--                threshold * (period in ticks) is at most 2^53
-- Count          period; since when it is counted (0: from the beginning); the units of the window
--                before the one in which the state was last written, and the units of that one
--
-- Rule: a call is admitted if and only if for every tier previous * (time left in the current
-- window) / period + current + cost is at most the threshold. All products are exact.
--
-- Invariant: `current` is at least the units recorded in its window, and `previous` + `current` at least
-- those in both windows, as far back as the state goes.

local is_whole = #numbers > 2 and #numbers % 4 == 2
if stored and not (is_whole and string.find(stored, '^c[%d ]+$')) then
  return redis.error_reply('WRONGTYPE the value is not a sliding counter')
end
local saved, by_period = {}, {}
for i = 3, #numbers, 4 do
  saved[#saved + 1] = {
    period = numbers[i],
    since = numbers[i + 1],
    previous = numbers[i + 2],
    current = numbers[i + 3],
  }
  by_period[numbers[i]] = saved[#saved]
end

local function encode(it)
  return string.format('%.0f %.0f %.0f %.0f', it.period, it.since, it.previous, it.current)
end

if op == LOWER then
  -- Only windows that counted the units.
  for _, it in ipairs(saved) do
    local start, counted = last - last % it.period, taken_at - taken_at % it.period
    if it.since <= taken_at and counted == start then
      it.current = math.max(it.current - cost, 0)
    elseif it.since <= taken_at and counted + it.period == start then
      it.previous = math.max(it.previous - cost, 0)
    end
  end
  return nil, text_of('c', encode, last, saved)
end

local function raise(counters, units)
  for _, it in ipairs(counters) do
    it.current = math.min(it.current + units, 4294967295)
  end
end

-- The windows as of now.
local ahead, turn = false, 1
repeat
  for _, it in ipairs(saved) do
    local passed = divide(now, it.period) - divide(last, it.period)
    if passed == 1 then
      it.previous, it.current = it.current, 0
    elseif passed > 1 then
      it.previous, it.current = 0, 0
    end
    -- After a clock has stepped back, a window may lie in the future: it is moved to now.
    ahead = ahead or passed < 0
  end
  if turns and turn + 3 < #turns then
    raise(saved, cost)
    turn, last = turn + 3, now
    cost, now = turns[turn], turns[turn + 1]
  else
    turns = nil
  end
until not turns

-- Returns an upper bound of the units recorded from `at` on, as far back as the state goes.
local function recorded_since(at)
  if last < at then
    return 0
  end
  local least, most
  for _, it in ipairs(saved) do
    local start = now - now % it.period
    local both = it.previous + it.current
    most = math.max(most or 0, both)
    if start - it.period <= at then
      least = math.min(least or both, start <= at and it.current or both)
    end
  end
  return least or most or 0
end

-- Adds the counter of this period, unless it was added before. Without a stored one, a new counter
-- takes over the units that the stored ones have recorded.
local counters, is_new = {}, false
local function add(period)
  local it = by_period[period]
  if it and it.is_added then
    return
  end
  if not it then
    -- A policy is counted from its first call on, even if that call is refused.
    is_new = true
    local start = now - now % period
    local current = recorded_since(start)
    it = {
      period = period,
      since = #saved > 0 and now or 0,
      previous = math.max(recorded_since(start - period) - current, 0),
      current = current,
    }
    by_period[period] = it
  end
  it.is_added = true
  counters[#counters + 1] = it
end

if op == RAISE then
  if #saved == 0 then
    add(tonumber(ARGV[FIRST]))
    saved = counters
  end
  local lasts = 0
  raise(saved, cost)
  for _, it in ipairs(saved) do
    lasts = math.max(lasts, 2 * it.period - now % it.period)
  end
  return nil, text_of('c', encode, now, saved), lasts
end

for i = FIRST, #ARGV, 3 do
  add(tonumber(ARGV[i]))
end

-- Returns the weight of both windows, rounded up to whole units.
local function used(it)
  -- Rounded up: less time left would be less weight.
  local left = math.min(divide_up(it.start + it.period - now, it.tick), it.ticks)
  return it.current + divide_up(math.min(it.previous, it.exact) * left, it.ticks)
end

-- Returns the microseconds until this many units, at most the threshold, are available.
local function until_free(it, weight, units)
  if weight + units <= it.threshold then
    return 0
  end
  local weighs, free = it.previous, it.threshold - units - it.current
  local ends = it.start + it.period - now
  if free < 0 then
    -- Not within this window, but within the next one, in which the current units are weighted, or
    -- at its end.
    weighs, free = it.current, it.threshold - units
    ends = ends + it.period
  end
  -- The most ticks left in the window with which the weight of `weighs` leaves room.
  local most = divide(free * it.ticks, math.max(math.min(weighs, it.exact), 1))
  return ends - most * it.tick
end

for index = 1, deciding do
  local it = counters[index]
  local first = FIRST + 3 * index - 3
  it.threshold, it.tick = tonumber(ARGV[first + 1]), tonumber(ARGV[first + 2])
  it.start, it.ticks = now - now % it.period, divide(it.period, it.tick)
  -- Units beyond this number add no weight, so that all products stay exact.
  it.exact = divide(9007199254740992, it.ticks)
  admitted = admitted and (cost == 0 or used(it) + cost <= it.threshold)
end
local taken = admitted or count_rejected

local reset, grown = 0, 0
for index = 1, deciding do
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
  tier, remaining, wait = choose(admitted, index, left, leaves, tier, remaining, wait)
  reset = math.max(reset, until_free(it, weight, threshold))
end

local more = admitted and 0 or wait
if not admitted and cost > remaining + 1 then
  more = 0
  for index = 1, deciding do
    local it = counters[index]
    local units = math.min(remaining + 1, it.threshold)
    more = math.max(more, until_free(it, used(it), units))
  end
end

local text, lasts
if op == TAKE and (taken or ahead or is_new) then
  append_others(counters, saved)
  lasts = reset
  for index = deciding + 1, #counters do
    local it = counters[index]
    it.current = math.min(it.current + grown, 4294967295)
    local windows = it.current > 0 and 2 or it.previous > 0 and 1 or 0
    lasts = math.max(lasts, windows * it.period - now % it.period)
  end
  text = text_of('c', encode, now, counters)
end

return { admitted and 1 or 0, tier, remaining, wait, reset, more, now, birth }, text, lasts, is_new
