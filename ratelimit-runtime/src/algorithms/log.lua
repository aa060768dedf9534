-- Sliding window: an exact log of calls with their units on one sorted set, for one or several tiers.
--
-- KEYS[1]        the log. While all calls take one unit, it has
--                entry   score: the microsecond of its record; member: an id, and 8 digits of units
--                header  "@": -(milliseconds * 2^17 + units), the longest period and the largest threshold of all
--                        policies that have written to it
--                From the first call on that takes more, may wait or has a request id, it has these headers instead,
--                and names:
--                header  score from -2^53 up to 0: "g" is -birth, the microsecond from which on it has them;
--                        "#<period>" is -1 - units, and "@<period>" is -cut, for each tier in use;
--                        while calls wait, ">" is the last of their turns, and "<" when it was promised;
--                        "p" is the end of a pause, which ">" is not before
--                name    score below -2^53: -1024 * microsecond; member: "r" and a request id; beside it, if
--                        the id of the entry does not follow from both, "i", the request id and that id
-- ARGV[1]        op: 0 peeks, 1 takes, 2 settles, 3 advances, 4 pauses, 5 reads turns
-- ARGV[2]        cost: the units to take; 0 only in a peek; settle: the units that were taken
-- ARGV[3]        1 if refused calls are recorded too; 2 if a call of this id may have been decided
--                before: if so, it is admitted and not charged again; 4 if the id is a request id, an
--                integer below 2^51, of which the same holds; settle: 5 if the call has joined an entry
--                that no id names; otherwise 0, or the score of "@" that the tiers that decide need if a log of
--                their calls has no other header
-- ARGV[4]        id of the call: a multiple of 4 from 4 to 9e10, or a request id; of a peek without one any
--                number
-- ARGV[5]        take: microseconds that the call may wait for its turn, and after a space the number of
--                turns that may lie ahead then; with a score in ARGV[3], the milliseconds after which the log
--                expires; settle: microsecond at which the units were taken;
--                advance: the request id, 0 if the call had none, the microsecond of the turn, and the birth of
--                the log that promised it, with spaces between
-- ARGV[6]        number of tiers that decide; for further ones units are only counted
-- ARGV[7], [8]   period of the first tier, in microseconds, and its threshold
-- ARGV[9], ..    the same for further tiers
-- Settle         ARGV[6] is the units to take instead, [7] the birth of the log that took the others, 0 if it had
--                the header "@", [8] the microsecond before which that log cannot have expired, [9] the period of
--                one of its tiers, and [10] the request id, if the call had one
-- Advance        ARGV[2] is the units that were taken, and [4] the id of their entry
-- Pause          ARGV[2] is a microsecond or 0, ARGV[4] any number, and [5] the length. A pause whose
--                microsecond has come is none
-- Turns          ARGV[4] is any number, [5] the id of a charge, [6] its units, and so on for further ones
-- Returns        {admitted, tier, remaining, wait, reset, more, at, birth, id}; of a call that goes straight in a log
--                with the header "@" only what these numbers do not follow from, which costs 2 % less:
--                {admitted, remaining, wait, at, tier} or {admitted, wait, reset, tier}, without the tier if
--                there is one; for a settle {ARGV[4]}, negative if it changes nothing;
--                for a pause its end, {} if it is none; for turns their microseconds, 0 for one that is gone;
--                for an advance the microsecond of the call's turn, the time until then, and 1 if the tiers
--                have room only later, {} if it is gone
--   admitted     ARGV[4], negative unless the call was admitted; other replies have -1 * ARGV[4] before them
--   tier         index of the tier that is reported: of a refusal the one with the longest wait, of
--                an admission the one with the fewest units left
--   remaining    units left in that tier
--   wait         microseconds until the same call is admitted, or, if this one was, until more than
--                `remaining` units are available; beyond the entries that one call reads, this and `more`
--                may be too short, never too long
--   reset        microseconds until the full quota is available
--   more         microseconds until `remaining` + 1 units are available; if the call was admitted, until
--                its turn, and 0 if it passes now: its other numbers are those of its turn
--   at           microsecond at which the call was charged: of a repeated id, the first time; 0 of one
--                that a line or a pause refuses
--   birth        of the log, 0 if it has the header "@"
--   id           of the call's entry, negative if it has joined one that no id names
--
-- Rule: a call is admitted if and only if for every tier the units in (now - period, now] plus its
-- cost are at most the threshold, and the log has room for an entry. All tiers are charged, or none.
--
-- While turns lie ahead, a call is decided as if it came at the last one. One that may wait is charged at
-- its turn, the microsecond at which it is admitted there. Without a turn it is refused. An advance moves the
-- first turn that lies ahead to the microsecond at which it has room. A clock that stepped back by more than a
-- period since the last promise forgets it, and a pause.
--
-- Invariant: under the header "@" the log keeps the units that are younger than the longest period, the newest ones,
-- up to the largest threshold. So no policy misses units that it counts.
--
-- Invariant: of each tier in the other header, also one of another policy, the units are those of the
-- entries after its cut. A tier that has not recorded for its period is dropped, and counted anew if
-- it returns. Entries at or before every cut are removed.
--
-- Ids: what belongs to a charge is named by its id: the charge itself, +1 its excess, +2 the charge
-- once it is settled, and +3 units on lease. Units that do not fit into 8 digits are further entries,
-- each +4. Ids from 9e10 on are nobody's.

local call, ARGV = redis.call, ARGV
local log, mode, id = KEYS[1], ARGV[3], ARGV[4]
-- The first tier as an index of ARGV, and the digits of one unit.
local FIRST, ONE = 7, '00000001'

-- A command for this many units takes less than a millisecond.
local AT_ONCE = 500

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- The straight way of most calls, in few commands: they take one unit, and all tiers decide. It answers as the
-- general way, and leaves to that one, with nothing done, every other call, and every log that has
-- another header, or units of the future. Numbers are slow to format, as arguments of a command and as scores
-- in a reply: most arguments are strings, and few scores are read.
local final = #mode > 1 and (ARGV[6] == '1' and FIRST or 5 + 2 * ARGV[6])
if final and ARGV[1] == '1' and ARGV[2] == '1' and not ARGV[final + 2] then
  local card = call('ZCARD', log)
  local units, longest, largest, is_one = card - 1, ARGV[final] + 0, ARGV[final + 1] + 0, final == FIRST
  -- A table costs as much as a command.
  local numbers = not is_one and {}
  for i = FIRST, is_one and 0 or final, 2 do
    local period, threshold = ARGV[i] + 0, ARGV[i + 1] + 0
    numbers[i], numbers[i + 1] = period, threshold
    longest = period > longest and period or longest
    largest = threshold > largest and threshold or largest
  end

  local is_known, leaves, expired, first = card == 0, longest, nil, nil
  if card == 0 then
    units = 0
  elseif card > 1 then
    -- The header, and the oldest unit of the longest window. Mostly one unit at most has left it.
    first = call('ZRANGE', log, '0', units < largest and '2' or '1', 'WITHSCORES')
    -- A log keeps units for longer than a period that is no whole milliseconds.
    is_known = first[1] == '@' and first[2] == mode and longest % 1000 == 0
    leaves = first[4] + longest - now
  end
  if is_known and leaves <= 0 then
    expired, leaves = '1', first[6] and first[6] + longest - now or 0
    if leaves <= 0 then
      expired = call('ZCOUNT', log, '0', now - longest)
      if expired < units then
        leaves = call('ZRANGE', log, expired + 1, expired + 1, 'WITHSCORES')[2] + longest - now
      end
    end
    units = units - expired
  end
  is_known = is_known and leaves > 0 and leaves <= longest

  -- Of a refusal the tier with the longest wait. No wait is longer than that for the newest unit.
  local tier, remaining, wait, last, lives
  if not is_known then
    units = largest
  elseif is_one and units == largest then
    wait, last = leaves, call('ZRANGE', log, '-1', '-1', 'WITHSCORES')[2] + 0
  elseif not is_one then
    lives = {}
    for i = final, FIRST, -2 do
      local period, threshold, live = numbers[i], numbers[i + 1], units
      if period < longest and not wait then
        live = units + (expired or 0) - call('ZCOUNT', log, '0', now - period)
      end
      lives[i] = live
      if live >= threshold and not (wait and last + period - now < wait) then
        local until_left = leaves + period - longest
        if units ~= threshold then
          local unit = call('ZRANGE', log, -threshold, -threshold, 'WITHSCORES')[2]
          until_left = unit + period - now
        end
        if until_left > 0 and (not wait or until_left >= wait) then
          tier, wait = (i - FIRST) / 2, until_left
          last = last or call('ZRANGE', log, '-1', '-1', 'WITHSCORES')[2] + 0
        end
      end
    end
  end
  if wait and last <= now then
    return { -id, wait, last + longest - now, tier }
  end

  if not wait and units < largest then
    if expired and units + expired > AT_ONCE then
      -- As below, a large log is trimmed only beyond its capacity.
      expired = math.min(units + expired + 1 - largest, AT_ONCE + 1)
    end
    if expired and expired + 0 > 0 then
      call('ZREMRANGEBYRANK', log, '1', expired)
    end
    local micros = time[2]
    if #micros < 6 then
      micros = string.sub('00000' .. micros, -6)
    end
    local added
    if card == 0 then
      added = call('ZADD', log, mode, '@', time[1] .. micros, id .. ONE)
    else
      added = call('ZADD', log, 'NX', time[1] .. micros, id .. ONE)
    end
    if added == 0 then
      -- Another call has the same id: this one gets another.
      return entries(log, ARGV, now)
    end
    call('PEXPIRE', log, ARGV[5])
    if is_one then
      return { id + 0, largest - units - 1, leaves, now }
    end
    -- Of an admission the tier with the fewest units left, of those the one with the longest wait.
    for i = FIRST, final, 2 do
      local period, live = numbers[i], lives[i]
      local left = numbers[i + 1] - live - 1
      if not tier or left <= remaining then
        local until_left = period
        if live == units then
          until_left = leaves + period - longest
        elseif live > 0 then
          local rank = -live - 1 .. ''
          until_left = call('ZRANGE', log, rank, rank, 'WITHSCORES')[2] + period - now
        end
        if not tier or left < remaining or until_left > wait then
          tier, remaining, wait = (i - FIRST) / 2, left, until_left
        end
      end
    end
    return { id + 0, remaining, wait, now, tier }
  end
end

return entries(log, ARGV, now)
