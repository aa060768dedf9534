-- The call of `rule`, whose text comes before: it reads the state, and writes one that has changed.

local stored = redis.call('GET', key)

-- Writes the state. It decides like an absent one after this many microseconds; without them, it expires
-- as before.
local function write(text, lasts)
  if lasts then
    local ttl = math.floor(lasts / 1000) + 999
    redis.call('SET', key, text, 'PX', ttl)
  else
    redis.call('SET', key, text, 'KEEPTTL')
  end
end

if op == SETTLE then
  local is_same = stored and tonumber(string.match(stored, '%d+')) == tonumber(ARGV[4])
  local raised = ARGV[3] - cost
  local change = raised > 0 and 'raise' or 'lower'
  local reply, text, lasts = rule(stored, now, change, math.abs(raised), false, tonumber(ARGV[5]))
  if reply then
    return reply
  end
  if not is_same and (raised <= 0 or now < tonumber(ARGV[8])) then
    return {}
  end
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
  if redis.call('ZADD', KEYS[2], 'NX', now + ARGV[7], ARGV[6]) == 0 then
    return {}
  end
  local latest = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
  redis.call('PEXPIRE', KEYS[2], math.floor((latest - now) / 1000) + 999)
  if raised ~= 0 then
    write(text, lasts)
  end
  return {}
end

local reply, text, lasts = rule(stored, now, op, cost, ARGV[3] == '1')
if text then
  write(text, lasts)
end
return reply
