-- Sliding window: an exact log on one sorted set, for one or several tiers at once.
--
-- KEYS[1]        the log: one member per admitted unit, its score the microsecond it was admitted
-- ARGV[1]        id of the call, an integer below 2^52, its units are members id, id + 1, ..;
--                or "" to look without taking
-- ARGV[2]        cost: the units the call takes (0 only to look)
-- ARGV[3], [4]   a tier's period in microseconds and its threshold
-- ARGV[5], ..    the same for further tiers
-- Returns        {admitted, tier, remaining, wait, reset}: 1 or 0, the index of the tier spoken of,
--                the units left in it, microseconds until the call is admitted (or, admitted,
--                until more than `remaining` can be had), microseconds until the full quota is back
--
-- Rule: a call is admitted if and only if for every tier the units in (now - period, now] plus its
-- cost are at most the threshold. All tiers are charged, or none.

local log, id, cost = KEYS[1], ARGV[1], tonumber(ARGV[2])

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- Scores reach Redis as text; Lua's own conversion would round them to 14 digits.
local function text(number)
  return string.format('%.0f', number)
end

-- The stamp of the unit that `after` units are newer than, or nil. What a clock that has since
-- stepped back wrote into the future counts as written now.
local function newest(after)
  local unit = redis.call('ZRANGE', log, -1 - after, -1 - after, 'WITHSCORES')
  return unit[2] and math.min(tonumber(unit[2]), now)
end

local refused, tier, remaining, wait = false, 0, math.huge, 0
local longest, largest = 0, 0

for i = 3, #ARGV, 2 do
  local index, period, threshold = (i - 3) / 2, tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  longest, largest = math.max(longest, period), math.max(largest, threshold)

  local live = redis.call('ZCOUNT', log, '(' .. text(now - period), '+inf')
  local left = math.max(threshold - live, 0)
  if cost > left or live > threshold then
    -- The unit that has to leave so that this call finds its place.
    local leaves = newest(threshold - cost) + period - now
    if not refused or leaves > wait then
      refused, tier, remaining, wait = true, index, left, leaves
    end
  elseif not refused and left - cost <= remaining then
    local leaves = 0
    if live > 0 then
      leaves = newest(live - 1) + period - now
    elseif cost > 0 then
      leaves = period
    end
    if left - cost < remaining or leaves > wait then
      tier, remaining, wait = index, left - cost, leaves
    end
  end
end

local reset = longest
if refused or cost == 0 then
  local last = newest(0)
  reset = last and math.max(last + longest - now, 0) or 0
end

if id ~= '' then
  -- A clock that stepped back leaves units in the future; from here on they are units of now.
  local ahead = redis.call('ZRANGEBYSCORE', log, '(' .. text(now), '+inf')
  for _, unit in ipairs(ahead) do
    redis.call('ZADD', log, text(now), unit)
  end

  if not refused then
    local stamp, first = text(now), tonumber(id)
    for unit = first, first + cost - 1 do
      redis.call('ZADD', log, stamp, text(unit))
    end
    -- Only the newest units decide: what is older than the largest threshold's worth goes.
    redis.call('ZREMRANGEBYRANK', log, 0, -1 - largest)
  end
  if not refused or #ahead > 0 then
    redis.call('PEXPIRE', log, math.floor(longest / 1000) + 1000)
  end
end

return { refused and 0 or 1, tier, remaining, wait, reset }
