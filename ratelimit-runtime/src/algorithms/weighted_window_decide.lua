local admitted, newest = op ~= PAUSE and has_room(), nil
if not admitted then
  newest = call('ZRANGE', log, -1, -1, 'WITHSCORES')[2] or 0
  if newest - now > shortest then
    -- After a clock has stepped back by more than a period, entries lie in the future. They are moved
    -- to now; so many that this would block the server are deleted instead.
    if now > arrival then
      forget_turns()
      now = arrival
      count_tiers()
    end
    if call('ZCOUNT', log, now + 1, '+inf') > AT_ONCE then
      call('UNLINK', log)
      birth, card, header, count, cut, others, dropped = nil, 0, {}, {}, {}, {}, {}
    else
      local arguments, ahead = {}, '(' .. string.format('%.0f', -1024 * now)
      push(arguments, now, call('ZRANGEBYSCORE', log, now + 1, '+inf'))
      push(arguments, -1024 * now, call('ZRANGEBYSCORE', log, '-inf', ahead))
      for i = #others, 1, -1 do
        if cut[others[i]] >= now then
          drop(table.remove(others, i))
        end
      end
      for _, tier in ipairs(tiers) do
        push_tier(arguments, tier.period)
      end
      write(arguments)
      expire(now)
    end
    count_tiers()
    admitted, newest = has_room(), nil
  end
end

-- Returns the id that follows from a request id and the microsecond of its charge.
local function id_of(request_id, at)
  return 4 + 4 * ((request_id % NAMES + at % NAMES) % NAMES)
end

-- A pause is an empty turn. The turns that lie ahead come as much later as the first of them has to, so that
-- no window of them gets more units.
if op == PAUSE then
  local ends, arguments = arrival + ARGV[5], {}
  if cost > 0 and cost <= arrival then
    return {}
  end
  if ends <= pause then
    return { pause }
  end
  local later, moved = 0, {}
  read(arrival + 1, last_turn, 2, function(_, _, entry)
    later = is_lease(entry) and 0 or math.max(ends - call('ZSCORE', log, entry), 0)
    return not is_lease(entry)
  end)
  if later > 0 then
    local members = call('ZRANGEBYSCORE', log, arrival + 1, '+inf', 'WITHSCORES')
    for i = 1, #members, 2 do
      push(moved, members[i + 1] + later, { not is_lease(members[i]) and members[i] or nil })
    end
    local ahead, named = '(' .. string.format('%.0f', -1024 * arrival), {}
    members = call('ZRANGEBYSCORE', log, '-inf', ahead, 'WITHSCORES')
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
  for i = 1, #moved, 1000 do
    call('ZADD', log, unpack(moved, i, math.min(i + 999, #moved)))
  end
  for period, since in pairs(cut) do
    -- A tier that was decided for a turn ahead is used when that has come.
    if later > 0 and since + period > arrival then
      cut[period] = since + later
      if since < arrival then
        move_on(period, since, since + later)
      else
        count[period] = sum(since + later + 1, '+inf')
      end
    end
    push_tier(arguments, period)
  end
  last_turn = math.max(last_turn + later, ends)
  push(arguments, -(birth or arrival), { 'g' })
  push(arguments, -ends, { 'p' })
  push(arguments, -last_turn, { '>' })
  push(arguments, -arrival, { '<' })
  write(arguments)
  expire(last_turn)
  return { ends }
end

-- A repeated call is admitted, and not charged again.
local id, at, repeated, name = ARGV[4] + (is_leased and 3 or 0), nil, false, nil
if mode == NAMED then
  name = 'r' .. ARGV[4]
  local score = card > 0 and call('ZSCORE', log, name)
  repeated = score and score / -1024 + longest > arrival
  at = repeated and score / -1024
elseif mode == REPEATED then
  local _, entry = entries_of(id, cost)
  repeated = card > 0 and call('ZSCORE', log, entry)
  at = repeated and repeated + 0
end

-- Returns the microsecond after which an entry is counted, also if the line gets shorter.
local function oldest_counted()
  local oldest_cut = now
  for period, since in pairs(cut) do
    oldest_cut = math.min(oldest_cut, since, arrival - period)
  end
  return oldest_cut
end

-- Returns the number of entries that the log keeps.
local function size_of_log()
  local size = card - #header / 2
  return size < CROWDED and size or call('ZCOUNT', log, oldest_counted() + 1, '+inf')
end

-- Others wait for their turns until `line_end`. The call is decided for its own turn, if it may wait until
-- then; otherwise it is refused at the end of the line.
local line_end, has_turn = now, now == arrival
local function decide_at(microsecond)
  if microsecond ~= now then
    now = microsecond
    count_tiers()
  end
end
local function find_turn(max_wait, max_line)
  if call('ZCOUNT', log, arrival + 1, '+inf') - max_line >= 0
    or size_of_log() + #entries_of(id, cost) > MOST_ENTRIES then
    return false
  end
  local latest, rounds = arrival + max_wait, 0
  while not has_room() do
    local wait = 0
    for i = 1, deciding do
      wait = math.max(wait, until_free(tiers[i], cost))
    end
    rounds = rounds + 1
    if now + wait > latest or rounds > MOST_ROUNDS then
      return false
    end
    decide_at(now + wait)
  end
  return now <= latest
end
local can_wait, turn = op == TAKE and ARGV[5] ~= '0', 0
if repeated then
  if line_end > arrival and at > arrival then
    turn = at - arrival
    has_turn = can_wait and turn - string.match(ARGV[5], '%d+') <= 0
    if has_turn then
      decide_at(at)
    end
  end
  admitted = has_turn or turn == 0
elseif can_wait and not (admitted and has_turn) then
  if find_turn(string.match(ARGV[5], '(%d+) (%d+)')) then
    admitted, has_turn, turn = true, true, now - arrival
  else
    admitted = false
    decide_at(line_end)
  end
else
  admitted = admitted and (has_turn or cost == 0)
end
at = at or now
if mode == NAMED then
  local moved
  for _, it in ipairs(repeated and call('ZRANGEBYSCORE', log, -1024 * at, -1024 * at) or {}) do
    moved = moved or string.match(it, '^i' .. ARGV[4] .. ' (%d+)$')
  end
  id = moved and moved + 0 or id_of(id, at)
end

-- full: microseconds until an entry can be added, if the log has as many as it may.
local own, full = not repeated and (admitted or mode == COUNT_REJECTED) and cost or 0, nil
local entries, is_joined, joined, its_id, units
local lowest = oldest_counted()
if own > 0 then
  entries, units = entries_of(id, own), own
  local size = size_of_log()
  if size >= CROWDED and mode ~= NAMED and not is_leased and now == arrival then
    -- It joins the newest entry, if both are in one part of the shortest period.
    is_joined = true
    local last, part = call('ZRANGE', log, -1, -1, 'WITHSCORES'), math.max(math.floor(shortest / PARTS), 1)
    its_id, units = tonumber(string.sub(last[1], 1, -9)), units_of(last[1]) + own
    if its_id >= NOBODY and units <= MOST_UNITS and last[2] - now <= 0
      and math.floor(last[2] / part) == math.floor(now / part) then
      joined = last[1]
    else
      its_id, units = NOBODY + id % 1999999000, own
    end
    entries = entries_of(its_id, units)
  end
  if not joined and size + #entries > MOST_ENTRIES then
    local first = call('ZRANGEBYSCORE', log, lowest + 1, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    full, own, admitted = math.max(first + longest - now, 1), 0, false
  end
end

virtual = op == PEEK and own or 0
if op ~= PEEK and own > 0 then
  local function is_taken()
    for _, it in ipairs(card > 0 and entries or {}) do
      if call('ZSCORE', log, it) then
        return true
      end
    end
  end
  -- The entries of another call are at most 44.
  local follows = id
  while is_taken() do
    if is_joined then
      its_id = NOBODY + (its_id + 176) % 1999999000
    else
      id = id + 176
    end
    entries = entries_of(is_joined and its_id or id, units)
  end
  local arguments = {}
  push(arguments, now, entries)
  if not birth then
    birth = now
    arguments[#arguments + 1] = -birth
    arguments[#arguments + 1] = 'g'
  end
  if name then
    push(arguments, -1024 * now, { name, id ~= follows and named_entry(ARGV[4], id) or nil })
  end
  if turn > 0 then
    last_turn = now
    arguments[#arguments + 1], arguments[#arguments + 2] = -now, '>'
    arguments[#arguments + 1], arguments[#arguments + 2] = -arrival, '<'
  end
  for period, since in pairs(cut) do
    if now > since then
      count[period] = count[period] + own
      push_tier(arguments, period)
    end
  end
  if card > 0 then
    -- An offset is counted entry by entry, a range is not.
    local until_then = card > AT_ONCE and call('ZCOUNT', log, 0, lowest) > AT_ONCE
      and call('ZRANGEBYSCORE', log, 0, lowest, 'WITHSCORES', 'LIMIT', AT_ONCE - 1, 1)[2]
    call('ZREMRANGEBYSCORE', log, 0, until_then or lowest)
    if name then
      call('ZREMRANGEBYSCORE', log, -1024 * lowest, '(' .. HEADER)
    end
    if joined then
      call('ZREM', log, joined)
    end
  end
  write(arguments)
  expire(now)
elseif op ~= PEEK and (is_new or has_moved) and card > 0 then
  -- A new tier counts from its first call on, even if that is refused.
  local arguments = {}
  for _, tier in ipairs(tiers) do
    push_tier(arguments, tier.period)
  end
  write(arguments)
  if is_new then
    expire(now)
  end
end

local tier, remaining, wait
for i = 1, deciding do
  local it = tiers[i]
  local left = math.max(it.threshold - count[it.period] - virtual, 0)
  if not admitted or not tier or left <= remaining then
    local leaves = until_free(it, admitted and left + 1 or cost)
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
  more = 0
  for i = 1, deciding do
    more = math.max(more, until_free(tiers[i], remaining + 1))
  end
end

local reset = longest
if own == 0 then
  newest = newest or card > 0 and call('ZRANGE', log, -1, -1, 'WITHSCORES')[2] or 0
  reset = math.max(newest + longest - now, 0)
end

if not has_turn then
  local ahead, one = now - arrival, 0
  for i = 1, deciding do
    one = math.max(one, until_free(tiers[i], 1))
  end
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
end

return { admitted and 1 or 0, tier - 1, remaining, wait, reset, more, at, birth or 0, is_joined and -id or id }
