-- Token bucket: levels that are refilled continuously, on one string.
--
-- KEYS[1]        the state: "b<birth> <last> <token> <refill> <full> <since> <level> ..": when it
--                was created and last written, and for each bucket its numbers as below, since when
--                it is taken from (0: from the beginning), and its level, in parts
-- ARGV[1]        1 to take, 0 to look without taking, or the microsecond at which tokens were taken
--                that are to be given back
-- ARGV[2]        cost: the tokens the call takes (0 only to look), or gives back
-- ARGV[3]        1 if refused calls are recorded too, otherwise 0
-- ARGV[4]        the birth of the state that tokens are given back to, otherwise 0
-- ARGV[5]        how many of the tiers decide; those after them are only counted
-- ARGV[6] .. [8] a tier's parts of one token, parts refilled each microsecond, parts of a full
--                bucket: whole numbers below 2^53
-- ARGV[9], ..    the same for further tiers
-- Returns        {admitted, tier, remaining, wait, reset, more, now, birth}: 1 or 0, the index of
--                the tier spoken of, the units left in it, microseconds until the call is admitted
--                (or, admitted, until more than `remaining` can be had), until the full quota is
--                back, and, refused, until `remaining` + 1 units can be had, the microsecond of the
--                decision, and the state's birth; nothing when tokens are given back
--
-- Rule: a call is admitted if and only if in every bucket there are as many tokens as it costs. A
-- bucket without a level is full.
--
-- Invariant: whichever policy decides, the tokens are taken from every bucket in the state, each of
-- which is refilled at its own rate: another policy finds none of them there.

local key, take, cost = KEYS[1], ARGV[1] == '1', tonumber(ARGV[2])
local count_rejected, own = ARGV[3] == '1', tonumber(ARGV[5])

-- As many buckets of other policies are taken from; the ones decided by longest ago go.
local OTHERS = 8

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- Whole quotients, exact up to 2^53: a plain division would round.
local function divide(a, b)
  return (a - a % b) / b
end

local function divide_up(a, b)
  local rest = a % b
  return (a - rest) / b + (rest > 0 and 1 or 0)
end

local stored, birth, last, held = redis.call('GET', key), now, now, {}
if stored then
  local numbers = {}
  for number in string.gmatch(stored, '%d+') do
    numbers[#numbers + 1] = tonumber(number)
  end
  if #numbers % 5 ~= 2 or #numbers < 7 or not string.find(stored, '^b[%d ]+$') then
    return redis.error_reply('WRONGTYPE the key holds no token bucket')
  end
  birth, last = numbers[1], numbers[2]
  for i = 3, #numbers, 5 do
    held[#held + 1] = {
      token = numbers[i],
      refill = numbers[i + 1],
      full = numbers[i + 2],
      since = numbers[i + 3],
      level = numbers[i + 4],
    }
  end
end

local function text(at, buckets)
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

local given_back = tonumber(ARGV[1])
if given_back > 1 then
  -- To the buckets that they were taken from, as many as there is room for, unless the state is
  -- another one by now.
  if stored and birth == tonumber(ARGV[4]) then
    for _, it in ipairs(held) do
      if it.since <= given_back then
        it.level = math.min(it.level + cost * it.token, it.full)
      end
    end
    redis.call('SET', key, text(last, held), 'KEEPTTL')
  end
  return {}
end

-- The levels as they are now. A clock that stepped back neither fills a bucket nor drains it.
local elapsed, is_full = math.max(now - last, 0), true
for _, it in ipairs(held) do
  -- Time enough to fill the bucket is told first: the product stays exact.
  if elapsed >= divide_up(it.full - it.level, it.refill) then
    it.level = it.full
  else
    it.level = it.level + elapsed * it.refill
  end
  is_full = is_full and it.level == it.full
end
local ahead = last > now
if is_full then
  -- As if nothing had ever been taken: there is nothing to give back either.
  birth = now
end

-- Adds a bucket of these numbers, if there is none yet: the one that is held, or one with the fewest
-- whole tokens that are in any of the others.
local buckets, is_new = {}, false
local function add(token, refill, full)
  for _, it in ipairs(buckets) do
    if it.token == token and it.refill == refill and it.full == full then
      return
    end
  end
  for _, it in ipairs(held) do
    if it.token == token and it.refill == refill and it.full == full then
      it.is_added = true
      buckets[#buckets + 1] = it
      return
    end
  end
  -- A policy is known from its first call on, also if that is refused.
  is_new = true
  local level = full
  for _, it in ipairs(held) do
    level = math.min(level, divide(it.level, it.token) * token)
  end
  local since = #held > 0 and now or 0
  buckets[#buckets + 1] =
    { token = token, refill = refill, full = full, since = since, level = level }
end
for i = 6, #ARGV, 3 do
  add(tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))
end

local admitted = true
for index = 1, own do
  admitted = admitted and buckets[index].level >= cost * buckets[index].token
end
local taken = admitted or count_rejected

local function until_level(it, wanted)
  return divide_up(math.max(math.min(wanted, it.full) - it.level, 0), it.refill)
end

local tier, remaining, wait
local reset, tokens = 0, 0
for index = 1, own do
  local it = buckets[index]
  if taken then
    tokens = math.max(tokens, math.min(cost, divide_up(it.level, it.token)))
    it.level = math.max(it.level - cost * it.token, 0)
  end
  local left = divide(it.level, it.token)
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
  for index = 1, own do
    local it = buckets[index]
    more = math.max(more, until_level(it, (remaining + 1) * it.token))
  end
end

if take and (taken or ahead or is_new) then
  for _, it in ipairs(held) do
    if not it.is_added and #buckets < own + OTHERS then
      buckets[#buckets + 1] = it
    end
  end
  local lasts = reset
  for index = own + 1, #buckets do
    local it = buckets[index]
    it.level = math.max(it.level - tokens * it.token, 0)
    lasts = math.max(lasts, until_level(it, it.full))
  end
  local ttl = math.floor(lasts / 1000) + 999
  redis.call('SET', key, text(now, buckets), 'PX', ttl)
end

return { admitted and 1 or 0, tier, remaining, wait, reset, more, now, birth }
