-- Functions of all algorithms that count for each tier. Their state is one string of numbers.

-- Returns the numbers of a state of one string.
local function numbers_of(stored)
  local numbers = {}
  for number in string.gmatch(stored or '', '%-?%d+') do
    numbers[#numbers + 1] = number + 0
  end
  return numbers
end

-- Returns the counts of a state, each of which has so many of its numbers at least, and true if no number is left.
local function counts_of(numbers, size, decode)
  local counts, i = {}, 3
  while i + size - 1 <= #numbers do
    counts[#counts + 1], i = decode(numbers, i)
  end
  return counts, i > 3 and i == #numbers + 1
end

-- Whole quotients, exact up to 2^53; a plain division would round.
local function divide(a, b)
  return (a - a % b) / b
end

local function divide_up(a, b)
  local rest = a % b
  return (a - rest) / b + (rest > 0 and 1 or 0)
end

-- Writes the state, or without a text only its expiry. It decides like an absent one after this many
-- microseconds; without them, it expires as before.
local function write(key, text, lasts)
  if not lasts then
    redis.call('SET', key, text, 'KEEPTTL')
    return
  end
  local ttl = string.format('%d', math.floor(lasts / 1000) + 999)
  if text then
    redis.call('SET', key, text, 'PX', ttl)
  else
    redis.call('PEXPIRE', key, ttl)
  end
end

