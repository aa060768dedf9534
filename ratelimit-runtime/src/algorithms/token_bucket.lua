-- Token bucket: levels that are refilled continuously. `per_tier_rule.lua` and `quotients.lua`
-- come before.
--
-- Tier           whole numbers below 2^53: parts of one token, parts that each microsecond refills,
--                parts of a full bucket
-- Count          the numbers of the tier; since when tokens are taken from the bucket (0: from the
--                beginning); its level in parts
--
-- Rule: a call is admitted if and only if every bucket contains at least the tokens that it costs.
-- A bucket without a level is full. A level below 0 is the debt of calls that were settled above
-- their cost; it is one full bucket at most, and the rest is forgiven.
--
-- Invariant: each bucket is refilled at its deciding rate.

local is_whole = #numbers > 2 and #numbers % 5 == 2
if stored and not (is_whole and string.find(stored, '^b[%d%- ]+$')) then
  return redis.error_reply('WRONGTYPE the value is not a token bucket')
end
local saved = {}
for i = 3, #numbers, 5 do
  saved[#saved + 1] = {
    token = numbers[i],
    refill = numbers[i + 1],
    full = numbers[i + 2],
    since = numbers[i + 3],
    level = numbers[i + 4],
  }
end

local function encode(it)
  return string.format('%.0f %.0f %.0f %.0f %.0f', it.token, it.refill, it.full, it.since, it.level)
end

if op == LOWER then
  -- Only buckets that the tokens were taken from, at most until full.
  for _, it in ipairs(saved) do
    if it.since <= taken_at then
      it.level = math.min(it.level + cost * it.token, it.full)
    end
  end
  return nil, text_of('b', encode, last, saved)
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

local function raise(buckets, tokens)
  for _, it in ipairs(buckets) do
    it.level = bounded(it.level - tokens * it.token, it.full)
  end
end

-- The levels as of now. A clock that stepped back neither fills a bucket nor drains it.
local ahead, turn = last > now, 1
repeat
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
  if is_full then
    -- The same as an absent state, so that nothing taken before can be refunded.
    birth = turns and turns[turn + 2] or now
  end
  if turns and turn + 3 < #turns then
    raise(saved, cost)
    turn, last = turn + 3, now
    cost, now = turns[turn], turns[turn + 1]
  else
    turns = nil
  end
until not turns

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

if op == RAISE then
  if #saved == 0 then
    add(tonumber(ARGV[FIRST]), tonumber(ARGV[FIRST + 1]), tonumber(ARGV[FIRST + 2]))
    saved = buckets
  end
  local lasts = 0
  raise(saved, cost)
  for _, it in ipairs(saved) do
    lasts = math.max(lasts, until_level(it, it.full))
  end
  return nil, text_of('b', encode, now, saved), lasts
end

for i = FIRST, #ARGV, 3 do
  add(tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))
end

for index = 1, deciding do
  admitted = admitted and (cost == 0 or buckets[index].level >= cost * buckets[index].token)
end
local taken = admitted or count_rejected

local reset, tokens = 0, 0
for index = 1, deciding do
  local it = buckets[index]
  if taken then
    tokens = math.max(tokens, math.min(cost, divide_up(it.level, it.token)))
    take(it, cost)
  end
  local left = divide(math.max(it.level, 0), it.token)
  local leaves = until_level(it, (admitted and left + 1 or cost) * it.token)
  tier, remaining, wait = choose(admitted, index, left, leaves, tier, remaining, wait)
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

local text, lasts
if op == TAKE and (taken or ahead or is_new) then
  append_others(buckets, saved)
  lasts = reset
  for index = deciding + 1, #buckets do
    local it = buckets[index]
    take(it, tokens)
    lasts = math.max(lasts, until_level(it, it.full))
  end
  text = text_of('b', encode, now, buckets)
end

return { admitted and 1 or 0, tier, remaining, wait, reset, more, now, birth }, text, lasts, is_new
