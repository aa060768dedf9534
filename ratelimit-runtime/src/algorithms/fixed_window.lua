-- Fixed window: for each period a count that ends one period after its first unit.
--
-- Tier           period, in microseconds, and threshold
-- Count          period; since when it is counted (0: from the beginning); the start of its window, and
--                the units in it
--
-- Rule: a call is admitted if and only if for every tier the units in its open window plus the
-- call's cost are at most the threshold. A window is open for one period from its first unit. Refused
-- calls are never recorded.
--
-- Invariant: an open window counts every unit recorded since its start, under any policy.

local KIND, PATTERN, LETTER, NUMBERS, ARGUMENTS = 'fixed window', '^w[%d ]+$', 'w', 4, 2
local COUNTS_REFUSED = false

local function decode(numbers, i)
  local period, start = numbers[i], numbers[i + 2]
  return { period = period, since = numbers[i + 1], start = start, over = start + period, count = numbers[i + 3] }
end

local function encode(it)
  return string.format('%.0f %.0f %.0f %.0f', it.period, it.since, it.start, it.count)
end

local function new_count(ARGV, i, now)
  local period = tonumber(ARGV[i])
  return { period = period, since = 0, start = now, over = now + period, count = 0 }
end

local function is_same(it, other)
  return it.period == other.period
end

-- Takes over the count of the fullest window. It is open since that one's start, or since the last
-- recorded unit if that start is more than a period ago.
local function carry(it, others, last, now)
  for _, other in ipairs(others) do
    local from = now < other.start + it.period and other.start or last
    if now < from + it.period and other.count > 0 then
      if other.count > it.count or other.count == it.count and from > it.start then
        it.start, it.over, it.count = from, from + it.period, other.count
      end
    end
  end
end

-- A closed window is empty. After a clock has stepped back, one may start in the future: it is moved to now.
local function advance(it, _, now)
  local is_ahead = it.start > now
  it.start = math.min(it.start, now)
  if it.count == 0 or now >= it.start + it.period then
    it.start, it.count = now, 0
  end
  it.over = it.start + it.period
  return is_ahead
end
