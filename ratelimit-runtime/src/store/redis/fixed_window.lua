-- Fixed window: a count that starts anew a period after its first call, on one string.
--
-- KEYS[1]        the windows: "start count", a start in microseconds and a count for each tier
-- ARGV[1]        1 to take, 0 to look without taking, or the microsecond at which units were taken
--                that are to be given back
-- ARGV[2]        cost: the units the call takes (0 only to look), or gives back
-- ARGV[3], [4]   a tier's period in microseconds and its threshold
-- ARGV[5], ..    the same for further tiers
-- Returns        {admitted, tier, remaining, wait, reset, more, now}: 1 or 0, the index of the tier
--                spoken of, the units left in it, microseconds until the call is admitted (or,
--                admitted, until more than `remaining` can be had), until the full quota is back,
--                and, refused, until `remaining` + 1 units can be had, and the microsecond of the
--                decision; nothing when units are given back
--
-- Rule: a call is admitted if and only if for every tier the units in its open window plus the
-- call's cost are at most the threshold. A call of nothing is admitted. A window is open from its
-- first unit for one period.

local key, take, cost = KEYS[1], ARGV[1] == '1', tonumber(ARGV[2])

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local stored, numbers = redis.call('GET', key), {}
if stored then
  for number in string.gmatch(stored, '%d+') do
    numbers[#numbers + 1] = tonumber(number)
  end
  if #numbers == 0 or #numbers % 2 > 0 or string.find(stored, '[^%d ]') then
    return redis.error_reply('WRONGTYPE the key holds no fixed window')
  end
end

if tonumber(ARGV[1]) > 1 then
  -- To the windows that were open then, and still are.
  local windows = {}
  for i = 1, #numbers, 2 do
    local start, count = numbers[i], numbers[i + 1]
    if start <= tonumber(ARGV[1]) then
      count = math.max(count - cost, 0)
    end
    windows[#windows + 1] = string.format('%.0f %.0f', start, count)
  end
  if stored then
    redis.call('SET', key, table.concat(windows, ' '), 'KEEPTTL')
  end
  return {}
end

local admitted, ahead, starts, counts = true, false, {}, {}
for i = 3, #ARGV, 2 do
  local start, count = numbers[i - 2] or now, numbers[i - 1] or 0
  if start > now then
    -- A clock that stepped back leaves a window in the future; from here on it is one of now.
    ahead, start = true, now
  end
  if count == 0 or now >= start + tonumber(ARGV[i]) then
    start, count = now, 0
  end
  starts[i], counts[i] = start, count
  admitted = admitted and (cost == 0 or count + cost <= tonumber(ARGV[i + 1]))
end

local tier, remaining, wait
local reset, windows = 0, {}
for i = 3, #ARGV, 2 do
  local threshold, count = tonumber(ARGV[i + 1]), counts[i]
  local full = count + cost > threshold
  if admitted then
    count = count + cost
  end
  local left = math.max(threshold - count, 0)
  local ends = count > 0 and starts[i] + tonumber(ARGV[i]) - now or 0
  local leaves = (admitted or full) and ends or 0
  local closer = admitted and (not tier or left < remaining)
  if not tier or closer or leaves > wait and (left == remaining or not admitted) then
    tier, remaining, wait = (i - 3) / 2, left, leaves
  end
  reset = math.max(reset, ends)
  windows[#windows + 1] = string.format('%.0f %.0f', starts[i], count)
end

local more = admitted and 0 or wait
if not admitted and cost > remaining + 1 then
  more = 0
  for i = 3, #ARGV, 2 do
    if counts[i] + remaining + 1 > tonumber(ARGV[i + 1]) then
      more = math.max(more, starts[i] + tonumber(ARGV[i]) - now)
    end
  end
end

if take and (admitted or ahead) then
  local ttl = math.floor(reset / 1000) + 999
  redis.call('SET', key, table.concat(windows, ' '), 'PX', ttl)
end

return { admitted and 1 or 0, tier, remaining, wait, reset, more, now }
