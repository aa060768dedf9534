-- Leases of a token bucket. Its policy leaves out the tokens that are refilled during a lease, and a bucket
-- of another policy that has no lease leaves them out at each lease. The room of the tokens that others have
-- on lease is not filled either, in any bucket: the level and all tokens on lease are then at most a full
-- bucket, and by any later time what was refilled since.

local function allowed_in()
  return length
end

-- Returns the state without what was filled into the room of so many tokens, and the microseconds until it
-- is full.
local function without_room(stored, tokens)
  local numbers, mine = numbers_of(stored), {}
  local is_new = #numbers == 0
  if is_new then
    numbers = { now, now }
  end
  for i = FIRST, FIRST + 3 * ARGV[6] - 1, 3 do
    mine[table.concat({ ARGV[i], ARGV[i + 1], ARGV[i + 2] }, ' ')] = true
    if is_new then
      for _, number in ipairs({ ARGV[i], ARGV[i + 1], ARGV[i + 2], 0, ARGV[i + 2] }) do
        numbers[#numbers + 1] = tonumber(number)
      end
    end
  end
  local elapsed, lasts = math.max(now - numbers[2], 0), 0
  numbers[2] = numbers[2] + elapsed
  for i = 3, #numbers, 5 do
    local token, refill, full, level = numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 4]
    if elapsed >= divide_up(full - level, refill) then
      level = full
    else
      level = level + elapsed * refill
    end
    local is_mine = mine[string.format('%.0f %.0f %.0f', token, refill, full)]
    local room = tokens * token + (is_mine and 0 or length * refill)
    -- A debt is one full bucket at most.
    level = math.min(level, math.max(full - room, -full))
    numbers[i + 4], lasts = level, math.max(lasts, divide_up(full - level, refill))
  end
  for i, number in ipairs(numbers) do
    numbers[i] = string.format('%.0f', number)
  end
  return 'b' .. table.concat(numbers, ' '), lasts
end

