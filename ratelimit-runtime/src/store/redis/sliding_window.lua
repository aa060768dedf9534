-- Sliding window: an exact log on one sorted set, for one or several tiers at once.
--
-- KEYS[1]        the log: one member per recorded unit, its score the microsecond it was recorded
-- ARGV[1]        id of the call, an integer below 2^52, its units are members id, id + 1, ..;
--                or "" to look without taking
-- ARGV[2]        cost: the units the call takes (0 only to look)
-- ARGV[3]        1 if refused calls are recorded too; 2 if a call of this id may have been decided
--                before, which is then admitted and not charged again; otherwise 0
-- ARGV[4], [5]   a tier's period in microseconds and its threshold
-- ARGV[6], ..    the same for further tiers
-- Returns        {admitted, tier, remaining, wait, reset, more}: 1 or 0, the index of the tier spoken
--                of, the units left in it, microseconds until the call is admitted (or, admitted,
--                until more than `remaining` can be had), until the full quota is back, and,
--                refused, until `remaining` + 1 units can be had
--
-- Rule: a call is admitted if and only if for every tier the units in (now - period, now] plus its
-- cost are at most the threshold. All tiers are charged, or none. A call of nothing is admitted.

local call, ARGV = redis.call, ARGV
local log, id, cost, mode = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]

-- What is done to so many units in one command takes less than a millisecond.
local AT_ONCE = 500

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local longest, shortest, largest = tonumber(ARGV[4]), tonumber(ARGV[4]), tonumber(ARGV[5])
for i = 6, #ARGV, 2 do
  longest, shortest = math.max(longest, ARGV[i]), math.min(shortest, ARGV[i])
  largest = math.max(largest, ARGV[i + 1])
end

-- The stamp of the unit that has this rank: from the oldest on, or, below 0, from the newest.
local function stamp(rank)
  return tonumber(call('ZRANGE', log, rank, rank, 'WITHSCORES')[2])
end

-- Records units as of now, as many in one command as Lua's stack allows.
local function record(units)
  local unpack = unpack or table.unpack
  for first = 1, #units, AT_ONCE do
    local members = {}
    for i = first, math.min(first + AT_ONCE - 1, #units) do
      members[#members + 1] = now
      members[#members + 1] = units[i]
    end
    call('ZADD', log, unpack(members))
  end
end

local card = call('ZCARD', log)

-- A tier refuses while the unit lives that would have to leave first. An admitted call is also told
-- how many units live: until a tier refuses they are counted, once for both. The last tier, as a rule
-- the longest, comes first: its units are known without counting.
local admitted, tier, remaining, wait, last, lives
repeat
  admitted, last, lives = true, nil, {}
  for i = #ARGV - 1, 4, -2 do
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
      else
        record(call('ZRANGEBYSCORE', log, now + 1, '+inf'))
        call('PEXPIRE', log, math.floor(longest / 1000) + 999)
      end
      card, last = call('ZCARD', log), nil
    end
  end
until admitted or last

local own = (admitted or mode == '1') and cost or 0
if mode == '2' then
  local charged = call('ZSCORE', log, id)
  if charged and charged + longest > now then
    admitted, own = true, 0
  end
end

-- Whether all that the log holds is younger than the longest period; whether it held nothing; what
-- is told of, but not recorded; and what is newer than that.
local is_trimmed, is_alone, virtual, ahead = card == 0, card == 0, 0, 0
if id == '' then
  virtual = own
  card = card + own
  ahead = own > 0 and call('ZCOUNT', log, now + 1, '+inf') or 0
elseif own > 0 then
  if card > 0 and card <= AT_ONCE then
    card = card - call('ZREMRANGEBYSCORE', log, '-inf', now - longest)
    is_trimmed, is_alone = true, card == 0
  end
  if own == 1 then
    call('ZADD', log, now, id)
  else
    local units = {}
    for unit = 0, own - 1 do
      units[#units + 1] = id + unit
    end
    record(units)
  end
  card = card + own
  -- Only the newest units decide: what is older than the largest threshold's worth goes.
  if card > largest then
    local excess = math.min(card - largest, own + AT_ONCE)
    call('ZREMRANGEBYRANK', log, 0, excess - 1)
    card = card - excess
  end
  local ttl = math.floor(longest / 1000) + 999
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
  for i = 4, #ARGV, 2 do
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
  for i = 4, #ARGV, 2 do
    more = math.max(more, until_free(i, lives[i] or card, remaining + 1))
  end
end

local reset = longest
if own == 0 then
  last = last or card > 0 and stamp(-1) or -math.huge
  reset = math.max(last + longest - now, 0)
end

return { admitted and 1 or 0, (tier - 4) / 2, remaining, wait, reset, more }
