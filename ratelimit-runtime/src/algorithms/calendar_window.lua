-- Calendar window: for each unit of the calendar (day, week, month) a count of the units in its last window.
--
-- Tier           nominal length of the unit, in microseconds; threshold; and four boundaries: the starts of
--                the previous window, of the present one and of the next, and the end of that, by the
--                clock of the client
-- Count          nominal length; since when it has the units of all charges (0: from the start of its window), if
--                it has taken over those of another one; that start, the end, and the units in it
--
-- Rule: a call is admitted if and only if the units in the window of the server's time plus the call's cost
-- are at most the threshold. Refused calls are never recorded. Under another zone the last window goes on.
--
-- Invariant: a window that is not over counts every unit recorded since its start, under any policy.

local KIND, PATTERN, LETTER, NUMBERS, ARGUMENTS = 'calendar window', '^m[%d ]+$', 'm', 5, 6
local COUNTS_REFUSED = false

local function decode(numbers, i)
  local since, start = numbers[i + 1], numbers[i + 2]
  since = since > 0 and since or start
  return { period = numbers[i], since = since, start = start, over = numbers[i + 3], count = numbers[i + 4] }, i + 5
end

local function encode(it)
  local since = it.since == it.start and 0 or it.since
  return string.format('%.0f %.0f %.0f %.0f %.0f', it.period, since, it.start, it.over, it.count)
end

-- Returns the window at now, of those that the tier from the i-th argument on names.
local function window_at(ARGV, i, now)
  for at = i + 2, i + 4 do
    local start, over = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
    if start <= now and now < over then
      return start, over
    end
  end
  error('the clocks of the client and of this server differ by more than a window')
end

local function new_count(ARGV, i, now)
  local start, over = window_at(ARGV, i, now)
  return { period = tonumber(ARGV[i]), since = start, start = start, over = over, count = 0 }
end

local function is_same(it, other)
  return it.period == other.period
end

-- Takes over the count of the fullest window that is not over.
local function carry(it, others)
  for _, other in ipairs(others) do
    if other.count > it.count then
      it.count, it.since = other.count, other.since
    end
  end
end

-- Empties a window that is over, also if the present one starts much later: the clock was set forward. An empty
-- one is replaced by the present one, and one that starts in the future too, with its units.
local function advance(it, _, now, ARGV, first)
  local is_ahead, start, over = it.start > now, it.start, it.over
  for i = first, #ARGV, ARGUMENTS do
    if tonumber(ARGV[i]) == it.period then
      start, over = window_at(ARGV, i, now)
    end
  end
  if now >= it.over or start > it.start + math.floor((it.over - it.start) / 2) then
    it.count = 0
  end
  if it.count == 0 or is_ahead then
    it.start, it.since, it.over = start, start, over
  end
  return is_ahead
end
