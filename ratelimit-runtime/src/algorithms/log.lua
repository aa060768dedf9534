-- Sliding window: an exact log of calls with their units on one sorted set, for one or several tiers.
--
-- KEYS[1]        the log. While all calls take one unit, it has
--                entry   score: the microsecond of its record; member: an id, and 8 digits of units
--                header  "@": -(milliseconds * 2^17 + units), the longest period and the largest threshold of all
--                        policies that have written to it
--                From the first call on that takes more, may wait or has a request id, it has these headers instead,
--                and names:
--                header  score from -2^53 up to 0: "g" is -birth, the microsecond from which on it has them;
--                        "#<period>" is -1 - units, and "@<period>" is -cut, for each tier in use;
--                        while calls wait, ">" is the last of their turns, and "<" when it was promised;
--                        "p" is the end of a pause, which ">" is not before
--                name    score below -2^53: -1024 * microsecond; member: "r" and a request id; beside it, if
--                        the id of the entry does not follow from both, "i", the request id and that id
-- ARGV, reply    as in `arguments.lua` and `names.lua`; a tier has its period, in microseconds, and its threshold
--
-- Rule: a call is admitted if and only if for every tier the units in (now - period, now] plus its
-- cost are at most the threshold, and the log has room for an entry. All tiers are charged, or none.
--
-- While turns lie ahead, a call is decided as if it came at the last one. One that may wait is charged at
-- its turn, the microsecond at which it is admitted there. Without a turn it is refused. An advance moves the
-- first turn that lies ahead to the microsecond at which it has room. A clock that stepped back by more than a
-- period since the last promise forgets it, and a pause.
--
-- Invariant: under the header "@" the log keeps the units that are younger than the longest period, the newest ones,
-- up to the largest threshold. So no policy misses units that it counts.
--
-- Invariant: of each tier in the other header, also one of another policy, the units are those of the
-- entries after its cut. A tier that has not recorded for its period is dropped, and counted anew if
-- it returns. Entries at or before every cut are removed.
--
-- Ids: what belongs to a charge is named by its id: the charge itself, +1 its excess, +2 the charge
-- once it is settled, and +3 units on lease. Units that do not fit into 8 digits are further entries,
-- each +4. Ids from 9e10 on are nobody's.

local call, ARGV = redis.call, ARGV
local log, mode, id = KEYS[1], ARGV[MODE], ARGV[ID]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- The straight way of most calls, in few commands: they take one unit, and all tiers decide. It answers as
-- those in `log`, and leaves to them, with nothing done, every other call, and every log that has another
-- header, or units of the future. Numbers are slow to format, as arguments of a command and as scores
-- in a reply: most arguments are strings, and few scores are read.
local final = #mode > 1 and (ARGV[DECIDING] == '1' and TIERS or TIERS - 2 + 2 * ARGV[DECIDING])
if final and ARGV[OP] == TAKE and ARGV[COST] == '1' and not ARGV[final + 2] then
  local card = call('ZCARD', log)
  local units, longest, largest, is_one = card - 1, ARGV[final] + 0, ARGV[final + 1] + 0, final == TIERS
  -- A table costs as much as a command.
  local numbers = not is_one and {}
  for i = TIERS, is_one and 0 or final, 2 do
    local period, threshold = ARGV[i] + 0, ARGV[i + 1] + 0
    numbers[i], numbers[i + 1] = period, threshold
    longest = period > longest and period or longest
    largest = threshold > largest and threshold or largest
  end

  local is_known, leaves, expired, first = card == 0, longest, nil, nil
  if card == 0 then
    units = 0
  elseif card > 1 then
    -- The header, and the oldest unit of the longest window. Mostly one unit at most has left it.
    first = call('ZRANGE', log, '0', units < largest and '2' or '1', 'WITHSCORES')
    -- A log keeps units for longer than a period that is no whole milliseconds.
    is_known = first[1] == '@' and first[2] == mode and longest % 1000 == 0
    leaves = first[4] + longest - now
  end
  if is_known and leaves <= 0 then
    expired, leaves = '1', first[6] and first[6] + longest - now or 0
    if leaves <= 0 then
      expired = call('ZCOUNT', log, '0', now - longest)
      if expired < units then
        leaves = call('ZRANGE', log, expired + 1, expired + 1, 'WITHSCORES')[2] + longest - now
      end
    end
    units = units - expired
  end
  is_known = is_known and leaves > 0 and leaves <= longest

  -- Of a refusal the tier with the longest wait. No wait is longer than that for the newest unit.
  local tier, remaining, wait, last, lives
  if not is_known then
    units = largest
  elseif is_one and units == largest then
    wait, last = leaves, call('ZRANGE', log, '-1', '-1', 'WITHSCORES')[2] + 0
  elseif not is_one then
    lives = {}
    for i = final, TIERS, -2 do
      local period, threshold, live = numbers[i], numbers[i + 1], units
      if period < longest and not wait then
        live = units + (expired or 0) - call('ZCOUNT', log, '0', now - period)
      end
      lives[i] = live
      if live >= threshold and not (wait and last + period - now < wait) then
        local until_left = leaves + period - longest
        if units ~= threshold then
          local unit = call('ZRANGE', log, -threshold, -threshold, 'WITHSCORES')[2]
          until_left = unit + period - now
        end
        if until_left > 0 and (not wait or until_left >= wait) then
          tier, wait = (i - TIERS) / 2, until_left
          last = last or call('ZRANGE', log, '-1', '-1', 'WITHSCORES')[2] + 0
        end
      end
    end
  end
  if wait and last <= now then
    return { -id, wait, last + longest - now, tier and 0, now, tier }
  end

  if not wait and units < largest then
    -- A command for this many units takes less than a millisecond.
    local entry, AT_ONCE = id .. '00000001', 500
    if expired and units + expired > AT_ONCE then
      -- As below, a large log is trimmed only beyond its capacity.
      expired = math.min(units + expired + 1 - largest, AT_ONCE + 1)
    end
    if expired and expired + 0 > 0 then
      call('ZREMRANGEBYRANK', log, '1', expired)
    end
    local micros = time[2]
    if #micros < 6 then
      micros = string.sub('00000' .. micros, -6)
    end
    local added
    if card == 0 then
      added = call('ZADD', log, mode, '@', time[1] .. micros, entry)
    else
      added = call('ZADD', log, 'NX', time[1] .. micros, entry)
    end
    if added > 0 then
      call('PEXPIRE', log, ARGV[DETAIL])
      if is_one then
        return { id + 0, leaves, longest, largest - units - 1, now }
      end
      -- Of an admission the tier with the fewest units left, of those the one with the longest wait.
      for i = TIERS, final, 2 do
        local period, live = numbers[i], lives[i]
        local left = numbers[i + 1] - live - 1
        if not tier or left <= remaining then
          local until_left = period
          if live == units then
            until_left = leaves + period - longest
          elseif live > 0 then
            local rank = -live - 1 .. ''
            until_left = call('ZRANGE', log, rank, rank, 'WITHSCORES')[2] + period - now
          end
          if not tier or left < remaining or until_left > wait then
            tier, remaining, wait = (i - TIERS) / 2, left, until_left
          end
        end
      end
      return { id + 0, wait, longest, remaining, now, tier }
    end
    -- Another call has the same id: this one gets another.
  end
end

