-- Sliding counter: for each period two adjacent windows, the earlier one weighted, on one string.
--
-- KEYS[1]        the state: "c<birth> <last> <period> <since> <previous> <current> ..": when it was
--                created and last written, in microseconds; and for each period since when it is
--                counted (0: from the beginning), the units of the window that contains `last`, and
--                before them those of the window before
-- ARGV[1]        op: 0 peeks, 1 takes, 2 settles, which has other arguments after the first
-- ARGV[2]        cost: the units to take; 0 only in a peek
-- ARGV[3]        1 if refused calls are recorded too, otherwise 0
-- ARGV[4], [5]   0
-- ARGV[6]        number of tiers that decide; further ones are only counted
-- ARGV[7] .. [9] period of the first tier, in microseconds, its threshold, and its tick, the fewest
--                microseconds with which threshold * (period in ticks) is at most 2^53
-- ARGV[10], ..   the same for further tiers
-- Returns        {admitted, tier, remaining, wait, reset, more, now, birth}; {} for a settle
--   admitted     1 or 0
--   tier         index of the tier that is reported: of a refusal the one with the longest wait, of
--                an admission the one with the fewest units left
--   remaining    units left in that tier
--   wait         microseconds until the same call is admitted, or, if this one was, until more than
--                `remaining` units are available
--   reset        microseconds until the full quota is available
--   more         microseconds until `remaining` + 1 units are available; 0 if the call was admitted
--   now          microsecond of the decision
--   birth        microsecond at which the state was created
--
-- To settle:
-- KEYS[2]        the settles of late: their numbers, each with the microsecond until which it is kept
-- ARGV[2], [3]   units that the call took, and units that it takes instead
-- ARGV[4]        birth of the state that they were taken from
-- ARGV[5]        microsecond at which they were taken
-- ARGV[6], [7]   number of the settle, and microseconds for which it is kept
-- ARGV[8]        microsecond before which the state cannot have expired
-- ARGV[9], ..    numbers of a tier, as from ARGV[7] on
--
-- A settle is applied once. Fewer units are those of the call no more; nothing happens after a reset.
-- More units are taken now, whatever room there is, also if the state has expired meanwhile.
--
-- Rule: a call is admitted if and only if for every tier previous * (time left in the current
-- window) / period + current + cost is at most the threshold. All products are exact.
--
-- Invariant: for every period in the state, `current` is at least the units recorded in its window,
-- and `previous` + `current` at least those in both windows, as far back as the state goes. Units
-- count for every period in the state, under any policy. So no policy misses units that were taken
-- under another one.

local TAKE, SETTLE = '1', '2'
local key, op, cost = KEYS[1], ARGV[1], tonumber(ARGV[2])
local count_rejected, deciding = ARGV[3] == '1', tonumber(ARGV[6])

-- Periods of other policies that are counted too; beyond, the least recently used are dropped.
local OTHERS = 8

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- Whole quotients, exact up to 2^53; a plain division would round.
local function divide(a, b)
  return (a - a % b) / b
end

local function divide_up(a, b)
  local rest = a % b
  return (a - rest) / b + (rest > 0 and 1 or 0)
end

local stored, birth, last, saved = redis.call('GET', key), now, now, {}
if stored then
  local numbers = {}
  for number in string.gmatch(stored, '%d+') do
    numbers[#numbers + 1] = tonumber(number)
  end
  if #numbers % 4 ~= 2 or #numbers < 6 or not string.find(stored, '^c[%d ]+$') then
    return redis.error_reply('WRONGTYPE the value is not a sliding counter')
  end
  birth, last = numbers[1], numbers[2]
  for i = 3, #numbers, 4 do
    saved[#saved + 1] = {
      period = numbers[i],
      since = numbers[i + 1],
      previous = numbers[i + 2],
      current = numbers[i + 3],
    }
  end
end

local function encode(at, counters)
  local words = { string.format('c%.0f %.0f', birth, at) }
  for i, it in ipairs(counters) do
    words[i + 1] =
      string.format('%.0f %.0f %.0f %.0f', it.period, it.since, it.previous, it.current)
  end
  return table.concat(words, ' ')
end

-- Writes the state, which decides like an absent one after this many microseconds.
local function save(at, counters, lasts)
  local ttl = math.floor(lasts / 1000) + 999
  redis.call('SET', key, encode(at, counters), 'PX', ttl)
end

local raised
if op == SETTLE then
  local is_same, taken_at = stored and birth == tonumber(ARGV[4]), tonumber(ARGV[5])
  raised = ARGV[3] - cost
  if not is_same and (raised <= 0 or now < tonumber(ARGV[8])) then
    return {}
  end
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
  if redis.call('ZADD', KEYS[2], 'NX', now + ARGV[7], ARGV[6]) == 0 then
    return {}
  end
  local latest = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
  redis.call('PEXPIRE', KEYS[2], math.floor((latest - now) / 1000) + 999)
  if raised <= 0 then
    -- Only windows that counted the units.
    for _, it in ipairs(saved) do
      local start, counted = last - last % it.period, taken_at - taken_at % it.period
      if it.since <= taken_at and counted == start then
        it.current = math.max(it.current + raised, 0)
      elseif it.since <= taken_at and counted + it.period == start then
        it.previous = math.max(it.previous + raised, 0)
      end
    end
    redis.call('SET', key, encode(last, saved), 'KEEPTTL')
    return {}
  end
end

-- The windows as of now.
local ahead = false
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
  for _, it in ipairs(counters) do
    if it.period == period then
      return
    end
  end
  for _, it in ipairs(saved) do
    if it.period == period then
      it.is_added = true
      counters[#counters + 1] = it
      return
    end
  end
  -- A policy is counted from its first call on, even if that call is refused.
  is_new = true
  local start = now - now % period
  local current = recorded_since(start)
  counters[#counters + 1] = {
    period = period,
    since = #saved > 0 and now or 0,
    previous = math.max(recorded_since(start - period) - current, 0),
    current = current,
  }
end

if raised then
  if #saved == 0 then
    add(tonumber(ARGV[9]))
    saved = counters
  end
  local lasts = 0
  for _, it in ipairs(saved) do
    it.current = math.min(it.current + raised, 4294967295)
    lasts = math.max(lasts, 2 * it.period - now % it.period)
  end
  save(now, saved, lasts)
  return {}
end

for i = 7, #ARGV, 3 do
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

local admitted = true
for index = 1, deciding do
  local it = counters[index]
  it.threshold, it.tick = tonumber(ARGV[3 * index + 5]), tonumber(ARGV[3 * index + 6])
  it.start, it.ticks = now - now % it.period, divide(it.period, it.tick)
  -- Units beyond this number add no weight, so that all products stay exact.
  it.exact = divide(9007199254740992, it.ticks)
  admitted = admitted and (cost == 0 or used(it) + cost <= it.threshold)
end
local taken = admitted or count_rejected

local tier, remaining, wait
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
  local closer = admitted and (not tier or left < remaining)
  if not tier or closer or leaves > wait and (left == remaining or not admitted) then
    tier, remaining, wait = index - 1, left, leaves
  end
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

if op == TAKE and (taken or ahead or is_new) then
  for _, it in ipairs(saved) do
    if not it.is_added and #counters < deciding + OTHERS then
      counters[#counters + 1] = it
    end
  end
  local lasts = reset
  for index = deciding + 1, #counters do
    local it = counters[index]
    it.current = math.min(it.current + grown, 4294967295)
    local windows = it.current > 0 and 2 or it.previous > 0 and 1 or 0
    lasts = math.max(lasts, windows * it.period - now % it.period)
  end
  save(now, counters, lasts)
end

return { admitted and 1 or 0, tier, remaining, wait, reset, more, now, birth }
