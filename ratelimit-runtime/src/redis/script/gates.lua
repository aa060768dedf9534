-- The gates of a call, which it passes before an algorithm decides. First comes that of blocks, for which a caller
-- is shut out, and then that of permits: a caller's calls in flight, on one sorted set beside the state of the
-- algorithm, which is `decide(ARGV)`.
--
-- KEYS[1]        the state of the algorithm
-- KEYS[2]        the permits: their ids, each with the microsecond from which it is free; and the claims of
--                processes whose calls wait, with a score below 0: -1 * the microsecond from which its place
--                counts, and a member "w<process> <held> <stage> <till>": the permits that it has, 0 if it waits
--                for its first permit, 1 if it has its turn and waits for more, 2 if it has its turn and its
--                last call did not have to wait, and the microsecond from which the claim is void
-- KEYS[3]        the last block, if there are lengths: "level until length lacked", the offences that are not
--                forgiven, the microsecond from which the caller is no longer shut out, the microseconds before
--                it, which are 0 once it is lifted, and the units that its call lacked
-- ARGV[1]        id of the call's permit
-- ARGV[2]        number of permits, 0 if there is no such gate
-- ARGV[3]        timeout of a permit, in microseconds
-- ARGV[4]        1 if the call needs a permit, 0 for a look at what is left; "1 <process> <held>" if the call
--                may wait, with the permits that its process has; "each" for a look at each tier by itself
-- ARGV[5]        the lengths of blocks in microseconds with a space between them, "" without any
-- ARGV[6], ..    arguments of the algorithm, as in `arguments.lua`. A settle is one at 0 units. It passes no gate, and
--                KEYS[2] is then the algorithm's own
-- Returns        the algorithm's reply. WAIT of a refusal without RESET is the time after which the call may ask again
--                for a permit. Without a window REMAINING permits are free after the call.
--                For "each" {verdict, remaining, left, ..}, with the microseconds that are left of a block, and the
--                algorithm's reply to a peek for each tier alone, with 1 or 0 as its verdict
--
-- Rule: a call is admitted if and only if its caller is not blocked, a permit is free and the algorithm admits it.
-- It takes both or nothing. A call that holds its permit already needs no second one.
--
-- A take that the algorithm refuses is an offence: it shuts the caller out for the next length. The refusal of a
-- blocked caller has the longer wait, of the block or of the algorithm, and the rest of the block as MORE.
-- A call of 0 units passes. A call that was charged before the block, and is sent again because its reply was lost,
-- is admitted. Each quiet stretch as long as the last block has forgiven one offence.
--
-- A settle gives units back to a call that takes nothing after all. A block that began while they were taken is for
-- no offence if its call had room without them, and is lifted. That happens once, as the settle does.
--
-- While processes wait, the one with the fewest permits comes first, and of those with as many the one that has
-- waited for longest. Its turn begins with its first permit and lasts for its part of a round, in which it is
-- behind none with as many. Then it is the last one. Others' calls that do not wait get a permit that no claim
-- is for. While permits and claims fit into their number, nobody is behind another.
--
-- Invariant: the set never has more permits than there were when the last of them was added.

local permits, id, most = KEYS[2], ARGV[1], tonumber(ARGV[2])
local timeout, word = tonumber(ARGV[3]), ARGV[4]
local arguments = { unpack(ARGV, 6) }
local cost, is_take = arguments[COST], arguments[OP] == TAKE

-- The time in which each process that waits has its turn.
local ROUND = 1000000

local function micros(at)
  return string.format('%.0f', at)
end

-- Returns the permits that are held. Expired ones are free, although nobody has removed them yet.
local function count_held(now)
  return redis.call('ZCOUNT', permits, '(' .. micros(now), '+inf')
end

-- Removes expired permits, void claims and that of the call's own process. Returns the number of all these and
-- of the claims that are left, the claims of others that wait, and the own claim; nil if the call does not wait.
local function read_claims(now)
  -- The longest time after which a claim is void. A later one is from before a clock has stepped back.
  local LONGEST = 3000000
  local process, mine = string.match(word, '^1 (%d+) (%d+)$')
  local own = process and { process = process, held = mine + 0, since = now }
  local found = redis.call('ZRANGEBYSCORE', permits, '-inf', micros(now), 'WITHSCORES')
  local others, gone = {}, {}
  for i = 1, #found, 2 do
    local since = -found[i + 1]
    if since <= 0 then
      redis.call('ZREMRANGEBYSCORE', permits, 0, micros(now))
      break
    end
    local its, held, stage, till = string.match(found[i], '^w(%d+) (%d+) (%d) (%d+)$')
    local lasts = its and till - now or 0
    if own and its == process then
      gone[#gone + 1] = found[i]
      own.since, own.has_turn = since, stage ~= '0'
    elseif lasts <= 0 or lasts > LONGEST then
      gone[#gone + 1] = found[i]
    elseif stage ~= '2' then
      others[#others + 1] = { held = held + 0, since = since, has_turn = stage == '1' }
    end
  end
  if #gone > 0 then
    redis.call('ZREM', permits, unpack(gone))
  end
  return #found / 2, others, own
end

-- Returns the number of claims that come before the call, and the length of a turn. Ends an own turn that is over.
local function place_of(own, others, now)
  -- No turn is shorter than 50 ms.
  local turn, before = math.max(ROUND / (#others + 1), 50000), 0
  if own and own.has_turn and now - own.since >= turn then
    own.since, own.has_turn = now, false
  end
  for _, it in ipairs(others) do
    local is_before = not own or it.held < own.held
    if own and it.held == own.held and not own.has_turn then
      is_before = not it.has_turn and it.since < own.since
    end
    before = before + (is_before and 1 or 0)
  end
  return before, turn
end

-- Keeps the claim of a process after its call.
local function claim(own, held, stage, till)
  local member = string.format('w%s %.0f %d %.0f', own.process, held, stage, till)
  redis.call('ZADD', permits, micros(-own.since), member)
end

-- After a clock has stepped back, permits of dead processes would stay for longer than a timeout.
local function restamp_late(now)
  local latest = micros(now + timeout)
  local late = { 'ZRANGEBYSCORE', permits, '(' .. latest, '+inf', 'LIMIT', 0, 500 }
  for _, it in ipairs(redis.call(unpack(late))) do
    redis.call('ZADD', permits, 'XX', latest, it)
  end
end

-- Returns the refusal of a caller for whom `left` microseconds of a block are left, and to whom the algorithm
-- replies so.
local function refusal(reply, left)
  local is_refused = reply[VERDICT] <= 0
  local wait = math.max(left, is_refused and reply[WAIT] or 0)
  return { 0, wait, wait, 0, 0, is_refused and reply[TIER] or 0, left }
end

-- Returns the offences that are not forgiven, the end of the last block, its length, and what its call lacked.
local function last_block()
  local stored = redis.call('GET', KEYS[3]) or ''
  local level, till, length, lacked = string.match(stored, '^(%d+) (%d+) (%d+) (%d+)$')
  return tonumber(level or 0), tonumber(till or 0), tonumber(length or 0), tonumber(lacked or 0)
end

local function block_text(level, till, length, lacked)
  return string.format('%d %.0f %.0f %.0f', level, till, length, lacked)
end

-- Keeps a block from now on until its offence is forgiven.
local function keep_block(lengths, level, length, lacked, now)
  local forgiven = length
  for i = 1, math.min(level, #lengths) do
    forgiven = forgiven + lengths[i]
  end
  local ttl = string.format('%d', math.floor(forgiven / 1000) + 999)
  redis.call('SET', KEYS[3], block_text(level, now + length, length, lacked), 'PX', ttl)
end

-- Takes units off what the call of the last block lacked, if it began since they were taken.
local function lift(units, taken)
  local level, till, length, lacked = last_block()
  if length == 0 or till - length < taken then
    return
  end
  lacked = lacked - units
  if lacked <= 0 then
    level, till, length, lacked = level - 1, till - length, 0, 0
  end
  redis.call('SET', KEYS[3], block_text(level, till, length, lacked), 'KEEPTTL')
end

-- Returns the microseconds for which the caller is still blocked, 0 or less if it is not.
local function blocked_for(lengths, now)
  local level, till, length, lacked = last_block()
  if till - now > length then
    -- The clock has stepped back.
    till = now + length
    if is_take then
      keep_block(lengths, level, length, lacked, now)
    end
  end
  return till - now
end

-- Returns the units that a refused call lacks, of several tiers in the one with the fewest left. Where the refusal
-- is recorded as well, none is left.
local function lacked_by(reply)
  local left = cost + 0
  repeat
    left = math.min(reply[REMAINING] or 0, left - 1)
    reply = left > 0 and decide({ PEEK, string.format('%d', left), unpack(arguments, MODE) })
  until not reply or reply[VERDICT] > 0
  return cost - left
end

local function offend(lengths, reply, now)
  local level, till = last_block()
  level = math.min(level, #lengths)
  while level > 0 and till + lengths[level] <= now do
    till = till + lengths[level]
    level = level - 1
  end
  level = math.min(level + 1, #lengths)
  keep_block(lengths, level, lengths[level], lacked_by(reply), now)
  return refusal(reply, lengths[level])
end

-- Decides a call that needs a permit.
local function decide_with_permit(now)
  -- The longest pause of a call that is the first one, and the time for which the claim of a process that does not
  -- ask outlives its pause.
  local LONGEST, GRACE = 100000, 1000000
  local needed = word == '0' and 0 or 1
  local held, claims, before, turn, own = redis.call('ZCARD', permits), 0, 0, ROUND, nil
  if held >= most and is_take then
    local others
    claims, others, own = read_claims(now)
    held, before, turn = held - claims, place_of(own, others, now)
    restamp_late(now)
  elseif held >= most then
    held = count_held(now)
  end
  if needed > 0 and held + before >= most and redis.call('ZSCORE', permits, id) then
    held, before = held - 1, 0
  end
  if needed > 0 and held + before >= most then
    local pause = before == 0 and math.min(LONGEST, turn / 5) or math.min(before * turn, ROUND)
    if own then
      claim(own, own.held, own.has_turn and 1 or 0, now + pause + GRACE)
    end
    return { 0, pause }
  end
  local reply = decide(arguments)
  if is_take and (reply[VERDICT] or 0) > 0 then
    if claims > 0 and own then
      own.since = own.has_turn and own.since or now
      claim(own, own.held + 1, 2, now + ROUND)
    end
    redis.call('ZADD', permits, micros(now + timeout), id)
    if redis.call('PTTL', permits) < timeout / 1000 then
      redis.call('PEXPIRE', permits, micros(math.floor(timeout / 1000) + 999))
    end
  end
  if arguments[DECIDING] == '0' then
    reply[REMAINING] = math.max(most - count_held(now) - (is_take and 0 or needed), 0)
  end
  return reply
end

local reply
if arguments[OP] == SETTLE then
  reply = decide(arguments)
  if (reply[VERDICT] or 0) > 0 then
    lift(cost + 0, string.match(arguments[DETAIL], '%d+') + 0)
  end
else
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local lengths, left = {}, 0
  if ARGV[5] ~= '' then
    for length in string.gmatch(ARGV[5], '%d+') do
      lengths[#lengths + 1] = tonumber(length)
    end
    left = math.max(blocked_for(lengths, now), 0)
  end
  if word == 'each' then
    reply = { 1, math.max(most - count_held(now), 0), left }
    local width = (#arguments - DECIDING) / arguments[DECIDING]
    for first = TIERS, #arguments, width do
      local tier = { unpack(arguments, first, first + width - 1) }
      local looked = decide({ PEEK, '0', PLAIN, arguments[ID], '0', '1', unpack(tier) })
      if looked.err then
        return looked
      end
      looked[VERDICT] = looked[VERDICT] > 0 and 1 or 0
      reply[#reply + 1] = looked
    end
  elseif left > 0 and cost ~= '0' then
    local look = decide({ PEEK, unpack(arguments, COST) })
    -- A call that is sent again after it was charged was blocked later.
    local is_charged = is_take and arguments[MODE] == REPEATED and (look[VERDICT] or 0) > 0 and look[AT] < now
    if not look.err and not is_charged then
      reply = refusal(look, left)
    end
  end
  if not reply then
    reply = most > 0 and decide_with_permit(now) or decide(arguments)
    -- One without RESET has found no permit free, or is an error.
    if lengths[1] and is_take and reply[RESET] and reply[VERDICT] <= 0 then
      reply = offend(lengths, reply, now)
      reply[AT] = now
    end
  end
end
reply[VERDICT] = (reply[VERDICT] or 0) > 0 and arguments[ID] + 0 or -arguments[ID]
return reply
