-- What changes a log beside the decision of a call, by the functions of `state.lua`. An operation takes
-- the state that `open` has returned, and arguments.

local call = redis.call

-- Settles a call: replaces its units. Returns true if that changes something.
local function settle(state, cost, mode, entry, detail, period)
  local log, birth, now, count, cut, others = state.log, state.birth, state.now, state.count, state.cut, state.others
  local at, to, its_birth, ends, request_id = string.match(detail, '(%d+) (%d+) (%d+) (%d+) (%d+)')
  local from, id, keep, last_turn = cost, tonumber(entry), birth and state.keep or tonumber(period), state.last_turn
  state.keep, to = keep, tonumber(to)
  local before, last = entries_of(id, from)
  local is_own, is_single = birth == tonumber(its_birth), its_birth == '0'
  local is_named = (is_own or is_single) and birth and mode ~= JOINED
  local stamp = is_named and tonumber(call('ZSCORE', log, last) or nil)
  -- A charge under the header "@" is known by its id alone.
  is_own = is_own or is_single and stamp
  if from == to or not is_own and (to < from or now < tonumber(ends)) then
    return false
  end
  if not stamp and (to < from or is_own and mode ~= JOINED and at + keep > now) then
    -- A charge that is gone although it is young was settled before.
    return false
  end
  if not birth then
    -- The log has expired. A new one starts with what exceeds the charge.
    birth, count[period], cut[period], others = now, 0, now - period, { period }
  end
  local arguments, more = {}, to - from
  if more > 0 then
    count_for_tiers(state, arguments)
    local added, one = entries_of(id + 1, more)
    if not stamp and call('ZSCORE', log, one) then
      return false
    end
    push(arguments, now, added)
  end
  if not state.capacity then
    push(arguments, -birth, { 'g' })
  end
  if stamp then
    call('ZREM', log, unpack(before))
    if to > 0 then
      push(arguments, stamp, entries_of(id + 2, math.min(from, to)))
    else
      if mode == NAMED and tonumber(call('ZSCORE', log, 'r' .. request_id) or nil) == -1024 * stamp then
        call('ZREM', log, 'r' .. request_id, named_entry(request_id, id))
      end
      if stamp == last_turn and stamp > now then
        push_end(state, arguments)
      end
    end
  end
  for _, period in ipairs(others) do
    if (more > 0 and now or stamp) > cut[period] then
      count[period] = count[period] + more
      push_tier(state, arguments, period)
    end
  end
  if #arguments > 0 then
    write(state, arguments)
  end
  if more > 0 then
    expire(state, now)
  end
  return true
end

-- Moves the first turn that lies ahead to the microsecond at which it has room. Returns that, the time until then,
-- and 1 if the tiers have room only later, otherwise 0; nothing if the turn is gone.
local function advance(state, cost, mode, id, detail)
  local entries, last = entries_of(tonumber(id), cost)
  local at, promised_by, request_id = string.match(detail, '(%d+) (%d+) (%d+)')
  local stamp = state.birth and tonumber(call('ZSCORE', state.log, last) or nil)
  if not stamp then
    -- The entry of a turn that came long ago has left the log.
    if state.birth == tonumber(promised_by) and at - state.now <= 0 then
      return at + 0, 0, 0
    end
    return
  end
  -- Under the header "@" nobody waits: a unit of the future is from before the clock has stepped back.
  local is_first = stamp > state.now and not state.capacity
  if is_first then
    read(state, state.now + 1, '(' .. string.format('%.0f', stamp), 2, function(_, _, entry)
      is_first = is_lease(entry)
      return not is_first
    end)
  end
  if not is_first then
    return stamp, math.max(stamp - state.now, 0), 0
  end
  count_tiers(state)
  -- Turns that lie ahead are charged after this one.
  local ahead, earliest = 0, math.max(state.now, state.pause)
  read(state, stamp, '+inf', 512, function(it, _, entry)
    ahead = ahead + (is_lease(entry) and 0 or it)
  end)
  for i = 1, state.deciding do
    local tier = state.tiers[i]
    local excess = state.count[tier.period] - ahead + cost - tier.threshold
    if excess > 0 then
      local _, gone = read(state, state.cut[tier.period] + 1, state.now, 2, function(it, seen)
        excess = excess - it
        return excess <= 0 or seen >= LOOKED_AT
      end)
      earliest = excess > 0 and stamp or math.max(earliest, call('ZSCORE', state.log, gone) + tier.length)
    end
    if excess > 0 then
      break
    end
  end
  if earliest >= stamp then
    return stamp, stamp - state.now, earliest > stamp and 1 or 0
  end
  local arguments = {}
  push(arguments, earliest, entries)
  call('ZADD', state.log, unpack(arguments))
  arguments = { -state.birth, 'g' }
  if mode == NAMED then
    push(arguments, -1024 * earliest, { 'r' .. request_id, named_entry(request_id, id) })
  end
  if stamp == state.last_turn then
    push_end(state, arguments)
  end
  for period, since in pairs(state.cut) do
    if stamp > since and earliest <= since then
      state.count[period] = state.count[period] - cost
    end
  end
  state.now = earliest
  count_tiers(state)
  for period in pairs(state.cut) do
    push_tier(state, arguments, period)
  end
  write(state, arguments)
  -- The policy may be another than that of the calls so far.
  expire(state, stamp)
  return earliest, earliest - state.arrival, 0
end

-- A pause is an empty turn. The turns that lie ahead come as much later as the first of them has to, so that
-- no window of them gets more units. Returns its end, or nothing if its microsecond has come.
local function pause(state, at, length)
  local ends, arguments = state.arrival + length, {}
  if at > 0 and at <= state.arrival then
    return
  end
  if ends <= state.pause then
    return state.pause
  end
  count_for_tiers(state, arguments)
  local later, moved = 0, {}
  read(state, state.arrival + 1, state.last_turn, 2, function(_, _, entry)
    later = is_lease(entry) and 0 or math.max(ends - call('ZSCORE', state.log, entry), 0)
    return not is_lease(entry)
  end)
  if later > 0 then
    local members = call('ZRANGEBYSCORE', state.log, state.arrival + 1, '+inf', 'WITHSCORES')
    for i = 1, #members, 2 do
      push(moved, members[i + 1] + later, { not is_lease(members[i]) and members[i] or nil })
    end
    local ahead, named = '(' .. string.format('%.0f', -1024 * state.arrival), {}
    members = call('ZRANGEBYSCORE', state.log, '-inf', ahead, 'WITHSCORES')
    for i = 1, #members, 2 do
      local request_id, score = string.match(members[i], '^.(%d+)'), members[i + 1] - 1024 * later
      push(moved, score, { members[i] })
      -- "i" comes before "r".
      named[request_id] = named[request_id] or string.sub(members[i], 1, 1) == 'i' and score
      if named[request_id] ~= score then
        push(moved, score, { named_entry(request_id, id_of(request_id, members[i + 1] / -1024)) })
      end
    end
  end
  -- `unpack` has room for some thousands of values.
  for i = 1, #moved, 1000 do
    call('ZADD', state.log, unpack(moved, i, math.min(i + 999, #moved)))
  end
  for period, since in pairs(state.cut) do
    -- A tier that was decided for a turn ahead is used when that has come.
    if later > 0 and since + period > state.arrival then
      state.cut[period] = since + later
      if since < state.arrival then
        move_on(state, period, since, since + later)
      else
        state.count[period] = sum(state, since + later + 1, '+inf')
      end
    end
    push_tier(state, arguments, period)
  end
  state.last_turn = math.max(state.last_turn + later, ends)
  push(arguments, -(state.birth or state.arrival), { 'g' })
  push(arguments, -ends, { 'p' })
  push(arguments, -state.last_turn, { '>' })
  push(arguments, -state.arrival, { '<' })
  write(state, arguments)
  expire(state, state.last_turn)
  return ends
end

-- Appends the microseconds of entries, 0 for those that are gone.
local function read_turns(turns, log, charges)
  for id, units in string.gmatch(charges, '(%d+) (%d+)') do
    local _, last = entries_of(tonumber(id), tonumber(units))
    turns[#turns + 1] = tonumber(call('ZSCORE', log, last) or 0)
  end
  return turns
end

-- After a clock has stepped back by more than a period, entries lie in the future. They are moved
-- to now; so many that this would block the server are deleted instead.
local function gather(state)
  if state.now > state.arrival then
    forget_turns(state)
    state.now = state.arrival
    count_tiers(state)
  end
  if call('ZCOUNT', state.log, state.now + 1, '+inf') > AT_ONCE then
    call('UNLINK', state.log)
    state.birth, state.capacity, state.card, state.headers = nil, nil, 0, 0
    state.count, state.cut, state.others, state.dropped = {}, {}, {}, {}
  else
    local arguments, ahead = {}, '(' .. string.format('%.0f', -1024 * state.now)
    count_for_tiers(state, arguments)
    push(arguments, state.now, call('ZRANGEBYSCORE', state.log, state.now + 1, '+inf'))
    push(arguments, -1024 * state.now, call('ZRANGEBYSCORE', state.log, '-inf', ahead))
    for i = #state.others, 1, -1 do
      if state.cut[state.others[i]] >= state.now then
        drop(state, table.remove(state.others, i))
      end
    end
    for _, tier in ipairs(state.tiers) do
      push_tier(state, arguments, tier.period)
    end
    write(state, arguments)
    expire(state, state.now)
  end
  count_tiers(state)
end

-- Gives back the entry of a lease, of which the used units stay. They count from the last use.
local function give_back(state, old)
  local entry = member(old.id, old.units)
  local is_known = old.units > 0 and state.birth == old.birth
  local stamp = is_known and tonumber(call('ZSCORE', state.log, entry) or nil)
  if not stamp then
    return
  end
  local used_at, arguments = math.min(stamp, old.at + old.age, state.arrival), { -state.birth, 'g' }
  call('ZREM', state.log, entry)
  if old.used > 0 then
    push(arguments, used_at, { member(old.id, old.used) })
  else
    state.card = state.card - 1
  end
  for period, since in pairs(state.cut) do
    local gone, used = stamp > since and old.units or 0, used_at > since and old.used or 0
    state.count[period] = state.count[period] - gone + used
    push_tier(state, arguments, period)
  end
  write(state, arguments)
end
