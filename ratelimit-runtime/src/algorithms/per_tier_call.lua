-- The decision of a call while no others wait: the state is read, and written if it has changed. The text of
-- `rule` comes before. Everything else is left to `per_tier_line.lua`, which follows.

local stored, count_rejected = redis.pcall('GET', key), ARGV[3] == '1'
local is_line = type(stored) == 'table'

local reply, text, lasts
if not is_line and (op == TAKE or op == PEEK) then
  reply, text, lasts = rule(stored, now, op, cost, count_rejected)
  if reply[1] ~= 0 or ARGV[5] == '0' then
    if text then
      write(text, lasts)
    end
    reply[1] = reply[1] == 1 and ARGV[4] + 0 or -ARGV[4]
    return reply
  end
end

