-- Token bucket: levels that are refilled continuously.
--
-- Tier           whole numbers below 2^53: parts of one token, parts that each microsecond refills,
--                parts of a full bucket; tokens that calls leave, which stay in the bucket
-- Count          parts of a token, of a microsecond and of a full bucket; 0; the level in parts. One that was added
--                to others, or had too few tokens for a charge, has -1 * parts of a token; ..; since when
--                charges are its own (0: from the beginning); the level; the parts that it lacks because
--                of earlier charges, which it has taken over; and the tokens that charges up to a
--                microsecond have not found in it, and that microsecond
--
-- Rule: a call is admitted if and only if every bucket contains at least the tokens that it costs and leaves.
-- A bucket without a level is full. A level below 0 is the debt of calls that were settled above
-- their cost; it is one full bucket at most, and the rest is forgiven.
--
-- Invariant: each bucket is refilled at its deciding rate. All charges together give it back no more than they took
-- from it.

local KIND, PATTERN, LETTER, NUMBERS, ARGUMENTS = 'token bucket', '^b[%d%- ]+$', 'b', 5, 4
local COUNTS_REFUSED = true

local function decode(numbers, i)
  local it = { token = numbers[i], refill = numbers[i + 1], full = numbers[i + 2] }
  it.since, it.level, it.untaken = numbers[i + 3], numbers[i + 4], 0
  if it.token > 0 then
    return it, i + 5
  end
  it.token, it.carried, it.untaken, it.untaken_until = -it.token, numbers[i + 5], numbers[i + 6], numbers[i + 7]
  return it, i + 8
end

local function encode(it)
  if it.since == 0 and it.untaken == 0 then
    return string.format('%.0f %.0f %.0f 0 %.0f', it.token, it.refill, it.full, it.level)
  end
  local taken_over = string.format('%.0f %.0f %.0f', it.carried or 0, it.untaken, it.untaken_until or 0)
  return string.format('%.0f %.0f %.0f %.0f %.0f ', -it.token, it.refill, it.full, it.since, it.level) .. taken_over
end

local function new_count(ARGV, i)
  local full = tonumber(ARGV[i + 2])
  local token, refill = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  return { token = token, refill = refill, full = full, since = 0, level = full, untaken = 0 }
end

local function is_same(it, other)
  return it.token == other.token and it.refill == other.refill and it.full == other.full
end

-- Returns a level that is not above a full bucket and not below its largest debt. Both together are
-- at most 2^53.
local function bounded(level, full)
  return math.min(math.max(level, -math.min(full, 9007199254740992 - full)), full)
end

-- Takes over as many whole tokens as the emptiest bucket has. Without their charges, it would have those of the
-- smallest one.
local function carry(it, others, last, now)
  local most, since = it.full, last
  for _, other in ipairs(others) do
    it.level = math.min(it.level, bounded(divide(other.level, other.token) * it.token, it.full))
    most, since = math.min(most, divide(other.full, other.token) * it.token), math.max(since, other.since)
  end
  it.since, it.carried = math.max(now, since + 1), most - it.level
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
  if it.carried then
    it.carried = math.min(it.carried, it.full - it.level)
  end
  if last > now then
    it.since = math.min(it.since, now)
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

-- Takes tokens as far as there are any. A debt stays as it is. What comes back of a charge that was admitted at a
-- microsecond, and of earlier ones, is first for the tokens that there were not.
local function follow(it, units, charged)
  local untaken = charged and units - divide(math.max(it.level, 0), it.token) or 0
  if untaken > 0 then
    it.untaken, it.untaken_until = math.min(it.untaken + untaken, 4294967295), charged
  end
  it.level = math.max(it.level - units * it.token, math.min(it.level, 0))
end

local function take(it, units)
  local taken = math.min(units, divide_up(it.level, it.token))
  follow(it, units)
  return taken
end

-- At most until full. Of a charge that is not its own, the bucket has no more than the older ones.
local function lower(it, units, at, _, _, limit)
  local is_own = at >= it.since
  units = is_own and units or limit
  if at <= (it.untaken_until or 0) then
    local untaken = math.min(it.untaken, units)
    it.untaken, units = it.untaken - untaken, units - untaken
  end
  local parts = units * it.token
  if not is_own then
    parts = math.min(parts, it.carried)
    it.carried, units = it.carried - parts, divide(parts, it.token)
  end
  it.level = math.min(it.level + parts, it.full)
  return units
end

