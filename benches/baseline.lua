-- The plain sliding window on a sorted set, made correct: the server's clock, a member for each call,
-- an expiry, and a reply as detailed as ours. The shipped scripts are measured against it.
--
-- KEYS[1]        the log
-- ARGV           as of log.lua, for one tier and a cost of 1
-- Returns        {admitted, tier, remaining, wait, reset}

local log, id, period, threshold = KEYS[1], ARGV[4], tonumber(ARGV[7]), tonumber(ARGV[8])

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

redis.call('ZREMRANGEBYSCORE', log, '-inf', now - period)
local count = redis.call('ZCARD', log)
if count < threshold then
  redis.call('ZADD', log, now, id)
  redis.call('PEXPIRE', log, math.ceil(period / 1000))
  local oldest = redis.call('ZRANGE', log, 0, 0, 'WITHSCORES')[2]
  return { 1, 0, threshold - count - 1, oldest + period - now, period }
end
local oldest = redis.call('ZRANGE', log, 0, 0, 'WITHSCORES')[2]
local newest = redis.call('ZRANGE', log, -1, -1, 'WITHSCORES')[2]
return { 0, 0, 0, oldest + period - now, newest + period - now }
