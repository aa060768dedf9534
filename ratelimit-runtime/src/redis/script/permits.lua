-- Permits: a caller's calls in flight, on one sorted set beside the state of an algorithm.
--
-- The text of the algorithm follows as the function `decide`, so that both are one script.
--
-- KEYS[1]        the state of the algorithm
-- KEYS[2]        the permits: their ids, each with the microsecond from which it is free
-- ARGV[1]        id of the call's permit
-- ARGV[2]        number of permits
-- ARGV[3]        timeout of a permit, in microseconds
-- ARGV[4]        1 if the call needs a permit, 0 for a look at what is left
-- ARGV[5], ..    arguments of the algorithm, the first of which is the op: 0 peeks, 1 takes
-- Returns        {-1} if no permit is free; otherwise the algorithm's reply, or without a window
--                {1, remaining}, where `remaining` permits are free after the call
--
-- Rule: a call is admitted if and only if a permit is free and the algorithm admits it. It takes both
-- or nothing. A call that holds its permit already needs no second one.
--
-- Invariant: the set never has more members than there were permits when the last of them was added.

local TAKE = '1'
local permits, id, most = KEYS[2], ARGV[1], tonumber(ARGV[2])
local timeout, needed, op = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]

-- Expired permits restamped at once at most, after a clock has stepped back.
local RESTAMPED = 500

local function micros(at)
  return string.format('%.0f', at)
end

local function with_permit(decide)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local held = redis.call('ZCARD', permits)
  if held >= most then
    if op == TAKE then
      held = held - redis.call('ZREMRANGEBYSCORE', permits, '-inf', micros(now))
      -- After a clock has stepped back, permits of dead processes would stay for longer than a timeout.
      local latest = micros(now + timeout)
      local late = { 'ZRANGEBYSCORE', permits, '(' .. latest, '+inf', 'LIMIT', 0, RESTAMPED }
      for _, it in ipairs(redis.call(unpack(late))) do
        redis.call('ZADD', permits, 'XX', latest, it)
      end
    else
      held = redis.call('ZCOUNT', permits, '(' .. micros(now), '+inf')
    end
    if redis.call('ZSCORE', permits, id) then
      held = held - 1
    end
  end
  if needed > 0 and held >= most then
    return { -1 }
  end
  local reply = decide()
  if op == TAKE and reply[1] == 1 then
    redis.call('ZADD', permits, micros(now + timeout), id)
    if redis.call('PTTL', permits) < timeout / 1000 then
      redis.call('PEXPIRE', permits, math.floor(timeout / 1000) + 999)
    end
  end
  if not reply[2] then
    -- Expired permits are free, although nobody has removed them yet.
    local taken = redis.call('ZCOUNT', permits, '(' .. micros(now), '+inf')
    if op ~= TAKE then
      taken = taken + needed
    end
    reply[2] = math.max(most - taken, 0)
  end
  return reply
end
