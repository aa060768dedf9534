-- Token bucket: one level for each tier, refilled continuously, on one string.
--
-- KEYS[1]        the buckets: "updated level token level token ..": the microsecond they were last
--                taken from, and for each tier its level and the size of a token, both in parts
-- ARGV[1]        1 to take, 0 to look without taking, or the microsecond at which tokens were taken
--                that are to be given back
-- ARGV[2]        cost: the tokens the call takes (0 only to look), or gives back
-- ARGV[3]        1 if refused calls are recorded too, otherwise 0
-- ARGV[4] .. [6] a tier's parts of one token, parts refilled each microsecond, parts of a full
--                bucket: whole numbers below 2^53
-- ARGV[7], ..    the same for further tiers
-- Returns        {admitted, tier, remaining, wait, reset, more, now}: 1 or 0, the index of the tier
--                spoken of, the units left in it, microseconds until the call is admitted (or,
--                admitted, until more than `remaining` can be had), until the full quota is back,
--                and, refused, until `remaining` + 1 units can be had, and the microsecond of the
--                decision; nothing when tokens are given back
--
-- Rule: a call is admitted if and only if in every bucket there are as many tokens as it costs. A
-- bucket without a level is full.

local key, take, cost, count_rejected = KEYS[1], ARGV[1] == '1', tonumber(ARGV[2]), ARGV[3] == '1'

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

local stored, numbers = redis.call('GET', key), {}
if stored then
  for number in string.gmatch(stored, '%d+') do
    numbers[#numbers + 1] = tonumber(number)
  end
  if #numbers % 2 == 0 or string.find(stored, '[^%d ]') then
    return redis.error_reply('WRONGTYPE the key holds no token bucket')
  end
end

if tonumber(ARGV[1]) > 1 then
  -- As many as there is room for; at another rate they are the tokens of another time.
  local buckets = { string.format('%.0f', numbers[1] or now) }
  for i = 2, #numbers, 2 do
    local at = 3 * i / 2 + 1
    local level, token, full = numbers[i], tonumber(ARGV[at]), tonumber(ARGV[at + 2])
    if numbers[i + 1] == token then
      level = math.min(level + cost * token, full)
    end
    buckets[#buckets + 1] = string.format('%.0f %.0f', level, numbers[i + 1])
  end
  if stored then
    redis.call('SET', key, table.concat(buckets, ' '), 'KEEPTTL')
  end
  return {}
end

local updated = numbers[1] or now
-- A clock that stepped back neither fills a bucket nor drains it.
local elapsed = math.max(now - updated, 0)

local admitted, levels = true, {}
for i = 4, #ARGV, 3 do
  local token, refill, full = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local at = 2 * (i - 4) / 3 + 2
  local level, was = numbers[at] or full, numbers[at + 1] or token
  if was ~= token and was > 0 then
    -- At another rate the parts mean something else: the whole tokens are kept.
    level = math.min(divide(level, was) * token, full)
  end
  -- Time enough to fill the bucket is told first: the product stays exact.
  if elapsed >= divide_up(math.max(full - level, 0), refill) then
    level = full
  else
    level = level + elapsed * refill
  end
  levels[i] = level
  admitted = admitted and level >= cost * token
end
local taken = admitted or count_rejected

local tier, remaining, wait
local reset, buckets = 0, { string.format('%.0f', now) }
for i = 4, #ARGV, 3 do
  local token, refill, full = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  if taken then
    levels[i] = math.max(levels[i] - cost * token, 0)
  end
  local level = levels[i]
  local left = divide(level, token)
  local wanted = admitted and math.min((left + 1) * token, full) or cost * token
  local leaves = divide_up(math.max(wanted - level, 0), refill)
  local closer = admitted and (not tier or left < remaining)
  if not tier or closer or leaves > wait and (left == remaining or not admitted) then
    tier, remaining, wait = (i - 4) / 3, left, leaves
  end
  reset = math.max(reset, divide_up(full - level, refill))
  buckets[#buckets + 1] = string.format('%.0f %.0f', level, token)
end

local more = admitted and 0 or wait
if not admitted and cost > remaining + 1 then
  more = 0
  for i = 4, #ARGV, 3 do
    local token, refill, full = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
    local wanted = math.min((remaining + 1) * token, full)
    more = math.max(more, divide_up(math.max(wanted - levels[i], 0), refill))
  end
end

if take and (taken or updated > now) then
  local ttl = math.floor(reset / 1000) + 999
  redis.call('SET', key, table.concat(buckets, ' '), 'PX', ttl)
end

return { admitted and 1 or 0, tier, remaining, wait, reset, more, now }
