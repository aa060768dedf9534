-- Leases of windows: they end with the first window of any period, so that units are used in the windows that
-- count them. Until then the weight of a counter's earlier window only falls.

local without_room

-- Returns the microseconds for which units that were taken now may be used, at most a length.
local function allowed_in(numbers, length, now)
  for i = 3, #numbers, NUMBERS do
    length = math.min(length, ends_in(decode(numbers, i), now))
  end
  return length
end

