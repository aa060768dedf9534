-- A policy of calls in flight alone: a call that finds a permit is admitted.
--
-- Returns        {1, remaining}, where `remaining` permits are free after the call

local free = ...
return { 1, math.max(free - needed, 0) }
