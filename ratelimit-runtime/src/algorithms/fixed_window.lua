-- Fixed window: for each period a count that ends one period after its first unit, on one string.
--
-- KEYS[1]        the state: "w<birth> <last> <period> <since> <start> <count> ..": when it was
--                created and last written, in microseconds; and for each period since when it is
--                counted (0: from the beginning), the start of its window, and the units in it
-- ARGV[1]        op: 0 peeks, 1 takes, 2 settles, which has other arguments after the first
-- ARGV[2]        cost: the units to take; 0 only in a peek
-- ARGV[3]        0: refused calls are never recorded
-- ARGV[4], [5]   0
-- ARGV[6]        number of tiers that decide; further ones are only counted
-- ARGV[7], [8]   period of the first tier, in microseconds, and its threshold
-- ARGV[9], ..    the same for further tiers
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
-- Rule: a call is admitted if and only if for every tier the units in its open window plus the
-- call's cost are at most the threshold. A window is open for one period from its first unit.
--
-- Invariant: an open window counts every unit recorded since its start, under any policy. So no
-- policy misses units that were taken under another one.

local TAKE, SETTLE = '1', '2'
local key, op, cost = KEYS[1], ARGV[1], tonumber(ARGV[2])
local deciding = tonumber(ARGV[6])

-- Periods of other policies that are counted too; beyond, the least recently used are dropped.
local OTHERS = 8

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local stored, birth, last, saved = redis.call('GET', key), now, now, {}
if stored then
  local numbers = {}
  for number in string.gmatch(stored, '%d+') do
    numbers[#numbers + 1] = tonumber(number)
  end
  if #numbers % 4 ~= 2 or #numbers < 6 or not string.find(stored, '^w[%d ]+$') then
    return redis.error_reply('WRONGTYPE the value is not a fixed window')
  end
  birth, last = numbers[1], numbers[2]
  for i = 3, #numbers, 4 do
    saved[#saved + 1] = {
      period = numbers[i],
      since = numbers[i + 1],
      start = numbers[i + 2],
      count = numbers[i + 3],
    }
  end
end

local function encode(at, windows)
  local words = { string.format('w%.0f %.0f', birth, at) }
  for i, it in ipairs(windows) do
    words[i + 1] = string.format('%.0f %.0f %.0f %.0f', it.period, it.since, it.start, it.count)
  end
  return table.concat(words, ' ')
end

-- Writes the state, which decides like an absent one after this many microseconds.
local function save(at, windows, lasts)
  local ttl = math.floor(lasts / 1000) + 999
  redis.call('SET', key, encode(at, windows), 'PX', ttl)
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
    -- Only windows that were open then and still are.
    for _, it in ipairs(saved) do
      if it.since <= taken_at and it.start <= taken_at then
        it.count = math.max(it.count + raised, 0)
      end
    end
    redis.call('SET', key, encode(last, saved), 'KEEPTTL')
    return {}
  end
end

-- The windows as of now: a closed one is empty.
local ahead = false
for _, it in ipairs(saved) do
  if it.start > now then
    -- After a clock has stepped back, a window may start in the future: it is moved to now.
    ahead, it.start = true, now
  end
  if it.count == 0 or now >= it.start + it.period then
    it.start, it.count = now, 0
  end
end
last = math.min(last, now)

-- Adds the window of this period, unless it was added before. Without a stored one, a new window
-- takes over the count of the fullest stored one. It is open since that one's start, or since the
-- last recorded unit if that start is more than a period ago.
local windows, is_new = {}, false
local function add(period)
  for _, it in ipairs(windows) do
    if it.period == period then
      return
    end
  end
  for _, it in ipairs(saved) do
    if it.period == period then
      it.is_added = true
      windows[#windows + 1] = it
      return
    end
  end
  -- A policy is counted from its first call on, even if that call is refused.
  is_new = true
  local start, count = now, 0
  for _, it in ipairs(saved) do
    local from = now < it.start + period and it.start or last
    if now < from + period and it.count > 0 then
      if it.count > count or it.count == count and from > start then
        start, count = from, it.count
      end
    end
  end
  local since = #saved > 0 and now or 0
  windows[#windows + 1] = { period = period, since = since, start = start, count = count }
end

if raised then
  if #saved == 0 then
    add(tonumber(ARGV[9]))
    saved = windows
  end
  local lasts = 0
  for _, it in ipairs(saved) do
    it.count = math.min(it.count + raised, 4294967295)
    lasts = math.max(lasts, it.start + it.period - now)
  end
  save(now, saved, lasts)
  return {}
end

for i = 7, #ARGV, 2 do
  add(tonumber(ARGV[i]))
end

local admitted = true
for index = 1, deciding do
  local it = windows[index]
  it.threshold = tonumber(ARGV[2 * index + 6])
  admitted = admitted and (cost == 0 or it.count + cost <= it.threshold)
end

local tier, remaining, wait
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
  local closer = admitted and (not tier or left < remaining)
  if not tier or closer or leaves > wait and (left == remaining or not admitted) then
    tier, remaining, wait = index - 1, left, leaves
  end
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

if op == TAKE and (admitted or ahead or is_new) then
  for _, it in ipairs(saved) do
    if not it.is_added and #windows < deciding + OTHERS then
      windows[#windows + 1] = it
    end
  end
  local lasts = reset
  for index = deciding + 1, #windows do
    local it = windows[index]
    if admitted then
      it.count = math.min(it.count + cost, 4294967295)
    end
    lasts = math.max(lasts, it.count > 0 and it.start + it.period - now or 0)
  end
  save(admitted and now or last, windows, lasts)
end

return { admitted and 1 or 0, tier, remaining, wait, reset, more, now, birth }
