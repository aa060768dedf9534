-- Leases: a process gives back the units that it has on lease under a key, and takes others ahead. An algorithm
-- gives back and takes: its function `exchange(ARGV, lease, ..)`, of its own arguments and the request.
--
-- KEYS[1]        the state of the algorithm
-- KEYS[2]        the processes with leases: a hash from their ids to "<demand> <asked> <units> <ends>", the
--                units of the calls of a process in the length of a lease, the microsecond of its last request,
--                and the units that it got, with the microsecond at which these end
-- ARGV[1]        id of the process
-- ARGV[2]        units to take; 0 to give back alone
-- ARGV[3]        length of a lease, in microseconds
-- ARGV[4]        units of its calls in this time, at least 1
-- ARGV[5], ..    the lease that it gives back: its units, 0 without one; those of them that were used;
--                microseconds from its request until the last use; microsecond at which it was taken; birth
--                of the state; and id of its entry in a log
-- ARGV[11], ..   arguments of the algorithm, which takes the units, as in `arguments.lua`
-- Returns        the algorithm's reply to the call that takes the units, or to a peek for 1 if it gets none; the
--                verdict alone if none are to be taken
--
-- Rule: units on lease are counted as taken, so that all uses of one lease are as exact as one call. What
-- is not used is given back as of the time at which it was taken.
--
-- A process gets units that are free, at most its part of them by the demands of the processes with a request
-- of late.

local lease = {
  process = ARGV[1],
  want = tonumber(ARGV[2]),
  length = tonumber(ARGV[3]),
  demand = tonumber(ARGV[4]),
  -- The one that is given back.
  old = {
    units = tonumber(ARGV[5]),
    used = tonumber(ARGV[6]),
    age = tonumber(ARGV[7]),
    at = tonumber(ARGV[8]),
    birth = tonumber(ARGV[9]),
    id = tonumber(ARGV[10]),
  },
}
local arguments = { unpack(ARGV, 11) }

-- Lengths of a lease for which a demand counts.
local RECENT = 4

-- Microseconds for which the records are needed: leases of another policy may be longer.
lease.needed = RECENT * lease.length

-- Returns the demand of all processes, and the units that the others have on lease.
local function read_demands(lease, now)
  local all, on_lease, gone = lease.demand, 0, {}
  local asking, latest = KEYS[2], RECENT * lease.length
  local records = redis.call('HGETALL', asking)
  for i = 1, #records, 2 do
    local its, at, units, ends = string.match(records[i + 1], '^(%d+) (%d+) (%d+) (%d+)$')
    local is_recent = its and math.abs(now - at) <= latest
    if records[i] ~= lease.process then
      all = all + (is_recent and its or 0)
      if its and ends - now > 0 and at - now <= latest then
        on_lease = on_lease + units
        lease.needed = math.max(lease.needed, ends - now)
      elseif not is_recent then
        gone[#gone + 1] = records[i]
      end
    end
  end
  if #gone > 0 then
    redis.call('HDEL', asking, unpack(gone))
  end
  return all, on_lease
end

-- Returns the units that the process gets of those that are free.
local function share_of(lease, free, all)
  return math.min(lease.want, free, math.ceil(free * (lease.demand / all)))
end

-- Forgets the process.
local function leave(lease)
  redis.call('HDEL', KEYS[2], lease.process)
end

-- Records the request, the units of its lease, and the end of that.
local function record(lease, now, units, ends)
  local asking = KEYS[2]
  local numbers = string.format('%.0f %.0f %.0f %.0f', lease.demand, now, units, ends)
  redis.call('HSET', asking, lease.process, numbers)
  redis.call('PEXPIRE', asking, string.format('%d', math.ceil(lease.needed / 1000) + 999))
end

