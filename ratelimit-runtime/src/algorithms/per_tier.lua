-- The common part of the algorithms that count for each tier, on one string. It is followed by the text
-- of one of them; by `per_tier_rule.lua`, a function of a state, which reads and writes no key; and by
-- `per_tier_call.lua` and `per_tier_line.lua`:
--
-- rule(stored, now, op, cost, count_rejected, taken_at, least, turns) -> reply, text, lasts, is_new
--   stored           text of the state, false or nil without one
--   now              microsecond of the decision
--   op               '0' peeks, '1' takes, 'lower' gives units back, 'raise' takes them whatever room there
--                    is, in every count of the state
--   cost             number of these units
--   count_rejected   of a peek or a take: true if refused calls are recorded too
--   taken_at         of 'lower': microsecond at which the units were taken
--   least            of 'lower': the units that each window keeps at least, of those that it has
--   turns            of a 'raise' that is followed by others: the cost and the microsecond of each, also of the
--                    first, and the birth in the reply to its call
--   reply            of a peek or a take; an error, if the text is no state of this algorithm
--   text             of the state after that, nil if it has not changed
--   lasts            microseconds after which the state decides like an absent one; nil if as before
--   is_new           of a peek or a take: true if the state has not counted for one of the tiers
--
-- KEYS[1]        the state: "<letter><birth> <last> <number> ..": when it was created and last written,
--                in microseconds, and the numbers of each count
-- ARGV[1]        op: 0 peeks, 1 takes, 2 settles, 3 advances; these have other arguments
-- ARGV[2]        cost: the units to take; 0 only in a peek
-- ARGV[3]        1 if refused calls are recorded too, otherwise 0
-- ARGV[4]        a number that the reply names
-- ARGV[5]        take: microseconds that the call may wait for its turn, and after a space the number of
--                turns that may lie ahead then; otherwise 0
-- ARGV[6]        number of tiers that decide; further ones are only counted
-- ARGV[7], ..    numbers of the first tier, then of further tiers
-- Returns        {admitted, tier, remaining, wait, reset, more, at, birth}; {} for a settle
--   admitted     ARGV[4], negative unless the call was admitted; other replies have -1 * ARGV[4] before them
--   tier         index of the tier that is reported: of a refusal the one with the longest wait, of
--                an admission the one with the fewest units left
--   remaining    units left in that tier
--   wait         microseconds until the same call is admitted, or, if this one was, until more than
--                `remaining` units are available
--   reset        microseconds until the full quota is available
--   more         microseconds until `remaining` + 1 units are available; if the call was admitted, until
--                its turn, and 0 if it passes now: its other numbers are those of its turn
--   at           microsecond at which the call was charged
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

local PEEK, TAKE, SETTLE, ADVANCE = '0', '1', '2', '3'
local key, op, cost = KEYS[1], ARGV[1], tonumber(ARGV[2])

-- The position of the first tier among the arguments.
local FIRST = op == SETTLE and 9 or 7

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- Returns the numbers of a state of one string.
local function numbers_of(stored)
  local numbers = {}
  for number in string.gmatch(stored or '', '%-?%d+') do
    numbers[#numbers + 1] = number + 0
  end
  return numbers
end

-- Whole quotients, exact up to 2^53; a plain division would round.
local function divide(a, b)
  return (a - a % b) / b
end

local function divide_up(a, b)
  local rest = a % b
  return (a - rest) / b + (rest > 0 and 1 or 0)
end

-- Writes the state, or without a text only its expiry. It decides like an absent one after this many
-- microseconds; without them, it expires as before.
local function write(text, lasts)
  if not lasts then
    redis.call('SET', key, text, 'KEEPTTL')
    return
  end
  local ttl = math.floor(lasts / 1000) + 999
  if text then
    redis.call('SET', key, text, 'PX', ttl)
  else
    redis.call('PEXPIRE', key, ttl)
  end
end

