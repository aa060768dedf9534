-- Fixed window: a count that starts anew a period after its first call, on one string.
--
-- KEYS[1]        the state: "w<birth> <last> <period> <since> <start> <count> ..": when it was
--                created and last written, and for each period since when it is counted (0: from
--                the beginning), and the start and the units of the window
-- ARGV[1]        1 to take, 0 to look without taking, or the microsecond at which units were taken
--                that are to be given back
-- ARGV[2]        cost: the units the call takes (0 only to look), or gives back
-- ARGV[3]        0: refused calls are never recorded
-- ARGV[4]        the birth of the state that units are given back to, otherwise 0
-- ARGV[5]        how many of the tiers decide; those after them are only counted
-- ARGV[6], [7]   a tier's period in microseconds and its threshold
-- ARGV[8], ..    the same for further tiers
-- Returns        {admitted, tier, remaining, wait, reset, more, now, birth}: 1 or 0, the index of
--                the tier spoken of, the units left in it, microseconds until the call is admitted
--                (or, admitted, until more than `remaining` can be had), until the full quota is
--                back, and, refused, until `remaining` + 1 units can be had, the microsecond of the
--                decision, and the state's birth; nothing when units are given back
--
-- Rule: a call is admitted if and only if for every tier the units in its open window plus the
-- call's cost are at most the threshold. A window is open from its first unit for one period.
--
-- Invariant: an open window counts every unit recorded since its start, whichever policy decides:
-- another one finds none of them missing.

local key, take, cost = KEYS[1], ARGV[1] == '1', tonumber(ARGV[2])
local own = tonumber(ARGV[5])

-- As many periods of other policies are counted; the ones decided by longest ago go.
local OTHERS = 8

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local stored, birth, last, held = redis.call('GET', key), now, now, {}
if stored then
  local numbers = {}
  for number in string.gmatch(stored, '%d+') do
    numbers[#numbers + 1] = tonumber(number)
  end
  if #numbers % 4 ~= 2 or #numbers < 6 or not string.find(stored, '^w[%d ]+$') then
    return redis.error_reply('WRONGTYPE the key holds no fixed window')
  end
  birth, last = numbers[1], numbers[2]
  for i = 3, #numbers, 4 do
    held[#held + 1] = {
      period = numbers[i],
      since = numbers[i + 1],
      start = numbers[i + 2],
      count = numbers[i + 3],
    }
  end
end

local function text(at, windows)
  local words = { string.format('w%.0f %.0f', birth, at) }
  for i, it in ipairs(windows) do
    words[i + 1] = string.format('%.0f %.0f %.0f %.0f', it.period, it.since, it.start, it.count)
  end
  return table.concat(words, ' ')
end

local given_back = tonumber(ARGV[1])
if given_back > 1 then
  -- To the windows that were open then, and still are, unless the state is another one by now.
  if stored and birth == tonumber(ARGV[4]) then
    for _, it in ipairs(held) do
      if it.since <= given_back and it.start <= given_back then
        it.count = math.max(it.count - cost, 0)
      end
    end
    redis.call('SET', key, text(last, held), 'KEEPTTL')
  end
  return {}
end

-- The windows as they are now: a closed one holds nothing.
local ahead = false
for _, it in ipairs(held) do
  if it.start > now then
    -- A clock that stepped back leaves a window in the future; from here on it is one of now.
    ahead, it.start = true, now
  end
  if it.count == 0 or now >= it.start + it.period then
    it.start, it.count = now, 0
  end
end
last = math.min(last, now)

-- Adds a window of this period, if there is none yet: the one that is held, or one that carries
-- over the fullest of the others, open since its start, or since the last unit, if that start is
-- too long ago.
local windows, is_new = {}, false
local function add(period)
  for _, it in ipairs(windows) do
    if it.period == period then
      return
    end
  end
  for _, it in ipairs(held) do
    if it.period == period then
      it.is_added = true
      windows[#windows + 1] = it
      return
    end
  end
  -- A policy is known from its first call on, also if that is refused.
  is_new = true
  local start, count = now, 0
  for _, it in ipairs(held) do
    local from = now < it.start + period and it.start or last
    if now < from + period and it.count > 0 then
      if it.count > count or it.count == count and from > start then
        start, count = from, it.count
      end
    end
  end
  local since = #held > 0 and now or 0
  windows[#windows + 1] = { period = period, since = since, start = start, count = count }
end
for i = 6, #ARGV, 2 do
  add(tonumber(ARGV[i]))
end

local admitted = true
for index = 1, own do
  local it = windows[index]
  it.threshold = tonumber(ARGV[2 * index + 5])
  admitted = admitted and (cost == 0 or it.count + cost <= it.threshold)
end

local tier, remaining, wait
local reset = 0
for index = 1, own do
  local it = windows[index]
  local full = it.count + cost > it.threshold
  if admitted then
    it.count = it.count + cost
  end
  local left = math.max(it.threshold - it.count, 0)
  it.ends = it.count > 0 and it.start + it.period - now or 0
  local leaves = (admitted or full) and it.ends or 0
  local closer = admitted and (not tier or left < remaining)
  if not tier or closer or leaves > wait and (left == remaining or not admitted) then
    tier, remaining, wait = index - 1, left, leaves
  end
  reset = math.max(reset, it.ends)
end

local more = admitted and 0 or wait
if not admitted and cost > remaining + 1 then
  more = 0
  for index = 1, own do
    local it = windows[index]
    if it.count + remaining + 1 > it.threshold then
      more = math.max(more, it.ends)
    end
  end
end

if take and (admitted or ahead or is_new) then
  for _, it in ipairs(held) do
    if not it.is_added and #windows < own + OTHERS then
      windows[#windows + 1] = it
    end
  end
  local lasts = reset
  for index = own + 1, #windows do
    local it = windows[index]
    if admitted then
      it.count = math.min(it.count + cost, 4294967295)
    end
    lasts = math.max(lasts, it.count > 0 and it.start + it.period - now or 0)
  end
  local ttl = math.floor(lasts / 1000) + 999
  redis.call('SET', key, text(admitted and now or last, windows), 'PX', ttl)
end

return { admitted and 1 or 0, tier, remaining, wait, reset, more, now, birth }
