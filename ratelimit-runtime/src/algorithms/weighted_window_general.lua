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

-- Replies with the microseconds of entries, 0 for those that are gone.
if op == TURNS then
  local turns = {}
  for i = 5, #ARGV, 2 do
    local _, last = entries_of(tonumber(ARGV[i]), tonumber(ARGV[i + 1]))
    turns[#turns + 1] = tonumber(call('ZSCORE', log, last) or 0)
  end
  return turns
end

-- Appends the arguments that record entries.
local function push(arguments, stamp, entries)
  for _, entry in ipairs(entries) do
    arguments[#arguments + 1] = stamp
    arguments[#arguments + 1] = entry
  end
end

-- The header: the birth, and for each period the cut and the units after it.
local birth, last_turn, promised, pause, lease_end, count, cut = nil, 0, 0, 0, 0, {}, {}
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
  elseif kind == 'p' then
    pause = -header[i + 1]
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
local ttl = lasting(keep)

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

-- Ends the line and the pause.
local function forget_turns()
  for _, kind in ipairs({ '>', '<', 'p' }) do
    dropped[#dropped + 1] = kind
  end
  last_turn, pause = 0, 0
end

-- Appends the end of the line after its last turn is given back or has moved: the newest entry that is no
-- lease, or the end of a pause.
local function push_end(arguments)
  local index, newest = 0, nil
  repeat
    index = index - 1
    newest = call('ZRANGE', log, index, index, 'WITHSCORES')
    local is_ahead = newest[2] - arrival > 0
  until not (is_ahead and is_lease(newest[1]))
  local last = math.max(newest[2], pause)
  if last > arrival then
    arguments[#arguments + 1], arguments[#arguments + 2] = -last, '>'
  else
    call('ZREM', log, '>', '<', 'p')
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
      if mode == NAMED and tonumber(call('ZSCORE', log, 'r' .. ARGV[10]) or nil) == -1024 * stamp then
        call('ZREM', log, 'r' .. ARGV[10], named_entry(ARGV[10], id))
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

-- Returns the units of the entries from one microsecond up to another.
local function sum(from, to)
  local units = 0
  read(from, to, 512, function(it)
    units = units + it
  end)
  return units
end

-- Moves the cut of a tier that is next to its own, forwards. Returns the number of entries read.
local function move_on(period, since, to)
  local gone = 0
  local moved, last = read(since + 1, to, 8, function(it, seen)
    gone = gone + it
    return seen >= LOOKED_AT
  end)
  if moved >= LOOKED_AT then
    if call('ZCOUNT', log, to + 1, '+inf') <= LOOKED_AT then
      -- Fewer are left than have gone.
      gone = count[period] - sum(to + 1, '+inf')
    else
      -- The rest goes with the next calls.
      cut[period] = tonumber(call('ZSCORE', log, last))
      gone = sum(since + 1, cut[period])
    end
  end
  count[period] = count[period] - gone
  return moved
end

-- Counts the units of each tier at `now`. is_new: one was not counted before. has_moved: so many
-- entries were read that a refusal keeps the result.
local is_new, has_moved = false, false
local function count_tiers()
  for _, tier in ipairs(tiers) do
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
    if card > 0 and since > to then
      count[period] = count[period] + sum(to + 1, since)
    elseif card > 0 then
      has_moved = move_on(period, since, to) > KEPT or has_moved
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
  local ahead, earliest = 0, math.max(now, pause)
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
    push(arguments, -1024 * earliest, { 'r' .. request_id, named_entry(request_id, ARGV[4]) })
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
