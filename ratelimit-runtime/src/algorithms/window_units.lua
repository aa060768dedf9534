-- The functions of a count that a fixed window and a window of the calendar have in common. Its fields are the
-- `start` of its window, the microsecond at which that is `over`, its `count` of units, and the one from which on
-- these are of all charges, `since`.

local function are_renewed()
  return false
end

local function set_tier(it, ARGV, i)
  it.threshold = tonumber(ARGV[i + 1])
end

local function has_room(it, units)
  return it.count + units <= it.threshold
end

local function left_of(it)
  return math.max(it.threshold - it.count, 0)
end

local function ends_in(it, now)
  return it.over - now
end

local function lasts_for(it, now)
  return it.count > 0 and math.max(ends_in(it, now), 0) or 0
end

local function until_free(it, units, now)
  return has_room(it, units) and 0 or lasts_for(it, now)
end

local function raise(it, units)
  it.count = math.min(it.count + units, 4294967295)
end

local function take(it, units)
  it.count = it.count + units
  return units
end

local follow = raise

local function lower(it, units, at, _, least)
  if it.since <= at then
    it.count = math.max(it.count - units, math.min(it.count, least))
  end
end
