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
-- Returns        {admitted, tier, remaining, wait, reset}: 1 or 0, the index of the tier spoken of,
--                the units left in it, microseconds until the call is admitted (or, admitted,
--                until more than `remaining` can be had), microseconds until the full quota is back
--
-- Rule: a call is admitted if and only if for every tier the units in (now - period, now] plus its
-- cost are at most the threshold. All tiers are charged, or none.

local log, id, cost, count_rejected = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
local may_repeat = ARGV[3] == '2'

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- Scores reach Redis as text; Lua's own conversion would round them to 14 digits.
local function text(number)
  return string.format('%.0f', number)
end

-- What is done to so many units in one command takes less than a millisecond.
local AT_ONCE = 1000

-- Records units as of now, as many in one command as Lua's stack allows.
local function record(units)
  local stamp, unpack = text(now), unpack or table.unpack
  for first = 1, #units, AT_ONCE do
    local members = {}
    for i = first, math.min(first + AT_ONCE - 1, #units) do
      members[#members + 1] = stamp
      members[#members + 1] = units[i]
    end
    redis.call('ZADD', log, unpack(members))
  end
end

local longest, shortest, largest = 0, math.huge, 0
for i = 4, #ARGV, 2 do
  local period, threshold = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  longest, shortest = math.max(longest, period), math.min(shortest, period)
  largest = math.max(largest, threshold)
end

local last = redis.call('ZRANGE', log, -1, -1, 'WITHSCORES')[2]
last = last and tonumber(last) or -math.huge

-- A clock that stepped back leaves units in the future. After a small step the log's time stands
-- still until the clock has caught up. After a large one they are units of now; where they are so
-- many that to write them anew would hold up the server, they are forgotten.
local lag = math.max(last - now, 0)
if lag > shortest then
  if redis.call('ZCOUNT', log, '(' .. text(now), '+inf') > AT_ONCE then
    redis.call('UNLINK', log)
    lag, last = 0, -math.huge
  else
    record(redis.call('ZRANGEBYSCORE', log, '(' .. text(now), '+inf'))
    redis.call('PEXPIRE', log, math.floor(longest / 1000) + 999)
    lag, last = 0, now
  end
end
now = now + lag

local admitted, live = true, {}
for i = 4, #ARGV, 2 do
  local period, threshold = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  local since = now - period
  live[i] = last > since and redis.call('ZCOUNT', log, '(' .. text(since), '+inf') or 0
  admitted = admitted and live[i] + cost <= threshold
end
local own = (admitted or count_rejected) and cost or 0
if may_repeat then
  local charged = redis.call('ZSCORE', log, id)
  if charged and tonumber(charged) > now - longest then
    admitted, own = true, 0
  end
end

-- The stamp of the unit that `after` units are newer than, once the call's own are recorded.
local function newest(after)
  if after < own then
    return now
  end
  local rank = own - after - 1
  return rank == -1 and last or tonumber(redis.call('ZRANGE', log, rank, rank, 'WITHSCORES')[2])
end

local tier, remaining, wait
for i = 4, #ARGV, 2 do
  local period, threshold = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  local units = live[i] + own
  if own > 0 then
    units = math.min(units, largest)
  end
  local left = math.max(threshold - units, 0)
  -- The unit that has to leave so that this call, or one more unit, finds its place.
  local wanted, leaves = admitted and left + 1 or cost, 0
  if wanted <= threshold and units + wanted > threshold then
    leaves = newest(threshold - wanted) + period - now + lag
  end
  local closer = admitted and (not tier or left < remaining)
  if not tier or closer or leaves > wait and (left == remaining or not admitted) then
    tier, remaining, wait = (i - 4) / 2, left, leaves
  end
end

local reset = math.max((own > 0 and now or last) + longest - now + lag, 0)

if id ~= '' and own > 0 then
  local units, first = {}, tonumber(id)
  for unit = first, first + own - 1 do
    units[#units + 1] = text(unit)
  end
  record(units)
  -- Only the newest units decide: what is older than the largest threshold's worth goes.
  local excess = redis.call('ZCARD', log) - largest
  if excess > 0 then
    redis.call('ZREMRANGEBYRANK', log, 0, math.min(excess, own + AT_ONCE) - 1)
  end
  local ttl = math.floor(longest / 1000) + 999
  redis.call('PEXPIRE', log, ttl)
end


return { admitted and 1 or 0, tier, remaining, wait, reset }
