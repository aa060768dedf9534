-- The names of the values of MODE in `arguments.lua`, and of the numbers of a reply. Of these, the last ones are left
-- out if they follow from the others.
--
--   VERDICT    ID, negative unless the call was admitted, or the operation had an effect
--   WAIT       microseconds until the same call is admitted, or, if this one was, until more than REMAINING units are
--              available. In a log with very many entries this and MORE may be too short, never too long
--   RESET      microseconds until the full quota is available; a refusal without it has found no permit free
--   REMAINING  units left in the tier; if left out 0
--   AT         microsecond at which the call was charged: of a repeated id, the first time; 0 of one that a gate, a
--              line or a pause refuses
--   TIER       index from 0 of the tier that is reported: of a refusal the one with the longest wait, of an admission
--              the one with the fewest units left; if left out 0
--   MORE       microseconds until REMAINING + 1 units are available, if left out WAIT; if the call was admitted, until
--              its turn, and 0 if it passes now: the other numbers are those of its turn
--   BIRTH      microsecond at which the state was created; 0 of a log with the header "@", also if left out
--   ENTRY      id of the call's entry in a log, negative if it has joined one that no id names; if left out ID
--   ALLOWED    of a lease: microseconds for which its units may be used, counted from the request
--   UNITS      of a lease
--
-- Other operations reply VERDICT, and an advance that finds the turn also its microsecond, the time until then, and 1
-- if the tiers have room only later, otherwise 0; a pause its end; turns their microseconds, 0 for one that is gone.

local PLAIN, COUNT_REJECTED, REPEATED, NAMED, JOINED = '0', '1', '2', '4', '5'
local VERDICT, WAIT, RESET, REMAINING, AT, TIER, MORE, BIRTH, ENTRY, ALLOWED, UNITS = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11

