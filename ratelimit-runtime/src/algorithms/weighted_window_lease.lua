-- The lease of a weighted window, between the counting of the tiers and the decision of `decide`: gives the
-- old entry back, and sets the units to take.
--
-- Reads `arrival`, `now`, `birth`, `log`, `cut`, `tiers` and `deciding` of `decide`, and the request in
-- `lease.lua`. Sets for the decision:
--   op, cost         TAKE and the units that the process gets, or PEEK and 1 if there are none
--   card, count      the size of the log and the units of each period, without what is given back
--   lease_end        the latest end of a lease in the log, with that of the units
--   units            the units that the process gets

if old.units > 0 and birth == old.birth then
  local entry = member(old.id, old.units)
  local stamp = tonumber(call('ZSCORE', log, entry) or nil)
  if stamp then
    -- The units count from the last use.
    local used_at, arguments = math.min(stamp, old.at + old.age, arrival), { -birth, 'g' }
    call('ZREM', log, entry)
    if old.used > 0 then
      push(arguments, used_at, { member(old.id, old.used) })
    else
      card = card - 1
    end
    for period, since in pairs(cut) do
      count[period] = count[period] - (stamp > since and old.units or 0)
      count[period] = count[period] + (used_at > since and old.used or 0)
      push_tier(arguments, period)
    end
    write(arguments)
  end
end

if want == 0 then
  redis.call('HDEL', asking, process)
  return {}
end

local free = now == arrival and math.huge or 0
for i = 1, deciding do
  free = math.min(free, math.max(tiers[i].threshold - count[tiers[i].period], 0))
end
units = share_of(free, read_demands(arrival))
op, cost = units > 0 and TAKE or PEEK, math.max(units, 1)
lease_end = units > 0 and math.max(lease_end, arrival + length) or lease_end

