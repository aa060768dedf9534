-- Token bucket: levels that are refilled continuously, on one string.
--
-- KEYS[1]        the state: "b<birth> <last> <token> <refill> <full> <since> <level> ..": when it
--                was created and last written, in microseconds; and for each bucket its numbers
--                as below, since when it is taken from (0: from the beginning), its level in parts
-- ARGV[1]        op: 0 peeks, 1 takes, 2 settles, which has other arguments after the first
-- ARGV[2]        cost: the tokens to take; 0 only in a peek
-- ARGV[3]        1 if refused calls are recorded too, otherwise 0
-- ARGV[4], [5]   0
-- ARGV[6]        number of tiers that decide; further ones are only taken from
-- ARGV[7] .. [9] numbers of the first tier, whole and below 2^53: parts of one token, parts that
--                each microsecond refills, parts of a full bucket
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
-- ARGV[2], [3]   tokens that the call took, and tokens that it takes instead
-- ARGV[4]        birth of the state that they were taken from
-- ARGV[5]        microsecond at which they were taken
-- ARGV[6], [7]   number of the settle, and microseconds for which it is kept
-- ARGV[8]        microsecond before which the state cannot have expired
-- ARGV[9], ..    numbers of a tier, as from ARGV[7] on
--
-- A settle is applied once. Fewer tokens are those of the call no more; nothing happens after a reset.
-- More tokens are taken now, whatever room there is, also if the state has expired meanwhile.
--
-- Rule: a call is admitted if and only if every bucket contains at least the tokens that it costs.
-- A bucket without a level is full. A level below 0 is the debt of calls that were settled above
-- their cost; it is one full bucket at most, and the rest is forgiven.
--
-- Invariant: tokens are taken from every bucket in the state, under any policy, and each bucket is
-- refilled at its deciding rate. So no policy finds tokens that were taken under another one.

local TAKE, SETTLE = '1', '2'
local key, op, cost = KEYS[1], ARGV[1], tonumber(ARGV[2])
local count_rejected, deciding = ARGV[3] == '1', tonumber(ARGV[6])

-- Buckets of other policies that are taken from too; beyond, the least recently used are dropped.
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
  for number in string.gmatch(stored, '%-?%d+') do
    numbers[#numbers + 1] = tonumber(number)
  end
  if #numbers % 5 ~= 2 or #numbers < 7 or not string.find(stored, '^b[%d%- ]+$') then
    return redis.error_reply('WRONGTYPE the value is not a token bucket')
  end
  birth, last = numbers[1], numbers[2]
  for i = 3, #numbers, 5 do
    saved[#saved + 1] = {
      token = numbers[i],
      refill = numbers[i + 1],
      full = numbers[i + 2],
      since = numbers[i + 3],
      level = numbers[i + 4],
    }
  end
end

local function encode(at, buckets)
  local words = { string.format('b%.0f %.0f', birth, at) }
  for i, it in ipairs(buckets) do
    words[i + 1] = string.format(
      '%.0f %.0f %.0f %.0f %.0f',
      it.token,
      it.refill,
      it.full,
      it.since,
      it.level
    )
  end
  return table.concat(words, ' ')
end

-- Writes the state, which decides like an absent one after this many microseconds.
local function save(at, buckets, lasts)
  local ttl = math.floor(lasts / 1000) + 999
  redis.call('SET', key, encode(at, buckets), 'PX', ttl)
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
    -- Only buckets that the tokens were taken from, at most until full.
    for _, it in ipairs(saved) do
      if it.since <= taken_at then
        it.level = math.min(it.level - raised * it.token, it.full)
      end
    end
    redis.call('SET', key, encode(last, saved), 'KEEPTTL')
    return {}
  end
end

-- Returns a level that is not above a full bucket and not below its largest debt. Both together are
-- at most 2^53.
local function bounded(level, full)
  return math.min(math.max(level, -math.min(full, 9007199254740992 - full)), full)
end

-- Takes tokens as far as there are any. A debt stays as it is.
local function take(it, tokens)
  it.level = math.max(it.level - tokens * it.token, math.min(it.level, 0))
end

-- The levels as of now. A clock that stepped back neither fills a bucket nor drains it.
local elapsed, is_full = math.max(now - last, 0), true
for _, it in ipairs(saved) do
  -- The full bucket is recognised by time first, so that the product stays exact.
  if elapsed >= divide_up(it.full - it.level, it.refill) then
    it.level = it.full
  else
    it.level = it.level + elapsed * it.refill
  end
  is_full = is_full and it.level == it.full
end
local ahead = last > now
if is_full then
  -- The same as an absent state, so that nothing taken before can be refunded.
  birth = now
end

-- Adds the bucket of these numbers, unless it was added before. Without a stored one, a new bucket
-- has as many whole tokens as the emptiest stored one.
local buckets, is_new = {}, false
local function add(token, refill, full)
  for _, it in ipairs(buckets) do
    if it.token == token and it.refill == refill and it.full == full then
      return
    end
  end
  for _, it in ipairs(saved) do
    if it.token == token and it.refill == refill and it.full == full then
      it.is_added = true
      buckets[#buckets + 1] = it
      return
    end
  end
  -- A policy is counted from its first call on, even if that call is refused.
  is_new = true
  local level = full
  for _, it in ipairs(saved) do
    level = math.min(level, bounded(divide(it.level, it.token) * token, full))
  end
  local since = #saved > 0 and now or 0
  buckets[#buckets + 1] =
    { token = token, refill = refill, full = full, since = since, level = level }
end

-- Returns the microseconds until the bucket has these parts, or is full.
local function until_level(it, wanted)
  return divide_up(math.max(math.min(wanted, it.full) - it.level, 0), it.refill)
end

if raised then
  if #saved == 0 then
    add(tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11]))
    saved = buckets
  end
  local lasts = 0
  for _, it in ipairs(saved) do
    it.level = bounded(it.level - raised * it.token, it.full)
    lasts = math.max(lasts, until_level(it, it.full))
  end
  save(now, saved, lasts)
  return {}
end

for i = 7, #ARGV, 3 do
  add(tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))
end

local admitted = true
for index = 1, deciding do
  admitted = admitted and (cost == 0 or buckets[index].level >= cost * buckets[index].token)
end
local taken = admitted or count_rejected

local tier, remaining, wait
local reset, tokens = 0, 0
for index = 1, deciding do
  local it = buckets[index]
  if taken then
    tokens = math.max(tokens, math.min(cost, divide_up(it.level, it.token)))
    take(it, cost)
  end
  local left = divide(math.max(it.level, 0), it.token)
  local leaves = until_level(it, (admitted and left + 1 or cost) * it.token)
  local closer = admitted and (not tier or left < remaining)
  if not tier or closer or leaves > wait and (left == remaining or not admitted) then
    tier, remaining, wait = index - 1, left, leaves
  end
  reset = math.max(reset, until_level(it, it.full))
end

local more = admitted and 0 or wait
if not admitted and cost > remaining + 1 then
  more = 0
  for index = 1, deciding do
    local it = buckets[index]
    more = math.max(more, until_level(it, (remaining + 1) * it.token))
  end
end

if op == TAKE and (taken or ahead or is_new) then
  for _, it in ipairs(saved) do
    if not it.is_added and #buckets < deciding + OTHERS then
      buckets[#buckets + 1] = it
    end
  end
  local lasts = reset
  for index = deciding + 1, #buckets do
    local it = buckets[index]
    take(it, tokens)
    lasts = math.max(lasts, until_level(it, it.full))
  end
  save(now, buckets, lasts)
end

return { admitted and 1 or 0, tier, remaining, wait, reset, more, now, birth }
