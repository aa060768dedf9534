-- rule(ARGV, stored, now, op, cost, count_rejected, taken_at, least, turns) -> reply, text, lasts, is_new
--
-- The rule of the algorithms that count for each tier. It reads and writes no key.
--
-- ARGV, reply      as in `arguments.lua` and `names.lua`; of the arguments only the tiers are read. The verdict of a
--                  peek or a take is 1 or 0; other operations have no reply, unless the text is no state of this
--                  algorithm
-- stored           text of the state, false or nil without one
-- now              microsecond of the decision
-- op               '0' peeks, '1' takes, 'lower' gives units back, 'raise' takes them whatever room there
--                  is, in every count of the state
-- cost             number of these units
-- count_rejected   of a peek or a take: true if refused calls are recorded too
-- taken_at         of 'lower': microsecond at which the units were taken
-- least            of 'lower': the units that each window keeps at least, of those that it has
-- turns            of a 'raise' that is followed by others: the cost and the microsecond of each, also of the
--                  first, and the birth in the reply to its call
-- text             of the state after that, nil if it has not changed
-- lasts            microseconds after which the state decides like an absent one; nil if as before
-- is_new           of a peek or a take: true if the state has not counted for one of the tiers
--
-- The file of an algorithm comes before, and defines its constants and the functions of one count, a table. In one
-- table as a parameter, they take 5 % more of the server at a threshold of 100.
--
-- KIND, PATTERN, LETTER       the kind of a state in an error, the pattern of its text, and the first letter
-- NUMBERS, ARGUMENTS          how many numbers a count has in the text at least, and a tier among the arguments
-- COUNTS_REFUSED              true if refused calls are counted where their policy counts them; if not, a
--                             refusal is no write either
-- decode(numbers, i)          -> the count from the i-th number on, and the position of the next one
-- encode(it)                  -> its numbers as text
-- new_count(ARGV, i, now)     -> a count without units, for the tier from the i-th argument on
-- is_same(it, other)          -> true if both count the same units
-- carry(it, others, last, now)
--                             gives a new count the units that others, last written at `last`, have recorded, and
--                             `since` when it has the units of all charges
-- advance(it, last, now, ARGV, first)
--                             moves a count to now -> true if the clock had stepped back behind it. The tiers are
--                             the arguments from the first one on
-- are_renewed(counts)         -> true if they are like those of an absent state
-- set_tier(it, ARGV, i)       sets the numbers by which a count decides
-- has_room(it, units, now)    -> true if so many units can be taken
-- left_of(it, now)            -> units that the tier has left
-- until_free(it, units, now)  -> microseconds until it has so many, or as many as ever
-- lasts_for(it, now)          -> microseconds until the count is as if it had never counted
-- take(it, units)             takes units, or records those of a refused call -> how many these are in the
--                             counts of other policies
-- follow(it, units, charged)  takes units that a call under another policy has taken, which is a charge of a
--                             microsecond if it was admitted
-- raise(it, units)            takes units whatever room there is
-- lower(it, units, at, last, least, limit)
--                             gives back units of a charge of a microsecond, as far as the count has them -> how
--                             many it had, nil for all. It took over at most `limit` of an earlier charge than
--                             its first

local ARGV, stored, now, op, cost, count_rejected, taken_at, least, turns = ...
local LOWER, RAISE = 'lower', 'raise'

-- Counts of other policies that are kept too; beyond, the least recently used are dropped.
local OTHERS = 8

local deciding, numbers = tonumber(ARGV[DECIDING]), numbers_of(stored)
local saved, is_whole = counts_of(numbers, NUMBERS, decode)
if stored and not (is_whole and string.find(stored, PATTERN)) then
  return redis.error_reply('WRONGTYPE the value is not a ' .. KIND)
end
local birth, last = numbers[1] or now, numbers[2] or now

local function text_of(at, counts)
  local words = { string.format('%s%.0f %.0f', LETTER, birth, at) }
  for i, it in ipairs(counts) do
    words[i + 1] = encode(it)
  end
  return table.concat(words, ' ')
end

-- A count has taken over no more of an earlier charge than those that were there before.
if op == LOWER then
  local oldest_first, since, limit, fewest = { unpack(saved) }, 0, cost, cost
  table.sort(oldest_first, function(a, b) return a.since < b.since end)
  for _, it in ipairs(oldest_first) do
    if it.since > since then
      since, limit = it.since, fewest
    end
    fewest = math.min(fewest, lower(it, cost, taken_at, last, least or 0, limit) or cost)
  end
  return nil, text_of(last, saved)
end

-- The counts as of now, with the units of turns that come before.
local is_ahead, turn = false, 1
while true do
  for _, it in ipairs(saved) do
    is_ahead = advance(it, last, now, ARGV, TIERS) or is_ahead
  end
  if are_renewed(saved) then
    birth = turns and turns[turn + 2] or now
  end
  if not turns or turn + 3 >= #turns then
    break
  end
  for _, it in ipairs(saved) do
    raise(it, cost)
  end
  turn, last = turn + 3, now
  cost, now = turns[turn], turns[turn + 1]
end
last = math.min(last, now)

-- Adds the count of the tier from an argument on, unless it was added before. A policy is counted from its
-- first call on, even if that call is refused.
local counts, is_new = {}, false
local function add(i)
  local new = new_count(ARGV, i, now)
  for _, it in ipairs(counts) do
    if is_same(it, new) then
      return
    end
  end
  for _, it in ipairs(saved) do
    if is_same(it, new) then
      it.is_added, counts[#counts + 1] = true, it
      return
    end
  end
  is_new = true
  if #saved > 0 then
    carry(new, saved, last, now)
  end
  counts[#counts + 1] = new
end

if op == RAISE then
  if #saved == 0 then
    add(TIERS)
    saved = counts
  end
  local lasts = 0
  for _, it in ipairs(saved) do
    raise(it, cost)
    lasts = math.max(lasts, lasts_for(it, now))
  end
  return nil, text_of(now, saved), lasts
end

for i = TIERS, #ARGV, ARGUMENTS do
  add(i)
end
local admitted = true
for i = 1, deciding do
  set_tier(counts[i], ARGV, TIERS + ARGUMENTS * (i - 1))
  admitted = admitted and (cost == 0 or has_room(counts[i], cost, now))
end
local takes = admitted or COUNTS_REFUSED and count_rejected

-- The tier that is reported: of a refusal the one with the longest wait, of an admission the one with the
-- fewest units left, of several the one with the longest wait.
local tier, remaining, wait, reset, taken = nil, nil, nil, 0, 0
for i = 1, deciding do
  local it = counts[i]
  if takes then
    taken = math.max(taken, take(it, cost))
  end
  local left = left_of(it, now)
  local leaves = until_free(it, admitted and left + 1 or cost, now)
  local is_fewer = admitted and (not tier or left < remaining)
  if not tier or is_fewer or leaves > wait and (left == remaining or not admitted) then
    tier, remaining, wait = i - 1, left, leaves
  end
  reset = math.max(reset, lasts_for(it, now))
end

local more = admitted and 0 or wait
if not admitted and cost > remaining + 1 then
  more = 0
  for i = 1, deciding do
    more = math.max(more, until_free(counts[i], remaining + 1, now))
  end
end

local charged, text, lasts = now, nil, nil
if op == TAKE and (takes or is_ahead or is_new) then
  for _, it in ipairs(saved) do
    if not it.is_added and #counts < deciding + OTHERS then
      counts[#counts + 1] = it
    end
  end
  -- A charge of the microsecond in which a count was added is not one that it has taken over.
  for _, it in ipairs(counts) do
    charged = math.max(charged, it.since)
  end
  lasts = reset
  for i = deciding + 1, #counts do
    follow(counts[i], taken, admitted and charged)
    lasts = math.max(lasts, lasts_for(counts[i], now))
  end
  text = text_of((takes or COUNTS_REFUSED) and now or last, counts)
end
return { admitted and 1 or 0, wait, reset, remaining, charged, tier, more, birth }, text, lasts, is_new
