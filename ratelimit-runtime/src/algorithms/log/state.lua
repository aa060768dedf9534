-- The state of a log, and its functions. `open(log, ARGV, now)` returns the state, which most others take as their
-- first argument. They need `member`, `units_of` and `lasting` of `entry.lua`.

local call = redis.call
local MOST_UNITS, CROWDED, NAMES, HEADER, MAX_OTHERS = 99999999, 90000, 22499999900, '-9007199254740992', 8

-- The header "@" is a multiple of this and the units that the log keeps, at most so many.
local CAPACITIES, MOST_SINGLE = 131072, 100000

-- Reading this many entries takes less than a millisecond. A refusal that has read some keeps what
-- they add up to.
local LOOKED_AT, KEPT, AT_ONCE = 4096, 64, 500

-- The members of the header, by what they are in the state.
local FIELDS = { g = 'birth', ['>'] = 'last_turn', ['<'] = 'promised', p = 'pause', l = 'lease_end' }

-- Returns the member that keeps the id of the entry of a request id.
local function named_entry(request_id, id)
  return string.format('i%s %.0f', request_id, id)
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

-- Returns the id that follows from a request id and the microsecond of its charge.
local function id_of(request_id, at)
  -- Below 9e10 with all further entries of the charge.
  return 4 + 4 * ((request_id % NAMES + at % NAMES) % NAMES)
end

-- Appends the arguments that record entries.
local function push(arguments, stamp, entries)
  for _, entry in ipairs(entries) do
    arguments[#arguments + 1] = stamp
    arguments[#arguments + 1] = entry
  end
end

-- Counts for a period no more.
local function drop(state, period)
  state.dropped[#state.dropped + 1] = '#' .. period
  state.dropped[#state.dropped + 1] = '@' .. period
  state.count[period], state.cut[period] = nil, nil
end

-- Returns the state of a log, of which the tiers count as of the last decision:
--
-- log, arrival, now         the key, the microsecond of the call, and that of its decision
-- birth                     nil if there is no log
-- capacity                  the units that a log with the header "@" keeps, nil with another one
-- card, headers             the members of the log, and those of its header
-- last_turn, promised, pause, lease_end
--                           as in the header, 0 without one
-- count, cut                the units of each period, and the microsecond after which they count
-- tiers, deciding           period, length and threshold of each tier, and the number of those that decide
-- longest, shortest, keep   the periods of those, and the longest one that the log counts
-- others                    the periods of other policies, which are counted while they are used
-- dropped                   members of the header that the next `write` removes
-- is_new, has_moved         a tier was not counted before, and so many entries were read that a refusal keeps
--                           the result
-- virtual                   the units that a peek would take
local function open(log, ARGV, now)
  local op, count, cut, tiers, others, is_own = ARGV[OP], {}, {}, {}, {}, {}
  local state = {
    log = log, arrival = now, now = now, card = 0, count = count, cut = cut, tiers = tiers,
    deciding = tonumber(ARGV[DECIDING]), others = others, dropped = {}, last_turn = 0, promised = 0, pause = 0,
    lease_end = 0, keep = 0, longest = 0, shortest = math.huge, is_new = false, has_moved = false, virtual = 0,
  }
  local header = call('ZRANGEBYSCORE', log, HEADER, '(0', 'WITHSCORES')
  for i = 1, #header, 2 do
    local kind, period, number = string.sub(header[i], 1, 1), string.sub(header[i], 2), -header[i + 1]
    if header[i] == '@' then
      state.capacity = number % CAPACITIES
      state.birth, state.keep = now, (number - state.capacity) / CAPACITIES * 1000
    elseif kind == '#' then
      count[period] = number - 1
    elseif kind == '@' then
      cut[period] = number
    elseif FIELDS[kind] then
      state[FIELDS[kind]] = number
    end
  end
  state.headers = #header / 2
  state.card = op ~= SETTLE and call('ZCARD', log) or 0
  if not state.birth and state.card > 0 then
    -- Members without a header count as single units.
    state.birth, state.capacity = now, 0
  end

  for i = TIERS, op == SETTLE and 0 or #ARGV, 2 do
    local period, length = ARGV[i], tonumber(ARGV[i])
    if not is_own[period] then
      is_own[period], state.keep = true, math.max(state.keep, length)
      tiers[#tiers + 1] = { period = period, length = length, threshold = tonumber(ARGV[i + 1]) }
      if #tiers <= state.deciding then
        state.longest, state.shortest = math.max(state.longest, length), math.min(state.shortest, length)
      end
    end
  end
  for period, since in pairs(cut) do
    if not is_own[period] then
      others[#others + 1] = period
    end
  end
  if state.capacity then
    for period in pairs(is_own) do
      cut[period] = now - period
      count[period] = call('ZCOUNT', log, cut[period] + 1, '+inf')
    end
  end
  if #others > 0 and op ~= SETTLE then
    -- The one that recorded last comes first.
    table.sort(others, function(one, other)
      local a, b = cut[one] + one, cut[other] + other
      return a > b or a == b and one + 0 > other + 0
    end)
    for i = #others, 1, -1 do
      local latest = math.max(cut[others[i]] + others[i], state.last_turn, state.lease_end)
      if i > MAX_OTHERS or latest + others[i] < state.now then
        drop(state, table.remove(others, i))
      end
    end
  end
  for _, period in ipairs(others) do
    state.keep = math.max(state.keep, period)
  end

  -- A lease is shorter than any period. After a clock has stepped back, its end may lie in the future.
  if state.lease_end - state.arrival > state.keep then
    state.dropped[#state.dropped + 1], state.lease_end = 'l', 0
  end
  return state
end

-- Sets the expiry of a log with a record of this microsecond, or with turns or a lease's end after it.
local function expire(state, at)
  local ahead = math.max(math.max(at, state.last_turn, state.lease_end) - state.arrival, 0)
  call('PEXPIRE', state.log, lasting(state.keep + ahead))
end

-- Ends the line and the pause.
local function forget_turns(state)
  for _, kind in ipairs({ '>', '<', 'p' }) do
    state.dropped[#state.dropped + 1] = kind
  end
  state.last_turn, state.pause = 0, 0
end

-- Appends the end of the line after its last turn is given back or has moved: the newest entry that is no
-- lease, or the end of a pause.
local function push_end(state, arguments)
  local index, newest = 0, nil
  repeat
    index = index - 1
    newest = call('ZRANGE', state.log, index, index, 'WITHSCORES')
    local is_ahead = newest[2] - state.arrival > 0
  until not (is_ahead and is_lease(newest[1]))
  local last = math.max(newest[2], state.pause)
  if last > state.arrival then
    push(arguments, -last, { '>' })
  else
    call('ZREM', state.log, '>', '<', 'p')
  end
end

-- Writes a header, and other members.
local function write(state, arguments)
  if #state.dropped > 0 then
    call('ZREM', state.log, unpack(state.dropped))
    state.dropped = {}
  end
  call('ZADD', state.log, unpack(arguments))
end

local function push_tier(state, arguments, period)
  push(arguments, -1 - state.count[period], { '#' .. period })
  push(arguments, -state.cut[period], { '@' .. period })
end

-- Makes a log with the header "@" one that counts for each tier, and for the longest period so far.
local function count_for_tiers(state, arguments)
  if not state.capacity then
    return
  end
  local period = string.format('%.0f', state.keep)
  if not state.cut[period] then
    state.cut[period] = state.arrival - state.keep
    state.count[period] = call('ZCOUNT', state.log, state.cut[period] + 1, '+inf')
    state.others[#state.others + 1] = period
    push_tier(state, arguments, period)
  end
  push(arguments, -state.birth, { 'g' })
  state.dropped[#state.dropped + 1] = '@'
  state.capacity = nil
end

-- Writes the header "@" of a log, if one of the tiers needs another.
local function keep_units(state)
  local keep, largest = math.ceil(state.keep / 1000), state.capacity or 0
  for _, tier in ipairs(state.tiers) do
    largest = math.max(largest, math.min(tier.threshold, MOST_SINGLE))
  end
  local score = string.format('-%.0f', keep * CAPACITIES + largest)
  if state.capacity == 0 then
    call('ZREMRANGEBYSCORE', state.log, '-inf', '(0')
  end
  state.keep, state.capacity = keep * 1000, largest
  if call('ZADD', state.log, 'CH', score, '@') > 0 then
    expire(state, state.now)
  end
end

-- Records one unit in a log with the header "@", or in one that has none.
local function record_unit(state, entry)
  keep_units(state)
  -- Of a larger log this could remove too many at once. It is trimmed by rank below.
  if state.card > 0 and state.card <= AT_ONCE then
    call('ZREMRANGEBYSCORE', state.log, 0, state.now - state.keep)
  end
  call('ZADD', state.log, state.now, entry)
  -- Units beyond the largest threshold, the oldest ones, never decide.
  local surplus = call('ZCARD', state.log) - 1 - state.capacity
  if surplus > 0 then
    call('ZREMRANGEBYRANK', state.log, 1, math.min(surplus, 1 + AT_ONCE))
  end
  for period in pairs(state.cut) do
    state.count[period] = state.count[period] + 1
  end
  expire(state, state.now)
end

-- Reads entries from one microsecond up to another, few at first, until `see` returns true for the
-- units of one, their number so far, and the entry. Returns the number of those that were read, and the
-- last one.
local function read(state, from, to, size, see)
  local seen, last = 0, nil
  repeat
    local entries = call('ZRANGEBYSCORE', state.log, from, to, 'LIMIT', seen, size)
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

-- Returns the units of the entries from one microsecond up to another.
local function sum(state, from, to)
  local units = 0
  read(state, from, to, 512, function(it)
    units = units + it
  end)
  return units
end

-- Moves the cut of a tier that is next to its own, forwards. Returns the number of entries read.
local function move_on(state, period, since, to)
  local gone = 0
  local moved, last = read(state, since + 1, to, 8, function(it, seen)
    gone = gone + it
    return seen >= LOOKED_AT
  end)
  if moved >= LOOKED_AT then
    if call('ZCOUNT', state.log, to + 1, '+inf') <= LOOKED_AT then
      -- Fewer are left than have gone.
      gone = state.count[period] - sum(state, to + 1, '+inf')
    else
      -- The rest goes with the next calls.
      state.cut[period] = tonumber(call('ZSCORE', state.log, last))
      gone = sum(state, since + 1, state.cut[period])
    end
  end
  state.count[period] = state.count[period] - gone
  return moved
end

-- Counts the units of each tier at `now`.
local function count_tiers(state)
  for _, tier in ipairs(state.tiers) do
    local period, to = tier.period, state.now - tier.length
    local since = state.cut[period]
    if not since then
      -- It starts with the units of the tier whose cut is next to its own, or without any.
      since, state.count[period], state.is_new = 9007199254740991, 0, true
      for other, other_since in pairs(state.cut) do
        if math.abs(other_since - to) < math.abs(since - to) then
          since, state.count[period] = other_since, state.count[other]
        end
      end
    end
    state.cut[period] = to
    if state.card > 0 and since > to then
      state.count[period] = state.count[period] + sum(state, to + 1, since)
    elseif state.card > 0 and since < to then
      state.has_moved = move_on(state, period, since, to) > KEPT or state.has_moved
    end
  end
end

-- Returns true if all tiers that decide have room for so many units.
local function has_room(state, cost)
  for i = 1, cost > 0 and state.deciding or 0 do
    if state.count[state.tiers[i].period] + cost > state.tiers[i].threshold then
      return false
    end
  end
  return true
end

-- Returns the microseconds until the tier has room for so many units.
local function until_free(state, tier, units)
  local excess = state.count[tier.period] + state.virtual + units - tier.threshold
  if excess <= 0 or units > tier.threshold then
    return 0
  end
  if state.capacity then
    -- Each entry is a unit: the one that has to leave is known by its rank from the newest.
    local rank = tier.threshold - units + 1
    if state.virtual > 0 then
      -- Units of the future, after a clock has stepped back, are newer than the call's own.
      local ahead = call('ZCOUNT', state.log, state.now + 1, '+inf')
      local is_own = rank > ahead and rank - state.virtual <= ahead
      rank = is_own and 0 or rank > ahead and rank - state.virtual or rank
    end
    local stamp = rank > 0 and call('ZRANGE', state.log, -rank, -rank, 'WITHSCORES')[2] or state.now
    return math.max(stamp + tier.length - state.now, 1)
  end
  local function see(it, seen)
    excess = excess - it
    return excess <= 0 or seen >= LOOKED_AT
  end
  local seen, last = read(state, state.cut[tier.period] + 1, state.virtual > 0 and state.now or '+inf', 2, see)
  local stamp
  if state.virtual > 0 and excess > 0 and seen < LOOKED_AT then
    -- The call's own units leave next, and those of the future after them.
    excess = excess - state.virtual
    stamp = excess <= 0 and state.now
    if excess > 0 then
      last = select(2, read(state, state.now + 1, '+inf', 2, see))
    end
  end
  stamp = stamp or last and call('ZSCORE', state.log, last) or state.now
  return math.max(stamp + tier.length - state.now, 1)
end

-- Returns the microseconds until all tiers that decide have room for so many units.
local function until_all_free(state, units)
  local wait = 0
  for i = 1, state.deciding do
    wait = math.max(wait, until_free(state, state.tiers[i], units))
  end
  return wait
end

-- Returns the microsecond after which an entry is counted, also if the line gets shorter.
local function oldest_counted(state)
  local oldest_cut = state.now
  for period, since in pairs(state.cut) do
    oldest_cut = math.min(oldest_cut, since, state.arrival - period)
  end
  return oldest_cut
end

-- Returns the microsecond from which no policy counts the oldest entry that is counted, of this microsecond. Another
-- policy counts it as of its last decision, until it is dropped.
local function uncounted_from(state, oldest)
  local from = 0
  for _, tier in ipairs(state.tiers) do
    from = math.max(from, oldest + tier.length)
  end
  for _, period in ipairs(state.others) do
    local used = state.cut[period] + period
    if oldest + period > math.min(used, state.arrival) then
      from = math.max(from, math.max(used, state.last_turn, state.lease_end) + period + 1)
    end
  end
  return from
end

-- Returns the number of entries that the log keeps.
local function size_of_log(state)
  local size = state.card - state.headers
  return size < CROWDED and size or call('ZCOUNT', state.log, oldest_counted(state) + 1, '+inf')
end
