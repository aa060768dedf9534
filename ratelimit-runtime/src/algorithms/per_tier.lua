-- The common part of the algorithms that count for each tier, on one string. The text of one of them
-- follows.
--
-- KEYS[1]        the state: "<letter><birth> <last> <number> ..": when it was created and last written,
--                in microseconds, and the numbers of each count
-- ARGV[1]        op: 0 peeks, 1 takes, 2 settles, which has other arguments after the first
-- ARGV[2]        cost: the units to take; 0 only in a peek
-- ARGV[3]        1 if refused calls are recorded too, otherwise 0
-- ARGV[4], [5]   0
-- ARGV[6]        number of tiers that decide; further ones are only counted
-- ARGV[7], ..    numbers of the first tier, then of further tiers
-- Returns        {admitted, tier, remaining, wait, reset, more, now, birth}; {} for a settle
--   admitted     1 or 0
--   tier         index of the tier that is reported: of a refusal the one with the longest wait, of
--                an admission the one with the fewest units left
--   remaining    units left in that tier
--   wait         microseconds until the same call is admitted, or, if this one was, until more than
--                `remaining` units are available
--   reset        microseconds until the full quota is available
--   more         microseconds until `remaining` + 1 units are available; 0 if the call was admitted
--   now          microsecond of the decision
--   birth        microsecond at which the state was created
--
-- To settle:
-- KEYS[2]        the settles of late: their numbers, each with the microsecond until which it is kept
-- ARGV[2], [3]   units that the call took, and units that it takes instead
-- ARGV[4]        birth of the state that they were taken from
-- ARGV[5]        microsecond at which they were taken
-- ARGV[6], [7]   number of the settle, and microseconds for which it is kept
-- ARGV[8]        microsecond before which the state cannot have expired
-- ARGV[9], ..    numbers of a tier, as from ARGV[7] on
--
-- A settle is applied once. Fewer units are those of the call no more; nothing happens after a reset.
-- More units are taken now, whatever room there is, also if the state has expired meanwhile.
--
-- Invariant: units count for every tier in the state, under any policy. So no policy misses units that
-- were taken under another one.

local TAKE, SETTLE = '1', '2'
local key, op, cost = KEYS[1], ARGV[1], tonumber(ARGV[2])
local count_rejected, deciding = ARGV[3] == '1', tonumber(ARGV[6])

-- Counts of other policies that are kept too; beyond, the least recently used are dropped.
local OTHERS = 8

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- The numbers of the state, none if there is no state.
local stored, birth, last, numbers = redis.call('GET', key), now, now, {}
if stored then
  local count = 0
  for number in string.gmatch(stored, '%-?%d+') do
    count = count + 1
    numbers[count] = number + 0
  end
  birth, last = numbers[1], numbers[2]
end

-- Writes the state, its counts by `encode`. It decides like an absent one after this many microseconds;
-- without them, it expires as before.
local function write(letter, encode, at, counts, lasts)
  local words = { string.format('%s%.0f %.0f', letter, birth, at) }
  for i, it in ipairs(counts) do
    words[i + 1] = encode(it)
  end
  local text = table.concat(words, ' ')
  if lasts then
    local ttl = math.floor(lasts / 1000) + 999
    redis.call('SET', key, text, 'PX', ttl)
  else
    redis.call('SET', key, text, 'KEEPTTL')
  end
end

-- Returns the units that a settle takes beyond those of the call, below 0 if it takes fewer; 0 if there
-- is nothing to do.
local settle_once = op == SETTLE and function()
  local is_same, raised = stored and birth == tonumber(ARGV[4]), ARGV[3] - cost
  if not is_same and (raised <= 0 or now < tonumber(ARGV[8])) then
    return 0
  end
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
  if redis.call('ZADD', KEYS[2], 'NX', now + ARGV[7], ARGV[6]) == 0 then
    return 0
  end
  local latest = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
  redis.call('PEXPIRE', KEYS[2], math.floor((latest - now) / 1000) + 999)
  return raised
end

-- Chooses the tier that is reported: of a refusal the one with the longest wait, of an admission the one
-- with the fewest units left, of several the one with the longest wait.
local admitted, tier, remaining, wait = true, nil, nil, nil
local function choose(index, left, leaves)
  local closer = admitted and (not tier or left < remaining)
  if not tier or closer or leaves > wait and (left == remaining or not admitted) then
    tier, remaining, wait = index - 1, left, leaves
  end
end

-- Appends the stored counts that are of other policies to those of the call.
local function append_others(counts, saved)
  for _, it in ipairs(saved) do
    if not it.is_added and #counts < deciding + OTHERS then
      counts[#counts + 1] = it
    end
  end
end

