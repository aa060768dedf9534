-- Calendar window: for each unit of the calendar (day, week, month) a count of the units in its last window.
--
-- Tier           nominal length of the unit, in microseconds; threshold; and four boundaries: the starts of
--                the previous window, of the present one and of the next, and the end of that, by the
--                clock of the client
-- Count          nominal length; since when it has the units of all charges (0: from the start of its window), if
--                it has taken over those of another one; that start, the end, and the units in it; the first end
--                of it that a client has named, 0 if all named the same, and the units recorded before that end,
--                once it is past
--
-- Rule: a call is admitted if and only if the units in the window of the server's time plus the call's cost
-- are at most the threshold. Refused calls are never recorded. Under another zone the last window goes on.
--
-- Clients with different databases of zones name different ends. The window lasts until the last of these, and
-- the next one counts from the first: units between both count in both.
--
-- Invariant: a window that is not over counts every unit recorded since its start, under any policy. A month
-- counts them from the first call of its own policy on.

local KIND, PATTERN, LETTER, NUMBERS, ARGUMENTS = 'calendar window', '^m[%d ]+$', 'm', 7, 6
local COUNTS_REFUSED, SHORTEST_MONTH = false, 28 * 86400000000

local function decode(numbers, i)
  local since, start = numbers[i + 1], numbers[i + 2]
  since = since > 0 and since or start
  return {
    period = numbers[i], since = since, start = start, over = numbers[i + 3], count = numbers[i + 4],
    turn = numbers[i + 5], early = numbers[i + 6],
  }, i + 7
end

local function encode(it)
  local text, since = '%.0f %.0f %.0f %.0f %.0f %.0f %.0f', it.since == it.start and 0 or it.since
  return string.format(text, it.period, since, it.start, it.over, it.count, it.turn, it.early)
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
  return { period = tonumber(ARGV[i]), since = start, start = start, over = over, count = 0, turn = 0, early = 0 }
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

-- Notes the first end of a window for which a client names another end, or in which its next one has started.
-- Returns true if it was not known.
local function note_ends(it, start, over, half)
  local turn, last = start, it.over
  if math.abs(start - it.start) <= half then
    -- Past its first end, a window is named by nobody: from then on it ends as noted.
    if over == it.over or it.turn == it.start then
      return false
    end
    turn, last = math.min(over, it.over), math.max(over, it.over)
  elseif start <= it.start or start >= it.over then
    return false
  end
  if it.turn > 0 then
    turn = math.min(it.turn, turn)
  end
  local is_new = turn ~= it.turn or last ~= it.over
  it.turn, it.over = turn, last
  return is_new
end

-- Empties a window that is over, but for the units that are those of the next one as well. An empty window is
-- replaced by the present one, and one that starts in the future too, with its units. Returns true for that, and if
-- another end became known, which a refused call writes too.
local function advance(it, _, now, ARGV, first)
  local is_ahead, start, over = it.start > now, it.start, it.over
  if now >= over and it.period < SHORTEST_MONTH then
    -- Unless a client names the next day or week, it has the nominal length. A month has none.
    start = now - (now - over) % it.period
    over = start + it.period
  end
  for i = first, #ARGV, ARGUMENTS do
    if tonumber(ARGV[i]) == it.period then
      start, over = window_at(ARGV, i, now)
    end
  end
  if it.count == 0 or is_ahead then
    it.start, it.since, it.over, it.turn, it.early = start, start, over, 0, 0
    return is_ahead
  end
  local half = math.floor((over - start) / 2)
  is_ahead = note_ends(it, start, over, half)
  if it.turn > it.start and now >= it.turn then
    it.start, it.early = it.turn, it.count
  end
  if now >= it.over then
    local goes_on = it.turn == it.start and now < over and math.abs(start - it.start) <= half
    it.count = goes_on and it.count - it.early or 0
    it.start, it.over, it.turn, it.early = goes_on and it.start or start, over, 0, 0
    it.since = it.start
  end
  return is_ahead
end

-- In place of the function in `window_units.lua`, by which calls wait. Units that count in the next window too last
-- until that is over, which is at most an hour longer than its nominal length.
local function lasts_for(it, now)
  local over = it.over
  if it.turn == it.start and it.count > it.early then
    over = over + it.period + 3600000000
  end
  return it.count > 0 and math.max(over - now, 0) or 0
end

-- In place of the function in `window_units.lua`. Units from before the first end are fewer early ones too.
local lower_window = lower

local function lower(it, units, at, last, least)
  local before = it.count
  lower_window(it, units, at, last, least)
  if at < it.start then
    it.early = math.max(it.early - (before - it.count), 0)
  end
end
