-- general(log, ARGV, now, returned, grant) -> the reply
--
-- The general way of a log, which decides every call.
--
-- log, ARGV, reply   as in `log.lua`
-- now                microsecond of the decision
-- returned, grant    of an exchange of leases: the lease that is given back; and grant(free) -> units, ends: the
--                    units to take of those that are free, and the end of their lease; nil to take none
--
-- It needs the functions of `state.lua` and `changes.lua`.

local log, ARGV, now, returned, grant = ...
local MOST_UNITS, MOST_ENTRIES, CROWDED, PARTS, MOST_ROUNDS = 99999999, 100000, 90000, 4096, 8
local call, NOBODY, HEADER = redis.call, 90000000000, '-9007199254740992'
local op, mode, cost, detail = ARGV[OP], ARGV[MODE], tonumber(ARGV[COST]), ARGV[DETAIL]
local is_leased = grant ~= nil

-- Returns the reply to another operation than a decision, which has an effect if there is a number.
local function done(number, ...)
  return { number and ARGV[ID] + 0 or -ARGV[ID], number, ... }
end

if op == TURNS then
  return read_turns({ ARGV[ID] + 0 }, log, detail)
end
local state = open(log, ARGV, now)
if op == SETTLE then
  return { settle(state, cost, mode, ARGV[ID], detail, ARGV[TIERS]) and ARGV[ID] + 0 or -ARGV[ID] }
elseif op == ADVANCE then
  return done(advance(state, cost, mode, ARGV[ID], detail))
end

if state.last_turn > now and state.promised - now <= state.shortest then
  state.now = state.last_turn
elseif state.last_turn > 0 then
  forget_turns(state)
end
count_tiers(state)

if grant then
  -- First, so that the next lease may have what comes back.
  give_back(state, returned)
  -- While calls wait in line, what comes free is theirs.
  local free, ends = state.now == state.arrival and math.huge or 0, nil
  for i = 1, state.deciding do
    local tier = state.tiers[i]
    free = math.min(free, math.max(tier.threshold - state.count[tier.period], 0))
  end
  cost, ends = grant(free)
  if not cost then
    return { -ARGV[ID] }
  end
  -- Without free units, the reply is the refusal of one.
  op, cost = cost > 0 and TAKE or PEEK, math.max(cost, 1)
  state.lease_end = math.max(state.lease_end, ends)
end

local admitted, newest = op ~= PAUSE and has_room(state, cost), nil
if not admitted then
  newest = call('ZRANGE', log, -1, -1, 'WITHSCORES')[2] or 0
  if newest - state.now > state.shortest then
    gather(state)
    admitted, newest = has_room(state, cost), nil
  end
end
if op == PAUSE then
  return done(pause(state, cost, detail))
end

-- A repeated call is admitted, and not charged again.
local id, at, repeated, name = ARGV[ID] + (is_leased and 3 or 0), nil, false, nil
if mode == NAMED then
  name = 'r' .. ARGV[ID]
  local score = state.card > 0 and call('ZSCORE', log, name)
  repeated = score and score / -1024 + state.longest > state.arrival
  at = repeated and score / -1024
elseif mode == REPEATED then
  local _, entry = entries_of(id, cost)
  repeated = state.card > 0 and call('ZSCORE', log, entry)
  at = repeated and repeated + 0
end

-- Others wait for their turns until `line_end`. The call is decided for its own turn, if it may wait until
-- then. Otherwise it is refused at the end of the line.
local line_end, has_turn = state.now, state.now == state.arrival
local function decide_at(microsecond)
  if microsecond ~= state.now then
    state.now = microsecond
    count_tiers(state)
  end
end
local function find_turn(max_wait, max_line)
  if call('ZCOUNT', log, state.arrival + 1, '+inf') - max_line >= 0
    or size_of_log(state) + #entries_of(id, cost) > MOST_ENTRIES then
    return false
  end
  local latest, rounds = state.arrival + max_wait, 0
  while not has_room(state, cost) do
    -- It reads a bounded number of entries, and may return a part of the wait.
    local wait = until_all_free(state, cost)
    rounds = rounds + 1
    if state.now + wait > latest or rounds > MOST_ROUNDS then
      return false
    end
    decide_at(state.now + wait)
  end
  return state.now <= latest
end
local can_wait, turn = op == TAKE and #mode == 1 and detail ~= '0', 0
if repeated then
  if line_end > state.arrival and at > state.arrival then
    turn = at - state.arrival
    has_turn = can_wait and turn - string.match(detail, '%d+') <= 0
    if has_turn then
      decide_at(at)
    end
  end
  admitted = has_turn or turn == 0
elseif can_wait and not (admitted and has_turn) then
  if find_turn(string.match(detail, '(%d+) (%d+)')) then
    admitted, has_turn, turn = true, true, state.now - state.arrival
  else
    admitted = false
    decide_at(line_end)
  end
else
  admitted = admitted and (has_turn or cost == 0)
end
at = at or state.now
if mode == NAMED then
  local moved
  for _, it in ipairs(repeated and call('ZRANGEBYSCORE', log, -1024 * at, -1024 * at) or {}) do
    moved = moved or string.match(it, '^i' .. ARGV[ID] .. ' (%d+)$')
  end
  id = moved and moved + 0 or id_of(id, at)
end

-- full: microseconds until an entry can be added, if the log has as many as it may.
local own, full = not repeated and (admitted or mode == COUNT_REJECTED) and cost or 0, nil
local entries, is_joined, joined, its_id, units
-- The header "@" suffices for one unit that no wait and no id names, up to a threshold.
local is_single = op == TAKE and own == 1 and turn == 0 and mode ~= PLAIN and mode ~= NAMED and not is_leased
  and (state.capacity or not state.birth)
for i = 1, is_single and #state.tiers or 0 do
  is_single = is_single and state.tiers[i].threshold <= MOST_SINGLE
end
local arguments = {}
if op == TAKE and own > 0 and not is_single then
  count_for_tiers(state, arguments)
end
local lowest = oldest_counted(state)
if own > 0 then
  entries, units = entries_of(id, own), own
  local size = size_of_log(state)
  if size >= CROWDED and not is_single and mode ~= NAMED and not is_leased and state.now == state.arrival then
    -- It joins the newest entry, if both are in one part of the shortest period.
    is_joined = true
    local last, part = call('ZRANGE', log, -1, -1, 'WITHSCORES'), math.max(math.floor(state.shortest / PARTS), 1)
    its_id, units = tonumber(string.sub(last[1], 1, -9)), units_of(last[1]) + own
    if its_id >= NOBODY and units <= MOST_UNITS and last[2] - state.now <= 0
      and math.floor(last[2] / part) == math.floor(state.now / part) then
      joined = last[1]
    else
      its_id, units = NOBODY + id % 1999999000, own
    end
    entries = entries_of(its_id, units)
  end
  if not joined and not is_single and size + #entries > MOST_ENTRIES then
    local first = call('ZRANGEBYSCORE', log, lowest + 1, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    full, own, admitted = math.max(uncounted_from(state, first) - state.now, 1), 0, false
  end
end

state.virtual = op == PEEK and own or 0
local its_own = id
if op == TAKE and own > 0 then
  local function is_taken()
    for _, it in ipairs(state.card > 0 and entries or {}) do
      if call('ZSCORE', log, it) then
        return true
      end
    end
  end
  -- The entries of another call are at most 44.
  while is_taken() do
    if is_joined then
      its_id = NOBODY + (its_id + 176) % 1999999000
    else
      id = id + 176
    end
    entries = entries_of(is_joined and its_id or id, units)
  end
end
if is_single then
  record_unit(state, entries[1])
elseif op == TAKE and own > 0 then
  push(arguments, state.now, entries)
  if not state.birth then
    state.birth = state.now
    push(arguments, -state.birth, { 'g' })
  end
  if name then
    push(arguments, -1024 * state.now, { name, id ~= its_own and named_entry(ARGV[ID], id) or nil })
  end
  if turn > 0 then
    state.last_turn = state.now
    push(arguments, -state.now, { '>' })
    push(arguments, -state.arrival, { '<' })
  end
  for period, since in pairs(state.cut) do
    if state.now > since then
      state.count[period] = state.count[period] + own
      push_tier(state, arguments, period)
    end
  end
  if state.card > 0 then
    -- An offset is counted entry by entry, a range is not.
    local until_then = state.card > AT_ONCE and call('ZCOUNT', log, 0, lowest) > AT_ONCE
      and call('ZRANGEBYSCORE', log, 0, lowest, 'WITHSCORES', 'LIMIT', AT_ONCE - 1, 1)[2]
    call('ZREMRANGEBYSCORE', log, 0, until_then or lowest)
    if name then
      call('ZREMRANGEBYSCORE', log, -1024 * lowest, '(' .. HEADER)
    end
    if joined then
      call('ZREM', log, joined)
    end
  end
  write(state, arguments)
  expire(state, state.now)
elseif op == TAKE and state.capacity then
  -- A policy of a larger threshold counts from its first call on, even if that is refused.
  keep_units(state)
elseif op == TAKE and (state.is_new or state.has_moved) and state.card > 0 then
  -- So does a new tier.
  for _, tier in ipairs(state.tiers) do
    push_tier(state, arguments, tier.period)
  end
  write(state, arguments)
  if state.is_new then
    expire(state, state.now)
  end
end

local tier, remaining, wait
for i = 1, state.deciding do
  local it = state.tiers[i]
  local left = math.max(it.threshold - state.count[it.period] - state.virtual, 0)
  -- The wait reads entries: it is left out for a tier that is not shown.
  if not admitted or not tier or left <= remaining then
    local leaves = until_free(state, it, admitted and left + 1 or cost)
    if not tier or admitted and left < remaining or leaves > wait then
      tier, remaining, wait = i, left, leaves
    end
  end
end
if full then
  remaining, wait = 0, math.max(full, wait)
end

local more = admitted and turn or wait
if not admitted and cost > remaining + 1 and not full then
  more = until_all_free(state, remaining + 1)
end

local reset = state.longest
if own == 0 then
  newest = newest or state.card > 0 and call('ZRANGE', log, -1, -1, 'WITHSCORES')[2] or 0
  reset = math.max(newest + state.longest - state.now, 0)
end

if not has_turn then
  local ahead, one = state.now - state.arrival, until_all_free(state, 1)
  remaining, reset = 0, ahead + reset
  if admitted then
    wait = ahead + one
  else
    wait = ahead + wait
    more = full and wait or ahead + one
  end
  if repeated and not admitted then
    wait = turn
  end
  -- Without a microsecond, it is the line that refuses, and not a tier.
  at = (admitted or is_leased) and at or 0
end

local verdict, entry = admitted and ARGV[ID] + 0 or -ARGV[ID], is_joined and -id or id
-- Under the header "@" a charge is known by its id alone.
local birth = not state.capacity and state.birth or 0
return { verdict, wait, reset, remaining, at, tier - 1, more, birth, entry }
