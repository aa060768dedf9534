local admitted, newest = has_room(), nil
if not admitted then
  newest = call('ZRANGE', log, -1, -1, 'WITHSCORES')[2]
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

-- A repeated call is admitted, and not charged again.
local id, at, repeated, name = tonumber(ARGV[4]), nil, false, nil
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
  id = 4 + 4 * ((id % NAMES + at % NAMES) % NAMES)
end

-- full: microseconds until an entry can be added, if the log has as many as it may.
local own, full = not repeated and (admitted or mode == COUNT_REJECTED) and cost or 0, nil
local entries, is_joined, joined, its_id, units
local lowest = oldest_counted()
if own > 0 then
  entries, units = entries_of(id, own), own
  local size = size_of_log()
  if size >= CROWDED and mode ~= NAMED and now == arrival then
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
    push(arguments, -1024 * now, { name })
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
    local leaves
    if not admitted then
      leaves = until_free(it, cost)
    elseif oldest[i] == nil or count[it.period] + virtual > it.threshold then
      leaves = until_free(it, left + 1)
    elseif oldest[i] then
      leaves = (own > 0 and math.min(oldest[i], now) or oldest[i]) + it.length - now
    else
      leaves = own > 0 and it.length or 0
    end
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
