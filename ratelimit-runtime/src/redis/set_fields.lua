-- Sets fields of a hash, unless it would have too many, and removes those that are as they were read.
-- ARGV: the most fields, seconds to the end of the hash or 0, the number of arguments about removals, those, then
-- fields and their values.
local key, first = KEYS[1], 4 + ARGV[3]
for at = 4, first - 1, 2 do
  if redis.call('HGET', key, ARGV[at]) == ARGV[at + 1] then
    redis.call('HDEL', key, ARGV[at])
  end
end
local new = 0
for at = first, #ARGV, 2 do
  if not redis.call('HGET', key, ARGV[at]) then
    new = new + 1
  end
end
if new > 0 and redis.call('HLEN', key) + new > tonumber(ARGV[1]) then
  return 0
end
for at = first, #ARGV, 2 do
  redis.call('HSET', key, ARGV[at], ARGV[at + 1])
end
if tonumber(ARGV[2]) > 0 then
  redis.call('PEXPIRE', key, ARGV[2] .. '000')
end
return 1
