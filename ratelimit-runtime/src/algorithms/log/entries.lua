-- entries(log, ARGV, now) -> the reply
--   log, ARGV, reply   as in `log.lua`
--   now                microsecond of the decision
--
-- It needs the functions of the files before it.

local log, ARGV, now = ...
return straight(log, ARGV, now) or general(log, ARGV, now)
