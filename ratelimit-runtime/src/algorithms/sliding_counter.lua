-- Sliding counter: for each period two adjacent windows, the earlier one weighted.
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

local KIND, PATTERN, LETTER, NUMBERS, ARGUMENTS = 'sliding counter', '^c[%d ]+$', 'c', 4, 3
local COUNTS_REFUSED = true

local function decode(numbers, i)
  return { period = numbers[i], since = numbers[i + 1], previous = numbers[i + 2], current = numbers[i + 3] }
end

local function encode(it)
  return string.format('%.0f %.0f %.0f %.0f', it.period, it.since, it.previous, it.current)
end

local function new_count(ARGV, i)
  return { period = tonumber(ARGV[i]), since = 0, previous = 0, current = 0 }
end

local function is_same(it, other)
  return it.period == other.period
end

-- Returns an upper bound of the units that counters recorded from `at` on, as far back as the state goes.
local function recorded_since(at, counters, last, now)
  if last < at then
    return 0
  end
  local least, most
  for _, it in ipairs(counters) do
    local start = now - now % it.period
    local both = it.previous + it.current
    most = math.max(most or 0, both)
    if start - it.period <= at then
      least = math.min(least or both, start <= at and it.current or both)
    end
  end
  return least or most
end

-- Takes over the units that the others have recorded.
local function carry(it, others, last, now)
  local start = now - now % it.period
  it.current = recorded_since(start, others, last, now)
  it.previous = math.max(recorded_since(start - it.period, others, last, now) - it.current, 0)
end

-- After a clock has stepped back, a window may lie in the future: it is moved to now.
local function advance(it, last, now)
  local passed = divide(now, it.period) - divide(last, it.period)
  if passed > 0 then
    it.previous, it.current = passed == 1 and it.current or 0, 0
  end
  return passed < 0
end

local function are_renewed()
  return false
end

local function set_tier(it, ARGV, i)
  it.threshold, it.tick = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  it.ticks = divide(it.period, it.tick)
  -- Units beyond this number add no weight, so that all products stay exact.
  it.exact = divide(9007199254740992, it.ticks)
end

-- Returns the time until the later window ends.
local function ends_in(it, now)
  return it.period - now % it.period
end

-- Returns the weight of both windows, rounded up to whole units.
local function used(it, now)
  -- Rounded up: less time left would be less weight.
  local left = math.min(divide_up(ends_in(it, now), it.tick), it.ticks)
  return it.current + divide_up(math.min(it.previous, it.exact) * left, it.ticks)
end

local function has_room(it, units, now)
  return used(it, now) + units <= it.threshold
end

local function left_of(it, now)
  return math.max(it.threshold - used(it, now), 0)
end

local function until_free(it, units, now)
  units = math.min(units, it.threshold)
  if has_room(it, units, now) then
    return 0
  end
  local weighs, free, ends = it.previous, it.threshold - units - it.current, ends_in(it, now)
  if free < 0 then
    -- Not within this window, but within the next one, in which the current units are weighted, or
    -- at its end.
    weighs, free, ends = it.current, it.threshold - units, ends + it.period
  end
  -- The most ticks left in the window with which the weight of `weighs` leaves room.
  local most = divide(free * it.ticks, math.max(math.min(weighs, it.exact), 1))
  return ends - most * it.tick
end

local function lasts_for(it, now)
  local windows = it.current > 0 and 2 or it.previous > 0 and 1 or 0
  return math.max(windows * it.period - now % it.period, 0)
end

local function raise(it, units)
  it.current = math.min(it.current + units, 4294967295)
end

local function take(it, units)
  local before = it.current
  it.current = math.max(before, math.min(before + units, it.threshold))
  return it.current - before
end

local follow = raise

-- Only the window that counted the units.
local function lower(it, units, at, last)
  local start, counted = last - last % it.period, at - at % it.period
  if it.since <= at and counted == start then
    it.current = math.max(it.current - units, 0)
  elseif it.since <= at and counted + it.period == start then
    it.previous = math.max(it.previous - units, 0)
  end
end

