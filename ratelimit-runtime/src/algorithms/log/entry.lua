-- The functions of an entry, and of the time for which a log lasts.

local function member(id, units)
  return string.format('%.0f%08d', id, units)
end

-- Returns the units of an entry, 1 for a member that is none.
local function units_of(entry)
  return tonumber(string.sub(entry, -8)) or 1
end

-- Returns the milliseconds for which a log lasts that is kept for so many microseconds. As a text: Redis 7.2 writes
-- the number 100000000 as 1e+8, which is no integer to it.
local function lasting(keep)
  local ttl = string.format('%d', math.floor(keep / 1000) + 999)
  return ttl
end

