-- in_line(key, ARGV, stored, now, reply, text, lasts) -> the reply
--
-- The line: calls that wait for their turns, and what changes the units of a call.
--
-- key, ARGV            as in `per_tier_call.lua`
-- stored               text of the state; an error if the key has another type
-- now                  microsecond of the decision
-- reply, text, lasts   of a peek or a take, what `rule` has returned, if the key is a state
--
-- While turns lie ahead, and for two seconds after the last one, the key is a sorted set:
--   header         score -inf; member "<promised> <number>;<base>;<tail>": the microsecond of the last
--                  promise, the number of the last turn, the state without the turns ahead, and the state
--                  with them, empty if there is none, "?" if the next decision is to fold it
--   turn           score: its microsecond; member "<cost>:<number>:<birth>" with the birth of the reply to its
--                  call; and if it has moved "@" and the microsecond that it had before
--   passed turn    score below 0: -1 * its microsecond; it is in the base, and kept for two seconds. Later a
--                  turn counts as passed if the birth is the same
--
-- Rule: while turns lie ahead, a call is decided as if it came at the last one. One that may wait is charged
-- at its turn, the microsecond at which it is admitted there. Without a turn it is refused. Once a turn has
-- come, the base has its units, whatever room there is: the tail had it. An advance moves the first turn that
-- lies ahead to the microsecond at which the base has room. A clock that stepped back by more than a second
-- since the last promise forgets the line, and keeps its units.
--
-- A turn is found by its microsecond and cost, since equal ones are worth the same. A bucket that is full when
-- a turn comes gets the birth of the reply to its call. If the bucket is not full by then, it keeps its
-- generation: then the units of the turn cannot be given back.

local key, ARGV, stored, now, reply, text, lasts = ...
local op, cost, count_rejected = ARGV[OP], tonumber(ARGV[COST]), ARGV[MODE] == COUNT_REJECTED
local is_line, detail = type(stored) == 'table', ARGV[DETAIL]
local KEPT, STEP, MOST_TAKES, MOST_UNITS, UNKNOWN = 2000000, 1000000, 5, 4294967295, '?'

local base, tail, last, header = stored, nil, now, nil
local promised, number, passed, is_changed = 0, 0, {}, false

-- Returns a reply of `rule`, with the number of the call in place of 1 and 0.
local function named(its_reply)
  its_reply[VERDICT] = its_reply[VERDICT] == 1 and ARGV[ID] + 0 or -ARGV[ID]
  return its_reply
end

local function micros(at)
  return string.format('%.0f', at)
end

local function units_of(turn)
  return tonumber(string.match(turn, '^%d+'))
end

-- Returns a state with the units of turns, and for how long that counts.
local function fold(state, turns)
  if #turns == 0 then
    return state
  end
  local all = {}
  for i = 1, #turns, 2 do
    local units, birth = string.match(turns[i], '^(%d+):%d+:(%d+)')
    local count = #all
    all[count + 1], all[count + 2], all[count + 3] = units + 0, turns[i + 1] + 0, birth + 0
  end
  local _, text, lasts = rule(ARGV, state, all[2], 'raise', all[1], false, nil, nil, all)
  return text, lasts
end

if is_line then
  header, base = redis.pcall('ZRANGE', key, 0, 0)[1], nil
  if header then
    promised, number, base, tail = string.match(header, '^(%d+) (%d+);([^;]+);([^;]*)$')
  end
  if not base then
    -- The value of somebody else.
    return stored
  end
  promised, number = promised + 0, number + 0
  if tail == '' then
    tail = nil
  else
    last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2] + 0
    local is_over = last <= now or promised - now > STEP
    passed = redis.call('ZRANGEBYSCORE', key, '(0', is_over and '+inf' or now, 'WITHSCORES')
    is_changed = #passed > 0
    base = is_over and tail ~= UNKNOWN and tail or fold(base, passed)
    if is_over then
      tail, last = nil, now
    end
  end
end

-- Writes the line, and a turn if there is one. Without `lasts` it expires as before.
local function write_line(lasts, turn, score)
  for i = 1, #passed, 2 do
    redis.call('ZADD', key, -passed[i + 1], passed[i])
  end
  redis.call('ZREMRANGEBYSCORE', key, micros(KEPT - now), '(0')
  local text = string.format('%.0f %.0f;%s;%s', promised, number, base, tail or '')
  if turn then
    redis.call('ZADD', key, micros(score), turn, '-inf', text)
  else
    redis.call('ZADD', key, '-inf', text)
  end
  -- Afterwards, since a set without members is gone, and its expiry with it.
  if header and header ~= text then
    redis.call('ZREM', key, header)
  end
  if lasts then
    write(key, nil, last - now + lasts + KEPT)
  end
end

-- Makes room for a line where its state is. What the server may deny it denies before the state is gone: without
-- memory it denies a write, and while the slot moves away a new key. A key that nobody writes shows the latter.
-- Returns the error.
local function make_room()
  redis.call('SET', key, stored, 'KEEPTTL')
  local probe = redis.pcall('GET', key .. '{' .. key .. '}')
  if type(probe) == 'table' and string.find(probe.err, 'non local', 1, true) then
    return redis.error_reply('TRYAGAIN the slot moves')
  end
  redis.call('UNLINK', key)
end

-- Folds the turns ahead into the base anew. Returns how long the tail counts, nil without a turn.
local function refold()
  local turns = redis.call('ZRANGEBYSCORE', key, '(' .. micros(now), '+inf', 'WITHSCORES')
  if #turns == 0 then
    tail, last = nil, now
    return
  end
  local lasts
  tail, lasts = fold(base, turns)
  last = turns[#turns] + 0
  return lasts
end

-- Returns the turn of a call, and its score.
local function find(at)
  for _, score in ipairs({ micros(at), micros(-at) }) do
    for _, turn in ipairs(redis.call('ZRANGEBYSCORE', key, score, score)) do
      if units_of(turn) == cost then
        return turn, score + 0
      end
    end
  end
  -- An advance whose reply was lost has moved it.
  local turns, moved = redis.call('ZRANGE', key, 1, -1, 'WITHSCORES'), '@' .. micros(at) .. '$'
  for i = 1, #turns, 2 do
    if units_of(turns[i]) == cost and string.find(turns[i], moved) then
      return turns[i], turns[i + 1] + 0
    end
  end
end

-- Returns the number of turns after a microsecond.
local function turns_after(at)
  return redis.call('ZCOUNT', key, '(' .. micros(at), '+inf')
end

-- Leaves the tail to the next decision: of many calls that leave, each would fold all turns. Returns for how
-- long the state counts at most, whatever debt the units of its turns leave.
local function outdate()
  tail = turns_after(now) > 0 and UNKNOWN or nil
  local _, _, lasts = rule(ARGV, base, last, 'raise', MOST_UNITS)
  return lasts
end

-- Returns true if the state was created at this microsecond.
local function is_of(birth)
  return base and tonumber(string.match(base, '%d+')) == tonumber(birth)
end

-- Returns true if turns that lie ahead, or have come of late, are to be found.
local function turns_kept()
  local latest = '(' .. micros(KEPT - now)
  return is_line and (#passed > 0 or redis.call('ZCOUNT', key, '(-inf', latest) > 0)
end

-- Returns true if a turn that comes earlier or not at all may let later ones come too early: several windows
-- start with it.
local function starts_windows()
  local _, numbers = string.gsub(base, ' ', ' ')
  return string.sub(base, 1, 1) == 'w' and numbers > 5
end

-- Finds the first microsecond, from one on up to the latest, at which a state admits the call. Returns it,
-- the reply, the state after that, and how long that counts.
local function search(state, from, latest)
  for _ = 1, MOST_TAKES do
    if from > latest then
      return
    end
    local reply, text, lasts = rule(ARGV, state, from, TAKE, cost, false)
    if reply[VERDICT] == 1 then
      return from, reply, text, lasts
    end
    state, from = text or state, from + reply[WAIT]
  end
end

if op == SETTLE then
  local at, to, birth, ends, settle_id, kept = string.match(detail, '(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)')
  local raised, turn, score = to - cost, nil, nil
  at = at + 0
  if tail and at > now then
    turn, score = find(at)
  end
  local is_ahead, is_due, changed, lasts = turn and score > now, nil, nil, nil
  if is_ahead then
    is_due = raised > 0 or raised < 0 and not (starts_windows() and turns_after(score) > 0)
  else
    local reply
    local change = raised > 0 and 'raise' or 'lower'
    -- A window without a unit would start later, and last into a turn that was promised after its end.
    local least = tail and starts_windows() and 1 or 0
    reply, changed, lasts = rule(ARGV, base, now, change, math.abs(raised), false, at, least)
    if reply then
      return reply
    end
    is_due = is_of(birth) or raised > 0 and now >= tonumber(ends)
  end
  if not is_due then
    return { -ARGV[ID] }
  end
  -- The numbers of settles that nobody sends again.
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
  if redis.call('ZADD', KEYS[2], 'NX', now + kept, settle_id) == 0 then
    return { -ARGV[ID] }
  end
  local latest = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
  redis.call('PEXPIRE', KEYS[2], micros(math.floor((latest - now) / 1000) + 999))
  if raised == 0 then
    return { -ARGV[ID] }
  end
  if not is_line then
    write(key, changed, lasts)
    return { ARGV[ID] + 0 }
  end
  if is_ahead then
    redis.call('ZREM', key, turn)
    if to ~= '0' then
      redis.call('ZADD', key, micros(score), (string.gsub(turn, '^%d+', to)))
    end
  else
    base = changed
  end
  if tail and raised > 0 then
    lasts = refold() or lasts
  elseif tail then
    lasts = outdate()
  end
  write_line(lasts)
  return { ARGV[ID] + 0 }
end

if op == ADVANCE then
  local promised_at, birth = string.match(detail, '(%d+) (%d+)')
  local turn, score
  if is_line then
    turn, score = find(tonumber(promised_at))
  end
  if not turn then
    local is_passed = promised_at - now <= 0 and is_of(birth)
    return is_passed and { ARGV[ID] + 0, promised_at + 0, 0, 0 } or { -ARGV[ID] }
  end
  local at, earliest, late = math.abs(score), nil, 0
  local is_first = tail and score > now and turns_after(now) == turns_after(score - 1)
  if is_first and not (starts_windows() and turns_after(now) > 1) then
    earliest = search(base, now, score)
    late = earliest and 0 or 1
  end
  if not earliest or earliest == score then
    return { ARGV[ID] + 0, at, math.max(at - now, 0), late }
  end
  redis.call('ZREM', key, turn)
  turn = string.match(turn, '^[%d:]+') .. '@' .. micros(score)
  if earliest > now then
    redis.call('ZADD', key, micros(earliest), turn)
  else
    passed[#passed + 1], passed[#passed + 2] = turn, earliest
    base = fold(base, { turn, earliest })
  end
  write_line(outdate())
  return { ARGV[ID] + 0, earliest, earliest - now, 0 }
end

if tail == UNKNOWN then
  is_changed, lasts = true, refold()
end
local can_wait = op == TAKE and detail ~= '0'
local state, first = tail, nil
if tail then
  local _, is_new
  first, _, _, is_new = rule(ARGV, tail, last, PEEK, cost, false)
  if is_new then
    -- The base counts for the call's tiers as well, so that a turn is lost in neither.
    _, base = rule(ARGV, base, now, TAKE, 0, false)
    is_changed, lasts = true, refold()
    state, first = tail, rule(ARGV, tail, last, PEEK, cost, false)
  end
else
  if is_line then
    reply, text, lasts = rule(ARGV, base, now, op, cost, count_rejected)
  end
  can_wait = can_wait and reply[VERDICT] == 0
  if can_wait then
    local changed = text
    first = reply
    if count_rejected then
      first, changed = rule(ARGV, base, now, op, cost, false)
    end
    state = changed or base
  end
end

-- Without a state, the call can never be admitted.
if can_wait and state then
  local max_wait, max_line = string.match(detail, '(%d+) (%d+)')
  local from = last + (first[VERDICT] == 0 and first[WAIT] or 0)
  if (tail and turns_after(now) or 0) - max_line < 0 then
    local turn, its_reply, its_state, its_lasts = search(state, from, now + max_wait)
    if turn then
      base = tail and base or state
      if stored and not is_line then
        local denied = make_room()
        if denied then
          return denied
        end
      end
      tail, last, promised, number = its_state, turn, now, number + 1
      write_line(its_lasts, string.format('%.0f:%.0f:%.0f', cost, number, its_reply[BIRTH]), turn)
      its_reply[MORE], its_reply[AT] = turn - now, turn
      return named(its_reply)
    end
  end
end

if not tail then
  if op == TAKE and text then
    base = text
    if turns_kept() then
      write_line(lasts)
    else
      write(key, text, lasts)
    end
  elseif op == TAKE and is_changed then
    write_line()
  end
  return named(reply)
end

-- The call is refused at the end of the line, with the numbers from now on.
local after, _ = tail, nil
if count_rejected and cost > 0 then
  _, after, lasts = rule(ARGV, tail, last, TAKE, cost, true)
  first = rule(ARGV, after, last, PEEK, cost, false)
end
local one = rule(ARGV, after, last, PEEK, 1, false)
local ahead, until_one = last - now, one[VERDICT] == 0 and one[WAIT] or 0
local reset = ahead + rule(ARGV, after, last, PEEK, 0, false)[RESET]
if op == TAKE and (count_rejected or is_changed) then
  if count_rejected then
    _, text = rule(ARGV, base, now, TAKE, cost, true)
    base, tail = text, after
  end
  write_line(lasts)
end
if cost == 0 then
  return named({ 1, ahead + until_one, reset, 0, last, first[TIER], 0, first[BIRTH] })
end
local has_room = first[VERDICT] == 1
local tier, wait = has_room and 0 or first[TIER], has_room and 0 or first[WAIT]
return named({ 0, ahead + wait, reset, 0, 0, tier, ahead + until_one, first[BIRTH] })
