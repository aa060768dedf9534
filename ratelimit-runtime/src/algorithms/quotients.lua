-- Whole quotients, exact up to 2^53; a plain division would round.
local function divide(a, b)
  return (a - a % b) / b
end

local function divide_up(a, b)
  local rest = a % b
  return (a - rest) / b + (rest > 0 and 1 or 0)
end
