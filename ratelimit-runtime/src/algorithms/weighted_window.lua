-- Weighted sliding window: an exact log of calls with their units on one sorted set, for one or
-- several tiers. `is_leased` comes before: true if the units are taken on lease.
--
-- KEYS[1]        the log, with three kinds of members:
--                entry   score: the microsecond of its record; member: an id, and 8 digits of units
--                header  score from -2^53 up to 0: "g" is -birth, the microsecond of the first record;
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
--                that no id names; otherwise 0
-- ARGV[4]        id of the call: a multiple of 4 from 4 to 9e10, or a request id; of a peek without one any
--                number
-- ARGV[5]        take: microseconds that the call may wait for its turn, and after a space the number of
--                turns that may lie ahead then; settle: microsecond at which the units were taken;
--                advance: the request id, 0 if the call had none, the microsecond of the turn, and the birth of
--                the log that promised it, with spaces between
-- ARGV[6]        number of tiers that decide; for further ones units are only counted
-- ARGV[7], [8]   period of the first tier, in microseconds, and its threshold
-- ARGV[9], ..    the same for further tiers
-- Settle         ARGV[6] is the units to take instead, [7] the birth of the log that took the others,
--                [8] the microsecond before which that log cannot have expired, [9] the period of one
--                of its tiers, and [10] the request id, if the call had one
-- Advance        ARGV[2] is the units that were taken, and [4] the id of their entry
-- Pause          ARGV[2] is a microsecond or 0, ARGV[4] any number, and [5] the length. A pause whose
--                microsecond has come is none
-- Turns          ARGV[4] is any number, [5] the id of a charge, [6] its units, and so on for further ones
-- Returns        {admitted, tier, remaining, wait, reset, more, at, birth, id}; {} for a settle;
--                for a pause its end, {} if it is none; for turns their microseconds, 0 for one that is gone; for an advance the microsecond of the call's turn, the time until then, and 1 if the tiers have
--                room only later, {} if it is gone
--   admitted     ARGV[4], negative unless the call was admitted; other replies have -1 * ARGV[4] before them
--   tier         index of the tier that is reported: of a refusal the one with the longest wait, of
--                an admission the one with the fewest units left
--   remaining    units left in that tier
--   wait         microseconds until the same call is admitted, or, if this one was, until more than
--                `remaining` units are available; after so many entries as are looked at in one call,
--                this and `more` may be too short, never too long
--   reset        microseconds until the full quota is available
--   more         microseconds until `remaining` + 1 units are available; if the call was admitted, until
--                its turn, and 0 if it passes now: its other numbers are those of its turn
--   at           microsecond at which the call was charged: of a repeated id, the first time
--   birth        of the log
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
-- Invariant: of each tier in the header, also one of another policy, the units are those of the
-- entries after its cut. A tier that has not recorded for its period is dropped, and counted anew if
-- it returns. Entries at or before every cut are removed.
--
-- Ids: what belongs to a charge is named by its id: the charge itself, +1 its excess, +2 the charge
-- once it is settled, and +3 units on lease. Units that do not fit into 8 digits are further entries,
-- each +4. Ids from 9e10 on are nobody's.

local call, ARGV = redis.call, ARGV
local PEEK, TAKE, SETTLE, ADVANCE, PAUSE, TURNS = '0', '1', '2', '3', '4', '5'
local PLAIN, COUNT_REJECTED, REPEATED, NAMED, JOINED = '0', '1', '2', '4', '5'
local log, op, mode, cost = KEYS[1], ARGV[1], ARGV[3], tonumber(ARGV[2])

local MOST_UNITS, MOST_ENTRIES, CROWDED, PARTS = 99999999, 100000, 90000, 4096
local NOBODY, NAMES, HEADER, MAX_OTHERS = 90000000000, 22499999900, '-9007199254740992', 8

-- Reading this many entries takes less than a millisecond. A refusal that has read some keeps what
-- they add up to.
local LOOKED_AT, AT_ONCE, KEPT, MOST_ROUNDS = 4096, 500, 64, 8

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local unpack = unpack or table.unpack

local function member(id, units)
  return string.format('%.0f%08d', id, units)
end

local function units_of(entry)
  return tonumber(string.sub(entry, -8))
end

-- Returns the milliseconds for which a log lasts that is kept for so many microseconds.
local function lasting(keep)
  local ttl = math.floor(keep / 1000) + 999
  return ttl
end

-- The straight way of most calls, in few commands: one tier decides, the log counts for no other, and nobody
-- waits. It answers as the general way below, and leaves to that one, with nothing done, every other log.
-- Numbers are slow to format as arguments of a command, strings of integers are not.
local function decide_straight()
  local period, length, threshold = ARGV[7], ARGV[7] + 0, ARGV[8] + 0
  -- The header, and the oldest entries. Mostly one of them at most has left the window.
  local first, oldest = call('ZRANGE', log, '0', '4', 'WITHSCORES'), 7
  local birth, since, units = first[2], first[4], -1 - (first[6] or 0)
  if first[3] == 'g' then
    birth, since = since, birth
  end
  local is_known = first[5] == '#' .. period and (first[3] == 'g' and first[1] or first[3]) == '@' .. period
  if not (is_known and first[8] and first[8] + since > 0) then
    return
  end
  local to = now - length
  if first[8] - to <= 0 then
    units, oldest = units - units_of(first[7]), 9
  end
  local stamp = tonumber(first[oldest + 1])
  if not stamp or stamp <= to or stamp > now or units > threshold then
    return
  end
  local remaining, leaves, id = threshold - units, stamp + length - now, ARGV[4] + 0
  if cost > remaining then
    local wait, excess = leaves, cost - remaining - units_of(first[oldest])
    if excess > 0 then
      local next = oldest == 7 and first[10]
      wait = next and excess <= units_of(first[9]) and next + length - now
    end
    if not wait or cost > threshold or ARGV[5] ~= '0' then
      return
    end
    local newest = call('ZRANGE', log, '-1', '-1', 'WITHSCORES')[2]
    local more = cost > remaining + 1 and leaves or wait
    if newest - now <= 0 then
      return { -id, 0, remaining, wait, newest + length - now, more, now, -birth, id }
    end
  elseif cost <= MOST_UNITS and (units < CROWDED or call('ZCARD', log) < CROWDED) then
    local entry = string.format('%s%08d', ARGV[4], cost)
    if not call('ZSCORE', log, entry) then
      if oldest > 7 then
        call('ZREM', log, first[7])
      end
      call('ZADD', log, string.format('%d', now), entry, string.format('%d', -1 - units - cost),
        first[5], string.format('%d', -to), '@' .. period)
      call('PEXPIRE', log, lasting(length))
      return { id, 0, remaining - cost, leaves, length, 0, now, -birth, id }
    end
  end
end
if op == TAKE and mode == PLAIN and ARGV[6] == '1' and #ARGV == 8 and not is_leased then
  local reply = decide_straight()
  if reply then
    return reply
  end
end
