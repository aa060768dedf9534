-- The body of `rule`, up to the text of an algorithm.

local TAKE, LOWER, RAISE = '1', 'lower', 'raise'
local deciding = tonumber(ARGV[6])

-- Counts of other policies that are kept too; beyond, the least recently used are dropped.
local OTHERS = 8

-- The numbers of the state, none if there is no state.
local birth, last, numbers = now, now, {}
if stored then
  local count = 0
  for number in string.gmatch(stored, '%-?%d+') do
    count = count + 1
    numbers[count] = number + 0
  end
  birth, last = numbers[1], numbers[2]
end

-- Returns the text of the state, its counts by `encode`.
local function text_of(letter, encode, at, counts)
  local words = { string.format('%s%.0f %.0f', letter, birth, at) }
  for i, it in ipairs(counts) do
    words[i + 1] = encode(it)
  end
  return table.concat(words, ' ')
end

-- Chooses the tier that is reported, the one at an index or the one before: of a refusal the one with the
-- longest wait, of an admission the one with the fewest units left, of several the one with the longest
-- wait.
local admitted, tier, remaining, wait = true, nil, nil, nil
local function choose(admitted, index, left, leaves, tier, remaining, wait)
  local closer = admitted and (not tier or left < remaining)
  if not tier or closer or leaves > wait and (left == remaining or not admitted) then
    return index - 1, left, leaves
  end
  return tier, remaining, wait
end

-- Appends the stored counts that are of other policies to those of the call.
local function append_others(counts, saved)
  for _, it in ipairs(saved) do
    if not it.is_added and #counts < deciding + OTHERS then
      counts[#counts + 1] = it
    end
  end
end

