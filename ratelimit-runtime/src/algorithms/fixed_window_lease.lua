-- Leases of a fixed window: they end with the first window of any period, so that units are used in the
-- windows that count them.

local without_room

-- Returns the microseconds for which units that were taken now may be used, at most a length.
local function allowed_in(numbers, length, now)
  local allowed = length
  for i = 3, #numbers, 4 do
    allowed = math.min(allowed, numbers[i + 2] + numbers[i] - now)
  end
  return allowed
end

