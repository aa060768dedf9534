-- Token bucket: levels that are refilled continuously.
--
-- Tier           whole numbers below 2^53: parts of one token, parts that each microsecond refills,
--                parts of a full bucket; tokens that calls leave, which stay in the bucket
-- Count          the numbers of the tier; since when tokens are taken from the bucket (0: from the
--                beginning); its level in parts
--
-- Rule: a call is admitted if and only if every bucket contains at least the tokens that it costs and leaves.
-- A bucket without a level is full. A level below 0 is the debt of calls that were settled above
-- their cost; it is one full bucket at most, and the rest is forgiven.
--
-- Invariant: each bucket is refilled at its deciding rate.

local KIND, PATTERN, LETTER, NUMBERS, ARGUMENTS = 'token bucket', '^b[%d%- ]+$', 'b', 5, 4
local COUNTS_REFUSED = true

local function decode(numbers, i)
  local it = { token = numbers[i], refill = numbers[i + 1], full = numbers[i + 2] }
  it.since, it.level = numbers[i + 3], numbers[i + 4]
  return it
end

local function encode(it)
  return string.format('%.0f %.0f %.0f %.0f %.0f', it.token, it.refill, it.full, it.since, it.level)
end

local function new_count(ARGV, i)
  local full = tonumber(ARGV[i + 2])
  return { token = tonumber(ARGV[i]), refill = tonumber(ARGV[i + 1]), full = full, since = 0, level = full }
end

local function is_same(it, other)
  return it.token == other.token and it.refill == other.refill and it.full == other.full
end

-- Returns a level that is not above a full bucket and not below its largest debt. Both together are
-- at most 2^53.
local function bounded(level, full)
  return math.min(math.max(level, -math.min(full, 9007199254740992 - full)), full)
end

-- Takes over as many whole tokens as the emptiest bucket has.
local function carry(it, others)
  for _, other in ipairs(others) do
    it.level = math.min(it.level, bounded(divide(other.level, other.token) * it.token, it.full))
  end
end

-- A clock that stepped back neither fills a bucket nor drains it.
local function advance(it, last, now)
  local elapsed = math.max(now - last, 0)
  -- The full bucket is recognised by time first, so that the product stays exact.
  if elapsed >= divide_up(it.full - it.level, it.refill) then
    it.level = it.full
  else
    it.level = it.level + elapsed * it.refill
  end
  return last > now
end

-- Full buckets are the same as an absent state, so that nothing taken before can be refunded.
local function are_renewed(buckets)
  for _, it in ipairs(buckets) do
    if it.level < it.full then
      return false
    end
  end
  return true
end

local function set_tier(it, ARGV, i)
  it.kept = ARGV[i + 3] * it.token
end

local function has_room(it, units)
  return it.level >= units * it.token + it.kept
end

local function left_of(it)
  return divide(math.max(it.level - it.kept, 0), it.token)
end

-- Returns the microseconds until the bucket has these tokens, or is full.
local function until_free(it, units)
  return divide_up(math.max(math.min(units * it.token + it.kept, it.full) - it.level, 0), it.refill)
end

local function lasts_for(it)
  return divide_up(math.max(it.full - it.level, 0), it.refill)
end

local function raise(it, units)
  it.level = bounded(it.level - units * it.token, it.full)
end

-- Takes tokens as far as there are any. A debt stays as it is.
local function follow(it, units)
  it.level = math.max(it.level - units * it.token, math.min(it.level, 0))
end

local function take(it, units)
  local taken = math.min(units, divide_up(it.level, it.token))
  follow(it, units)
  return taken
end

-- Only a bucket that the tokens were taken from, at most until full.
local function lower(it, units, at)
  if it.since <= at then
    it.level = math.min(it.level + units * it.token, it.full)
  end
end

