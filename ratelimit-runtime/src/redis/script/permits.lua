-- Permits: a caller's calls in flight, on one sorted set beside the state of an algorithm.
--
-- The text of the algorithm follows as the function `decide`, so that both are one script.
--
-- KEYS[1]        the state of the algorithm
-- KEYS[2]        the permits: their ids, each with the microsecond from which it is free; and the claims of
--                processes whose calls wait, with a score below 0: -1 * the microsecond of the arrival or of
--                the first permit since, and a member "w<process> <held> <stage> <till>": the permits that
--                it has, 0 if it waits for its first permit, 1 if it has had one and waits for more, 2 if
--                its last call did not have to wait, and the microsecond from which the claim is void
-- ARGV[1]        id of the call's permit
-- ARGV[2]        number of permits
-- ARGV[3]        timeout of a permit, in microseconds
-- ARGV[4]        1 if the call needs a permit, 0 for a look at what is left; "1 <process> <held>" if the call
--                may wait, with the permits that its process has
-- ARGV[5], ..    arguments of the algorithm, the first of which is the op: 0 peeks, 1 takes
-- Returns        {-1, pause} if no permit is free for the call, with the microseconds after which it may ask
--                again; otherwise the algorithm's reply, or without a window
--                {1, remaining}, where `remaining` permits are free after the call
--
-- Rule: a call is admitted if and only if a permit is free and the algorithm admits it. It takes both
-- or nothing. A call that holds its permit already needs no second one.
--
-- While processes wait, the one with the fewest permits comes first. Of those with as many, one has what is
-- free for a second, and then the one that has waited for longest. Others' calls that do not wait get a permit
-- that no claim is for. While permits and claims fit into their number, nobody is behind another.
--
-- Invariant: the set never has more permits than there were when the last of them was added.

local TAKE = '1'
local permits, id, most = KEYS[2], ARGV[1], tonumber(ARGV[2])
local timeout, op = tonumber(ARGV[3]), ARGV[5]
local needed = ARGV[4] == '0' and 0 or 1

-- Expired permits restamped at once at most, after a clock has stepped back.
local RESTAMPED = 500

-- The time for which a process has what is free, the pause of the first one that waits, and the most claims
-- that are read.
local TENURE, PAUSE, CLAIMS = 1000000, 100000, 64

local function micros(at)
  return string.format('%.0f', at)
end

-- Reads the claims. Returns their number, that of those before this call, and its own: the microsecond and
-- `true` if its process has had a permit since, nil if the call does not wait. Removes what is void.
local function read_claims(now)
  local process, mine = string.match(ARGV[4], ' (%d+) (%d+)$')
  local own, others, gone = process and { process = process, held = mine + 0, since = now }, {}, {}
  local claims = redis.call('ZRANGEBYSCORE', permits, '-inf', '(0', 'WITHSCORES', 'LIMIT', 0, CLAIMS)
  for i = 1, #claims, 2 do
    local its, held, stage, till = string.match(claims[i], '^w(%d+) (%d+) (%d) (%d+)$')
    local since = -claims[i + 1]
    if own and its == process then
      gone[#gone + 1] = claims[i]
      if stage == '0' or now - since < TENURE then
        own.since, own.is_served = since, stage ~= '0'
      end
    elseif not its or till - now <= 0 or till - now > 3 * TENURE then
      gone[#gone + 1] = claims[i]
    elseif stage ~= '2' then
      others[#others + 1] = { held = held + 0, since = since, is_served = stage == '1' }
    end
  end
  if #gone > 0 then
    redis.call('ZREM', permits, unpack(gone))
  end
  local before = 0
  for _, it in ipairs(others) do
    local is_first = not own or it.held < own.held
    if not is_first and it.held == own.held and not own.is_served then
      is_first = not it.is_served and it.since < own.since
    end
    before = before + (is_first and 1 or 0)
  end
  return #claims / 2, before, own
end

-- Keeps the claim of a process after its call.
local function claim(own, held, stage, till)
  local member = string.format('w%s %.0f %d %.0f', own.process, held, stage, till)
  redis.call('ZADD', permits, micros(-own.since), member)
end

local function with_permit(decide)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local held = redis.call('ZCARD', permits)
  local own, claims, before = nil, 0, 0
  if held >= most then
    if op == TAKE then
      held = held - redis.call('ZREMRANGEBYSCORE', permits, 0, micros(now))
      -- After a clock has stepped back, permits of dead processes would stay for longer than a timeout.
      local latest = micros(now + timeout)
      local late = { 'ZRANGEBYSCORE', permits, '(' .. latest, '+inf', 'LIMIT', 0, RESTAMPED }
      for _, it in ipairs(redis.call(unpack(late))) do
        redis.call('ZADD', permits, 'XX', latest, it)
      end
    else
      held = redis.call('ZCOUNT', permits, '(' .. micros(now), '+inf')
    end
    if op == TAKE then
      claims, before, own = read_claims(now)
    end
    held = held - claims
    if redis.call('ZSCORE', permits, id) then
      held, before = held - 1, 0
    end
  end
  if needed > 0 and held + before >= most then
    local pause = math.min(PAUSE * (1 + before), TENURE)
    if own then
      claim(own, own.held, own.is_served and 1 or 0, now + pause + TENURE)
    end
    return { -1, pause }
  end
  local reply = decide()
  if own and claims > 0 and reply[1] == 1 then
    own.since = own.is_served and own.since or now
    claim(own, own.held + 1, 2, now + TENURE)
  end
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
