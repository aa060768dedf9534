-- A policy of calls in flight alone: a call that finds a permit is admitted.

return { 1, 0, 0 }
