-- Sliding counter: for each period two adjacent windows, the earlier one by the share that still counts.
--
-- Tier           period, in microseconds, threshold, and tick, the fewest microseconds with which
--                threshold * (period in ticks) is at most 2^53
-- Count          period; 0; the units of the window before the one in which the state was last written, and the
--                units of that one. One that has taken over those of other counts has -1 * period; since
--                when both windows together have the units of all charges (0: from the start of the
--                earlier one); the units; and since when the later one has them (0: from its start)
--
-- Rule: a call is admitted if and only if for every tier previous * (time left in the current
-- window) / period + current + cost is at most the threshold. All products are exact.
--
-- Invariant: `current` is at least the units recorded in its window, and `previous` + `current` at least
-- those in both windows, as far back as the state goes.

local KIND, PATTERN, LETTER, NUMBERS, ARGUMENTS = 'sliding counter', '^c[%d%- ]+$', 'c', 4, 3
local COUNTS_REFUSED = true

local function decode(numbers, i)
  local period, since, current_since, after = numbers[i], numbers[i + 1], 0, i + 4
  if period < 0 then
    period, current_since, after = -period, numbers[i + 4], i + 5
  end
  local previous, current = numbers[i + 2], numbers[i + 3]
  return { period = period, since = since, current_since = current_since, previous = previous, current = current },
    after
end

local function encode(it)
  local previous, current, since = it.previous, it.current, it.current_since
  if it.since == 0 and since == 0 then
    return string.format('%.0f 0 %.0f %.0f', it.period, previous, current)
  end
  return string.format('%.0f %.0f %.0f %.0f %.0f', -it.period, it.since, previous, current, since)
end

local function new_count(ARGV, i)
  return { period = tonumber(ARGV[i]), since = 0, current_since = 0, previous = 0, current = 0 }
end

local function is_same(it, other)
  return it.period == other.period
end

-- Returns since when both windows have the units of all charges, and since when the later one has them, if that
-- starts at a microsecond.
local function complete_since(it, start)
  local both, current = it.since, it.current_since
  return both > 0 and both or start - it.period, current > 0 and current or start
end

-- Returns an upper bound of the units that counters recorded from `at` on, as far back as the state goes, and since
-- when it has the units of all charges. Of equal ones the first.
local function recorded_since(at, counters, last, now)
  if last < at then
    return 0, at
  end
  local least, since, most, most_since
  for _, it in ipairs(counters) do
    local start = now - now % it.period
    local units, both_since, current_since = it.previous + it.current, nil, nil
    both_since, current_since = complete_since(it, start)
    if not most or units > most then
      most, most_since = units, both_since
    end
    if start <= at then
      units, both_since = it.current, current_since
    end
    if start - it.period <= at and (not least or units < least) then
      least, since = units, both_since
    end
  end
  return least or most, since or most_since
end

-- Takes over the units that the others have recorded.
local function carry(it, others, last, now)
  local start, both = now - now % it.period, nil
  it.current, it.current_since = recorded_since(start, others, last, now)
  both, it.since = recorded_since(start - it.period, others, last, now)
  it.previous = math.max(both - it.current, 0)
end

-- After a clock has stepped back, a window may lie in the future: it is moved to now.
local function advance(it, last, now)
  local passed = divide(now, it.period) - divide(last, it.period)
  if passed > 0 then
    it.previous, it.current = passed == 1 and it.current or 0, 0
    it.since, it.current_since = passed == 1 and it.current_since or 0, 0
  end
  -- Calls come from before these times now.
  if last > now then
    it.since, it.current_since = math.min(it.since, now), math.min(it.current_since, now)
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
    -- Not within this window, but within the next one, in which a share of the current units counts, or
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

local function lower(it, units, at, last)
  local start = last - last % it.period
  local both, current = complete_since(it, start)
  if at < both or at >= start + it.period then
    return
  end
  if at >= current then
    it.current = math.max(it.current - units, 0)
  else
    it.previous = math.max(it.previous - units, 0)
  end
end

