-- Fixed window: for each period a count that ends one period after its first unit.
--
-- Tier           period, in microseconds, and threshold
-- Count          period; since when it has the units of all charges (0: from the start of its window), if it has
--                taken over those of another one; that start, and the units in it
--
-- Rule: a call is admitted if and only if for every tier the units in its open window plus the
-- call's cost are at most the threshold. A window is open for one period from its first unit. Refused
-- calls are never recorded.
--
-- Invariant: an open window counts every unit recorded since its start, under any policy.

local KIND, PATTERN, LETTER, NUMBERS, ARGUMENTS = 'fixed window', '^w[%d ]+$', 'w', 4, 2
local COUNTS_REFUSED = false

local function decode(numbers, i)
  local period, since, start = numbers[i], numbers[i + 1], numbers[i + 2]
  since = since > 0 and since or start
  return { period = period, since = since, start = start, over = start + period, count = numbers[i + 3] }, i + 4
end

local function encode(it)
  local since = it.since == it.start and 0 or it.since
  return string.format('%.0f %.0f %.0f %.0f', it.period, since, it.start, it.count)
end

local function new_count(ARGV, i, now)
  local period = tonumber(ARGV[i])
  return { period = period, since = now, start = now, over = now + period, count = 0 }
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
        it.start, it.over, it.count, it.since = from, from + it.period, other.count, other.since
      end
    end
  end
end

-- A closed window is empty. After a clock has stepped back, one may start in the future: it is moved to now.
local function advance(it, _, now)
  local is_ahead = it.start > now
  it.start, it.since = math.min(it.start, now), math.min(it.since, now)
  if it.count == 0 or now >= it.start + it.period then
    it.start, it.since, it.count = now, now, 0
  end
  it.over = it.start + it.period
  return is_ahead
end
