-- The general way of a sliding window, which decides every call.
--
-- general(log, ARGV, now) -> the reply
--   log, ARGV, reply   as in `sliding_window.lua`
--   now                microsecond of the decision

local call, log, ARGV, now = redis.call, ...
local TAKE = '1'
local op, mode, id = ARGV[1], ARGV[3], ARGV[4]

-- The first and the last tier that decides, as indices of ARGV.
local FIRST, final = 7, 5 + 2 * ARGV[6]

-- A command for this many units takes less than a millisecond.
local AT_ONCE = 500

local cost = tonumber(ARGV[2])
local longest, shortest = tonumber(ARGV[FIRST]), tonumber(ARGV[FIRST])
for i = FIRST + 2, final, 2 do
  longest, shortest = math.max(longest, ARGV[i]), math.min(shortest, ARGV[i])
end

-- Returns the timestamp of the unit of this rank: from the oldest, or, below 0, from the newest.
local function timestamp(rank)
  return tonumber(call('ZRANGE', log, rank, rank, 'WITHSCORES')[2])
end

-- Records units as of now, in commands that Lua's stack has room for.
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

-- The units in the log, and its capacity.
local card = call('ZCARD', log)
local known = card > 0 and tonumber(call('ZSCORE', log, '@') or nil)
local headers, keep, largest = 0, 0, 0
if known then
  card, headers = card - 1, 1
  largest = -known % 131072
  keep = (-known - largest) / 131072
end
for i = FIRST, #ARGV, 2 do
  keep = math.max(keep, math.ceil(ARGV[i] / 1000))
  largest = math.max(largest, ARGV[i + 1])
end
local header = string.format('-%.0f', keep * 131072 + largest)
keep = keep * 1000
local ttl = string.format('%d', math.floor(keep / 1000) + 999)

-- A tier refuses until the unit expires whose room the call needs. The reply to an admitted call
-- needs the number of live units, so they are counted here, once for both uses, until a tier
-- refuses. The last tier, as a rule the longest, comes first: its count needs no command.
local admitted, tier, remaining, wait, last, lives
repeat
  admitted, last, lives = true, nil, {}
  for i = final, FIRST, -2 do
    local period, threshold = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
    if admitted and period < longest then
      lives[i] = call('ZCOUNT', log, now - period + 1, '+inf')
    end
    if cost > 0 and (lives[i] or card) + cost > threshold then
      local leaves = timestamp(cost - threshold - 1) + period - now
      if leaves > 0 and (admitted or leaves >= wait) then
        admitted, tier, wait = false, i, leaves
      end
    end
  end
  if not admitted then
    last = timestamp(-1)
    if last - now > shortest then
      -- After a clock has stepped back by more than a period, units lie in the future. They are
      -- moved to now; so many that this would block the server are deleted instead.
      if call('ZCOUNT', log, now + 1, '+inf') > AT_ONCE then
        call('UNLINK', log)
        headers = 0
      else
        record(call('ZRANGEBYSCORE', log, now + 1, '+inf'))
        call('PEXPIRE', log, ttl)
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

-- is_trimmed: all units in the log are younger than this policy's longest period. is_alone: there
-- was none before. virtual: units that are counted but not recorded. ahead: units newer than those.
local is_trimmed, is_alone, virtual, ahead = card == 0, card == 0, 0, 0
if op ~= TAKE then
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
      units[#units + 1] = string.format('%.0f', id + unit)
    end
    record(units)
  end
  -- A member of the same id that had left the window was overwritten.
  card = mode == '2' and call('ZCARD', log) - 1 or card + own
  -- Units beyond the largest threshold, the oldest ones, never decide.
  if card > largest then
    local excess = math.min(card - largest, own + AT_ONCE)
    call('ZREMRANGEBYRANK', log, 1, excess)
    card = card - excess
  end
  call('PEXPIRE', log, ttl)
end

-- Returns the microseconds until the tier at `i`, with `live` units, has room for `units`.
local function until_free(i, live, units)
  local period, threshold = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  if units > threshold or live + units <= threshold then
    return 0
  end
  -- The unit that has to expire, counted from the newest: in the log, or one of the call's own.
  local unit = threshold - units + 1
  local logged = unit > ahead and unit - virtual or unit
  local is_own = is_alone or unit > ahead and logged <= ahead
  return is_own and period or timestamp(-logged) + period - now
end

if not admitted and own == 0 then
  -- The unit that has to expire was found above.
  remaining = 0
  if cost > 1 then
    local live = lives[tier] or call('ZCOUNT', log, now - ARGV[tier] + 1, '+inf')
    remaining = math.max(ARGV[tier + 1] - live, 0)
  end
else
  tier = nil
  for i = FIRST, final, 2 do
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
  for i = FIRST, final, 2 do
    more = math.max(more, until_free(i, lives[i] or card, remaining + 1))
  end
end

if op == TAKE and own == 0 and card > 0 and tonumber(header) ~= known then
  -- A policy of a larger capacity counts from its first call on, even if that call is refused.
  call('ZADD', log, header, '@')
  call('PEXPIRE', log, ttl)
end

local reset = longest
if own == 0 then
  last = last or card > 0 and timestamp(-1) or -math.huge
  reset = math.max(last + longest - now, 0)
end

return { admitted and id + 0 or -id, (tier - FIRST) / 2, remaining, wait, reset, more, at }
