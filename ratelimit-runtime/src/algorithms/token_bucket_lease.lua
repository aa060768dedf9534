-- Leases of a token bucket. Its policy leaves out the tokens that are refilled during a lease, and a bucket
-- of another policy that has no lease leaves them out at each lease. The room of the tokens that others have
-- on lease is not filled either, in any bucket: the level and all tokens on lease are then at most a full
-- bucket, and by any later time what was refilled since. From its end on, the room of a lease is filled. It needs
-- the functions of `token_bucket.lua`.

-- Returns the units that a lease gives back so many microseconds after its end: those whose room was not filled.
local function come_back(stored, units, late)
  local most = units
  for _, it in ipairs(late > 0 and counts_of(numbers_of(stored), NUMBERS, decode) or {}) do
    most = math.min(most, units - divide_up(late * it.refill, it.token))
  end
  return most
end

-- Returns the state without what was filled into the room of so many tokens, and the microseconds until it
-- is full.
local function without_room(ARGV, stored, tokens, length, now)
  local numbers, mine = numbers_of(stored), {}
  local buckets = counts_of(numbers, NUMBERS, decode)
  for i = TIERS, TIERS + ARGUMENTS * (ARGV[DECIDING] - 1), ARGUMENTS do
    mine[#mine + 1] = new_count(ARGV, i)
  end
  buckets = stored and buckets or mine
  local birth, last, lasts = numbers[1] or now, numbers[2] or now, 0
  local words = { string.format('b%.0f %.0f', birth, math.max(last, now)) }
  for i, it in ipairs(buckets) do
    advance(it, last, now)
    local is_mine = false
    for _, own in ipairs(mine) do
      is_mine = is_mine or is_same(it, own)
    end
    local room = tokens * it.token + (is_mine and 0 or length * it.refill)
    -- A debt is one full bucket at most.
    it.level = math.min(it.level, math.max(it.full - room, -it.full))
    words[i + 1], lasts = encode(it), math.max(lasts, lasts_for(it))
  end
  return table.concat(words, ' '), lasts
end

