-- Weighted sliding window: an exact log of calls with their units on one sorted set, for one or
-- several tiers.
--
-- KEYS[1]        the log, with three kinds of members:
--                entry   score: the microsecond of its record; member: an id, and 8 digits of units
--                header  score from -2^53 up to 0: "g" is -birth, the microsecond of the first record;
--                        "#<period>" is -1 - units, and "@<period>" is -cut, for each tier in use;
--                        while calls wait, ">" is the last of their turns, and "<" when it was promised
--                name    score below -2^53: -1024 * microsecond; member: "r" and a request id
-- ARGV[1]        op: 0 peeks, 1 takes, 2 settles, 3 advances
-- ARGV[2]        cost: the units to take; 0 only in a peek; settle: the units that were taken
-- ARGV[3]        1 if refused calls are recorded too; 2 if a call of this id may have been decided
--                before: if so, it is admitted and not charged again; 4 if the id is a request id, an
--                integer below 2^51, of which the same holds; settle: 5 if the call has joined an entry
--                that no id names; otherwise 0
-- ARGV[4]        id of the call: a multiple of 4 from 4 to 9e10, or a request id; 0 in a peek without
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
-- Returns        {admitted, tier, remaining, wait, reset, more, at, birth, id}; {} for a settle; for an
--                advance the microsecond of the call's turn, the time until then, and 1 if the tiers have
--                room only later, {} if it is gone
--   admitted     1 or 0
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
-- period since the last promise forgets it.
--
-- Invariant: of each tier in the header, also one of another policy, the units are those of the
-- entries after its cut. A tier that has not recorded for its period is dropped, and counted anew if
-- it returns. Entries at or before every cut are removed.
--
-- Ids: what belongs to a charge is named by its id: the charge itself, +1 its excess, +2 the charge
-- once it is settled, and +3 units on lease. Units that do not fit into 8 digits are further entries,
-- each +4. Ids from 9e10 on are nobody's.

local call, ARGV = redis.call, ARGV
local PEEK, TAKE, SETTLE, ADVANCE = '0', '1', '2', '3'
local COUNT_REJECTED, REPEATED, NAMED, JOINED = '1', '2', '4', '5'
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

-- Returns true for units on lease. They are stamped ahead, and in use now.
local function is_lease(entry)
  return string.sub(entry, -10, -9) % 4 == 3
end

-- Returns the entries of a charge, and the last one.
local function entries_of(id, units)
  local entries = {}
  while units > MOST_UNITS do
    entries[#entries + 1] = member(id + 4 * #entries, MOST_UNITS)
    units = units - MOST_UNITS
  end
  entries[#entries + 1] = member(id + 4 * #entries, units)
  return entries, entries[#entries]
end

-- Appends the arguments that record entries.
local function push(arguments, stamp, entries)
  for _, entry in ipairs(entries) do
    arguments[#arguments + 1] = stamp
    arguments[#arguments + 1] = entry
  end
end

-- The header: the birth, and for each period the cut and the units after it.
local birth, last_turn, promised, lease_end, count, cut = nil, 0, 0, 0, {}, {}
local header = call('ZRANGEBYSCORE', log, HEADER, '(0', 'WITHSCORES')
for i = 1, #header, 2 do
  local kind, period = string.sub(header[i], 1, 1), string.sub(header[i], 2)
  if kind == 'g' then
    birth = -header[i + 1]
  elseif kind == '#' then
    count[period] = -header[i + 1] - 1
  elseif kind == '@' then
    cut[period] = -header[i + 1]
  elseif kind == '>' then
    last_turn = -header[i + 1]
  elseif kind == '<' then
    promised = -header[i + 1]
  elseif kind == 'l' then
    lease_end = -header[i + 1]
  end
end

-- The tiers of this call, of which the first ones decide; and the periods of other policies, which are
-- counted while they are used.
local deciding, tiers, is_own, others, dropped = tonumber(ARGV[6]), {}, {}, {}, {}
local keep, longest, shortest = 0, 0, math.huge
for i = 7, op == SETTLE and 0 or #ARGV, 2 do
  local period, length = ARGV[i], tonumber(ARGV[i])
  if not is_own[period] then
    is_own[period], keep = true, math.max(keep, length)
    tiers[#tiers + 1] = { period = period, length = length, threshold = tonumber(ARGV[i + 1]) }
    if #tiers <= deciding then
      longest, shortest = math.max(longest, length), math.min(shortest, length)
    end
  end
end
local function drop(period)
  dropped[#dropped + 1] = '#' .. period
  dropped[#dropped + 1] = '@' .. period
  count[period], cut[period] = nil, nil
end
for period, since in pairs(cut) do
  if not is_own[period] then
    others[#others + 1] = period
  end
end
if #others > 0 and op ~= SETTLE then
  -- The one that recorded last comes first.
  table.sort(others, function(one, other)
    local a, b = cut[one] + one, cut[other] + other
    return a > b or a == b and one + 0 > other + 0
  end)
  for i = #others, 1, -1 do
    local latest = math.max(cut[others[i]] + others[i], last_turn, lease_end)
    if i > MAX_OTHERS or latest + others[i] < now then
      drop(table.remove(others, i))
    end
  end
end
for _, period in ipairs(others) do
  keep = math.max(keep, period)
end
if op == SETTLE and not birth then
  keep = tonumber(ARGV[9])
end
local ttl = math.floor(keep / 1000) + 999

-- A lease is shorter than any period. After a clock has stepped back, its end may lie in the future.
local arrival = now
if lease_end - arrival > keep then
  dropped[#dropped + 1], lease_end = 'l', 0
end

-- Sets the expiry of a log with a record of this microsecond, or with turns or a lease's end after it.
local function expire(at)
  local ahead = math.max(math.max(at, last_turn, lease_end) - arrival, 0)
  call('PEXPIRE', log, ttl + math.floor(ahead / 1000))
end

-- Ends the line.
local function forget_turns()
  dropped[#dropped + 1], dropped[#dropped + 2], last_turn = '>', '<', 0
end

-- Appends the end of the line after its last turn is given back or has moved: the newest entry that is no
-- lease.
local function push_end(arguments)
  local index, newest = 0, nil
  repeat
    index = index - 1
    newest = call('ZRANGE', log, index, index, 'WITHSCORES')
    local is_ahead = newest[2] - arrival > 0
  until not (is_ahead and is_lease(newest[1]))
  if newest[2] - arrival > 0 then
    arguments[#arguments + 1], arguments[#arguments + 2] = -newest[2], '>'
  else
    call('ZREM', log, '>', '<')
  end
end

-- Writes a header, and other members.
local function write(arguments)
  if #dropped > 0 then
    call('ZREM', log, unpack(dropped))
    dropped = {}
  end
  call('ZADD', log, unpack(arguments))
end

local function push_tier(arguments, period)
  arguments[#arguments + 1] = -1 - count[period]
  arguments[#arguments + 1] = '#' .. period
  arguments[#arguments + 1] = -cut[period]
  arguments[#arguments + 1] = '@' .. period
end

if op == SETTLE then
  local from, id, at, to = cost, tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
  local is_own = birth == tonumber(ARGV[7])
  if from == to or not is_own and (to < from or now < tonumber(ARGV[8])) then
    return {}
  end
  local before, last = entries_of(id, from)
  local stamp = is_own and mode ~= JOINED and tonumber(call('ZSCORE', log, last) or nil)
  if mode == NAMED and stamp ~= at then
    stamp = nil
  end
  if not stamp and (to < from or is_own and mode ~= JOINED and at + keep > now) then
    -- A charge that is gone although it is young was settled before.
    return {}
  end
  if not birth then
    -- The log has expired. A new one starts with what exceeds the charge.
    local period = ARGV[9]
    birth, count[period], cut[period], others = now, 0, now - period, { period }
  end
  local arguments, more = { -birth, 'g' }, to - from
  if more > 0 then
    local added, one = entries_of(id + 1, more)
    if not stamp and call('ZSCORE', log, one) then
      return {}
    end
    push(arguments, now, added)
  end
  if stamp then
    call('ZREM', log, unpack(before))
    if to > 0 then
      push(arguments, stamp, entries_of(id + 2, math.min(from, to)))
    else
      if mode == NAMED and tonumber(call('ZSCORE', log, 'r' .. ARGV[10]) or nil) == -1024 * at then
        call('ZREM', log, 'r' .. ARGV[10])
      end
      if stamp == last_turn and stamp > now then
        push_end(arguments)
      end
    end
  end
  for _, period in ipairs(others) do
    if (more > 0 and now or stamp) > cut[period] then
      count[period] = count[period] + more
      push_tier(arguments, period)
    end
  end
  call('ZADD', log, unpack(arguments))
  if more > 0 then
    expire(now)
  end
  return {}
end

-- The members of the log.
local card = birth and call('ZCARD', log) or 0

-- Reads entries from one microsecond up to another, few at first, until `see` returns true for the
-- units of one, their number so far, and the entry. Returns the number of those that were read, and the
-- last one.
local function read(from, to, size, see)
  local seen, last = 0, nil
  repeat
    local entries = call('ZRANGEBYSCORE', log, from, to, 'LIMIT', seen, size)
    for _, entry in ipairs(entries) do
      seen, last = seen + 1, entry
      if see(units_of(entry), seen, entry) then
        return seen, last
      end
    end
    local is_end = #entries < size
    size = math.min(4 * size, 512)
  until is_end
  return seen, last
end

-- Returns the units of the entries from one microsecond up to another, without the first ones.
local function sum(from, to, without)
  local units = 0
  read(from, to, 512, function(it, seen)
    units = units + (seen > without and it or 0)
  end)
  return units
end

-- Moves the cut of a tier that is next to its own, forwards. Returns the number of entries read, and
-- the oldest stamp after the cut if that was read as well.
local function move_on(tier, since, to)
  local period, moved = tier.period, 0
  local first = call('ZRANGEBYSCORE', log, since + 1, '+inf', 'WITHSCORES', 'LIMIT', 0, 2)
  for i = 1, #first, 2 do
    if first[i + 1] - to > 0 then
      return moved, first[i + 1] + 0
    end
    moved, count[period] = moved + 1, count[period] - units_of(first[i])
  end
  if moved == 2 then
    local gone, last = 0, nil
    moved, last = read(since + 1, to, 8, function(it, seen)
      gone = gone + (seen > 2 and it or 0)
      return seen >= LOOKED_AT
    end)
    if moved >= LOOKED_AT then
      if call('ZCOUNT', log, to + 1, '+inf') <= LOOKED_AT then
        -- Fewer are left than have gone.
        gone = count[period] - sum(to + 1, '+inf', 0)
      else
        -- The rest goes with the next calls.
        cut[period] = tonumber(call('ZSCORE', log, last))
        gone = sum(since + 1, cut[period], 2)
      end
    end
    count[period] = count[period] - gone
  end
  return moved
end

-- Counts the units of each tier at `now`. is_new: one was not counted before. has_moved: so many
-- entries were read that a refusal keeps the result. oldest: for each tier the oldest stamp in its
-- window, false if there is none, nil if it is not known.
local is_new, has_moved, oldest = false, false, {}
local function count_tiers()
  for i, tier in ipairs(tiers) do
    local period, to = tier.period, now - tier.length
    local since = cut[period]
    if not since then
      -- It starts with the units of the tier whose cut is next to its own, or without any.
      since, count[period], is_new = 9007199254740991, 0, true
      for other, other_since in pairs(cut) do
        if math.abs(other_since - to) < math.abs(since - to) then
          since, count[period] = other_since, count[other]
        end
      end
    end
    cut[period] = to
    if card == 0 then
      oldest[i] = false
    elseif since > to then
      count[period], oldest[i] = count[period] + sum(to + 1, since, 0), nil
    else
      local moved, stamp = move_on(tier, since, to)
      has_moved = has_moved or moved > KEPT
      oldest[i] = stamp
      if not stamp and moved < 2 then
        oldest[i] = false
      end
    end
  end
end

local function has_room()
  for i = 1, cost > 0 and deciding or 0 do
    if count[tiers[i].period] + cost > tiers[i].threshold then
      return false
    end
  end
  return true
end

-- The units that a peek would take.
local virtual = 0

-- Returns the microseconds until the tier has room for so many units.
local function until_free(tier, units)
  local excess = count[tier.period] + virtual + units - tier.threshold
  if excess <= 0 or units > tier.threshold then
    return 0
  end
  local function see(it, seen)
    excess = excess - it
    return excess <= 0 or seen >= LOOKED_AT
  end
  local seen, last = read(cut[tier.period] + 1, virtual > 0 and now or '+inf', 2, see)
  local stamp
  if virtual > 0 and excess > 0 and seen < LOOKED_AT then
    -- The call's own units leave next, and those of the future after them.
    excess = excess - virtual
    stamp = excess <= 0 and now
    if excess > 0 then
      last = select(2, read(now + 1, '+inf', 2, see))
    end
  end
  stamp = stamp or last and call('ZSCORE', log, last) or now
  return math.max(stamp + tier.length - now, 1)
end

if op == ADVANCE then
  local entries, last = entries_of(tonumber(ARGV[4]), cost)
  local request_id, at, told = string.match(ARGV[5], '(%d+) (%d+) (%d+)')
  local stamp = birth and tonumber(call('ZSCORE', log, last) or nil)
  if not stamp then
    -- The entry of a turn that came long ago has left the log.
    local has_come = birth == tonumber(told) and at - now <= 0
    return has_come and { tonumber(at), 0 } or {}
  end
  local is_first = stamp > now
  if is_first then
    read(now + 1, '(' .. string.format('%.0f', stamp), 2, function(_, _, entry)
      is_first = is_lease(entry)
      return not is_first
    end)
  end
  if not is_first then
    return { stamp, math.max(stamp - now, 0) }
  end
  count_tiers()
  -- Turns that lie ahead are charged after this one.
  local ahead, earliest = 0, now
  read(stamp, '+inf', 512, function(it, _, entry)
    ahead = ahead + (is_lease(entry) and 0 or it)
  end)
  for i = 1, deciding do
    local tier = tiers[i]
    local excess = count[tier.period] - ahead + cost - tier.threshold
    if excess > 0 then
      local _, gone = read(cut[tier.period] + 1, now, 2, function(it, seen)
        excess = excess - it
        return excess <= 0 or seen >= LOOKED_AT
      end)
      earliest = excess > 0 and stamp or math.max(earliest, call('ZSCORE', log, gone) + tier.length)
    end
    if excess > 0 then
      break
    end
  end
  if earliest >= stamp then
    return { stamp, stamp - now, earliest > stamp and 1 or nil }
  end
  local arguments = {}
  push(arguments, earliest, entries)
  call('ZADD', log, unpack(arguments))
  arguments = { -birth, 'g' }
  if mode == NAMED then
    push(arguments, -1024 * earliest, { 'r' .. request_id })
  end
  if stamp == last_turn then
    push_end(arguments)
  end
  for period, since in pairs(cut) do
    if stamp > since and earliest <= since then
      count[period] = count[period] - cost
    end
  end
  now = earliest
  count_tiers()
  for period in pairs(cut) do
    push_tier(arguments, period)
  end
  write(arguments)
  return { earliest, earliest - arrival }
end

if last_turn > now and promised - now <= shortest then
  now = last_turn
elseif last_turn > 0 then
  forget_turns()
end
count_tiers()
