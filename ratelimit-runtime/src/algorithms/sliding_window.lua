-- Sliding window: an exact log on one sorted set, for one or several tiers at once.
--
-- KEYS[1]        the log: one member per recorded unit, its score the microsecond it was recorded;
--                and "@", the only one below 0: what the log has to hold
-- ARGV[1]        1 to take, 0 to look without taking, or the microsecond at which a call was charged
--                that is to be given back
-- ARGV[2]        cost: the units the call takes (0 only to look), or gives back
-- ARGV[3]        1 if refused calls are recorded too; 2 if a call of this id may have been decided
--                before, which is then admitted and not charged again, and given back only if it
--                was charged then; otherwise 0
-- ARGV[4]        id of the call, an integer below 2^52: its units are members id, id + 1, ..; or ""
-- ARGV[5]        how many of the tiers decide; for those after them units are only kept
-- ARGV[6], [7]   a tier's period in microseconds and its threshold
-- ARGV[8], ..    the same for further tiers
-- Returns        {admitted, tier, remaining, wait, reset, more, at}: 1 or 0, the index of the tier
--                spoken of, the units left in it, microseconds until the call is admitted (or,
--                admitted, until more than `remaining` can be had), until the full quota is back,
--                and, refused, until `remaining` + 1 units can be had, and the microsecond at which
--                the call is charged; nothing when units are given back
--
-- Rule: a call is admitted if and only if for every tier the units in (now - period, now] plus its
-- cost are at most the threshold. All tiers are charged, or none.
--
-- Invariant: the log holds the newest units that are younger than the longest period, as many as
-- the largest threshold, of all policies that have written to it: none finds a unit missing that
-- it counts. Both numbers are in the score of "@": -(period in milliseconds * 2^17 + threshold).

local call, ARGV = redis.call, ARGV
local log, id, cost, mode = KEYS[1], ARGV[4], tonumber(ARGV[2]), ARGV[3]
local take, judged = ARGV[1] == '1', 4 + 2 * tonumber(ARGV[5])

-- What is done to so many units in one command takes less than a millisecond.
local AT_ONCE = 500
local unpack = unpack or table.unpack

local given_back = tonumber(ARGV[1])
if given_back > 1 then
  if mode == '2' and tonumber(call('ZSCORE', log, id) or 0) ~= given_back then
    return {}
  end
  for first = 0, cost - 1, AT_ONCE do
    local units = {}
    for unit = first, math.min(first + AT_ONCE, cost) - 1 do
      units[#units + 1] = string.format('%.0f', id + unit)
    end
    call('ZREM', log, unpack(units))
  end
  return {}
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local longest, shortest = tonumber(ARGV[6]), tonumber(ARGV[6])
for i = 8, judged + 1, 2 do
  longest, shortest = math.max(longest, ARGV[i]), math.min(shortest, ARGV[i])
end

-- The stamp of the unit that has this rank: from the oldest on, or, below 0, from the newest.
local function stamp(rank)
  return tonumber(call('ZRANGE', log, rank, rank, 'WITHSCORES')[2])
end

-- Records units as of now, as many in one command as Lua's stack allows.
local function record(units)
  for first = 1, #units, AT_ONCE do
    local members = {}
    for i = first, math.min(first + AT_ONCE - 1, #units) do
      members[#members + 1] = now
      members[#members + 1] = units[i]
    end
    call('ZADD', log, unpack(members))
  end
end

-- What the log holds, and has to hold.
local card = call('ZCARD', log)
local known, headers, keep, largest = card > 0 and tonumber(call('ZSCORE', log, '@') or nil), 0, 0, 0
if known then
  card, headers = card - 1, 1
  largest = -known % 131072
  keep = (-known - largest) / 131072
end
for i = 6, #ARGV, 2 do
  keep = math.max(keep, math.ceil(ARGV[i] / 1000))
  largest = math.max(largest, ARGV[i + 1])
end
local header = string.format('-%.0f', keep * 131072 + largest)
keep = keep * 1000

-- A tier refuses while the unit lives that would have to leave first. An admitted call is also told
-- how many units live: until a tier refuses they are counted, once for both. The last tier, as a rule
-- the longest, comes first: its units are known without counting.
local admitted, tier, remaining, wait, last, lives
repeat
  admitted, last, lives = true, nil, {}
  for i = judged, 6, -2 do
    local period, threshold = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
    if admitted and period < longest then
      lives[i] = call('ZCOUNT', log, now - period + 1, '+inf')
    end
    if cost > 0 and (lives[i] or card) + cost > threshold then
      local leaves = stamp(cost - threshold - 1) + period - now
      if leaves > 0 and (admitted or leaves >= wait) then
        admitted, tier, wait = false, i, leaves
      end
    end
  end
  if not admitted then
    last = stamp(-1)
    if last - now > shortest then
      -- A clock that has stepped back by more than a period left units in the future. They are of
      -- now; or, where to write them anew would hold up the server, they are forgotten.
      if call('ZCOUNT', log, now + 1, '+inf') > AT_ONCE then
        call('UNLINK', log)
        headers = 0
      else
        record(call('ZRANGEBYSCORE', log, now + 1, '+inf'))
        call('PEXPIRE', log, math.floor(keep / 1000) + 999)
      end
      card, last = call('ZCOUNT', log, 0, '+inf'), nil
    end
  end
until admitted or last

local own, at = (admitted or mode == '1') and cost or 0, now
if mode == '2' then
  local charged = tonumber(call('ZSCORE', log, id) or nil)
  if charged and charged + keep > now then
    admitted, own, at = true, 0, charged
  end
end

-- Whether all that the log holds is younger than the longest period of this policy; whether it held nothing; what
-- is told of, but not recorded; and what is newer than that.
local is_trimmed, is_alone, virtual, ahead = card == 0, card == 0, 0, 0
if not take then
  virtual = own
  card = card + own
  ahead = own > 0 and call('ZCOUNT', log, now + 1, '+inf') or 0
elseif own > 0 then
  if card > 0 and card <= AT_ONCE then
    card = card + headers - call('ZREMRANGEBYSCORE', log, '-inf', now - keep)
    is_trimmed, is_alone = card == 0 or keep == longest, card == 0
  end
  if own == 1 then
    call('ZADD', log, header, '@', now, id)
  else
    call('ZADD', log, header, '@')
    local units = {}
    for unit = 0, own - 1 do
      units[#units + 1] = id + unit
    end
    record(units)
  end
  -- A call of an id that has long left the window has been recorded in its place.
  card = mode == '2' and call('ZCARD', log) - 1 or card + own
  -- Only the newest units decide: what is older than the largest threshold's worth goes.
  if card > largest then
    local excess = math.min(card - largest, own + AT_ONCE)
    call('ZREMRANGEBYRANK', log, 1, excess)
    card = card - excess
  end
  local ttl = math.floor(keep / 1000) + 999
  call('PEXPIRE', log, ttl)
end

-- How long until the tier at `i`, in which so many units live, has room for these.
local function until_free(i, live, units)
  local period, threshold = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  if units > threshold or live + units <= threshold then
    return 0
  end
  -- The unit that has to leave, counted from the newest: in the log, or one of the call's own.
  local unit = threshold - units + 1
  local held = unit > ahead and unit - virtual or unit
  local is_own = is_alone or unit > ahead and held <= ahead
  return is_own and period or stamp(-held) + period - now
end

if not admitted and own == 0 then
  -- The unit is known already that has to leave.
  remaining = 0
  if cost > 1 then
    local live = lives[tier] or call('ZCOUNT', log, now - ARGV[tier] + 1, '+inf')
    remaining = math.max(ARGV[tier + 1] - live, 0)
  end
else
  tier = nil
  for i = 6, judged, 2 do
    local period, threshold = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
    local live = card
    if lives[i] then
      live = lives[i] + own
    elseif not is_trimmed or period < longest then
      live = call('ZCOUNT', log, now - period + 1, '+inf') + virtual
    end
    if virtual > 0 then
      live = math.min(live, largest)
    end
    lives[i] = live
    local left = math.max(threshold - live, 0)
    if not tier or not admitted or left <= remaining then
      local leaves = until_free(i, live, admitted and left + 1 or cost)
      if not tier or admitted and left < remaining or leaves > wait then
        tier, remaining, wait = i, left, leaves
      end
    end
  end
end

local more = admitted and 0 or wait
if not admitted and cost > remaining + 1 then
  more = 0
  for i = 6, judged, 2 do
    more = math.max(more, until_free(i, lives[i] or card, remaining + 1))
  end
end

if take and own == 0 and card > 0 and tonumber(header) ~= known then
  -- A policy that asks for more is known from its first call on, also if that is refused.
  call('ZADD', log, header, '@')
  call('PEXPIRE', log, math.floor(keep / 1000) + 999)
end

local reset = longest
if own == 0 then
  last = last or card > 0 and stamp(-1) or -math.huge
  reset = math.max(last + longest - now, 0)
end

return { admitted and 1 or 0, (tier - 6) / 2, remaining, wait, reset, more, at }
