-- Fixed window: for each period a count that ends one period after its first unit. `per_tier_rule.lua`
-- comes before.
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

local is_whole = #numbers > 2 and #numbers % 4 == 2
if stored and not (is_whole and string.find(stored, '^w[%d ]+$')) then
  return redis.error_reply('WRONGTYPE the value is not a fixed window')
end
local saved, by_period = {}, {}
for i = 3, #numbers, 4 do
  saved[#saved + 1] = {
    period = numbers[i],
    since = numbers[i + 1],
    start = numbers[i + 2],
    count = numbers[i + 3],
  }
  by_period[numbers[i]] = saved[#saved]
end

local function encode(it)
  return string.format('%.0f %.0f %.0f %.0f', it.period, it.since, it.start, it.count)
end

if op == LOWER then
  -- Only windows that were open then and still are.
  for _, it in ipairs(saved) do
    if it.since <= taken_at and it.start <= taken_at then
      it.count = math.max(it.count - cost, math.min(it.count, least or 0))
    end
  end
  return nil, text_of('w', encode, last, saved)
end

local function raise(windows, units)
  for _, it in ipairs(windows) do
    it.count = math.min(it.count + units, 4294967295)
  end
end

-- The windows as of now: a closed one is empty.
local ahead, turn = false, 1
repeat
  for _, it in ipairs(saved) do
    if it.start > now then
      -- After a clock has stepped back, a window may start in the future: it is moved to now.
      ahead, it.start = true, now
    end
    if it.count == 0 or now >= it.start + it.period then
      it.start, it.count = now, 0
    end
  end
  if turns and turn + 3 < #turns then
    raise(saved, cost)
    turn, last = turn + 3, now
    cost, now = turns[turn], turns[turn + 1]
  else
    turns = nil
  end
until not turns
last = math.min(last, now)

-- Adds the window of this period, unless it was added before. Without a stored one, a new window
-- takes over the count of the fullest stored one. It is open since that one's start, or since the
-- last recorded unit if that start is more than a period ago.
local windows, is_new = {}, false
local function add(period)
  local it = by_period[period]
  if it and it.is_added then
    return
  end
  if not it then
    -- A policy is counted from its first call on, even if that call is refused.
    is_new = true
    local start, count = now, 0
    for _, other in ipairs(saved) do
      local from = now < other.start + period and other.start or last
      if now < from + period and other.count > 0 then
        if other.count > count or other.count == count and from > start then
          start, count = from, other.count
        end
      end
    end
    local since = #saved > 0 and now or 0
    it = { period = period, since = since, start = start, count = count }
    by_period[period] = it
  end
  it.is_added = true
  windows[#windows + 1] = it
end

if op == RAISE then
  if #saved == 0 then
    add(tonumber(ARGV[FIRST]))
    saved = windows
  end
  local lasts = 0
  raise(saved, cost)
  for _, it in ipairs(saved) do
    lasts = math.max(lasts, it.start + it.period - now)
  end
  return nil, text_of('w', encode, now, saved), lasts
end

for i = FIRST, #ARGV, 2 do
  add(tonumber(ARGV[i]))
end

for index = 1, deciding do
  local it = windows[index]
  it.threshold = tonumber(ARGV[FIRST + 2 * index - 1])
  admitted = admitted and (cost == 0 or it.count + cost <= it.threshold)
end

local reset = 0
for index = 1, deciding do
  local it = windows[index]
  local full = it.count + cost > it.threshold
  if admitted then
    it.count = it.count + cost
  end
  local left = math.max(it.threshold - it.count, 0)
  it.ends = it.count > 0 and it.start + it.period - now or 0
  local leaves = (admitted or full) and it.ends or 0
  tier, remaining, wait = choose(admitted, index, left, leaves, tier, remaining, wait)
  reset = math.max(reset, it.ends)
end

local more = admitted and 0 or wait
if not admitted and cost > remaining + 1 then
  more = 0
  for index = 1, deciding do
    local it = windows[index]
    if it.count + remaining + 1 > it.threshold then
      more = math.max(more, it.ends)
    end
  end
end

local text, lasts
if op == TAKE and (admitted or ahead or is_new) then
  append_others(windows, saved)
  lasts = reset
  for index = deciding + 1, #windows do
    local it = windows[index]
    if admitted then
      it.count = math.min(it.count + cost, 4294967295)
    end
    lasts = math.max(lasts, it.count > 0 and it.start + it.period - now or 0)
  end
  text = text_of('w', encode, admitted and now or last, windows)
end

return { admitted and 1 or 0, tier, remaining, wait, reset, more, now, birth }, text, lasts, is_new
