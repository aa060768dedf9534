-- The names of arguments and operations. Those of modes and of the numbers of a reply are in `names.lua`: the straight
-- way of most calls needs none of them, and would pay for each. `names.rs` has the same, and a test compares both.
--
--   OP         one of the operations below
--   COST       units to take, 0 only in a peek; of a settle and an advance those that were taken; of a pause its
--              microsecond, after which it is none, or 0
--   MODE       PLAIN; COUNT_REJECTED if refused calls are recorded too; REPEATED if a call of this id may have been
--              decided before: if so, it is admitted and not charged again; NAMED if the id is a request id, of which
--              the same is true; of a settle JOINED if the call has joined an entry that no id names. Or the score of
--              the header "@" that the tiers need which decide, if a log of their calls has no other header
--   ID         number that the reply names: of a charge in a log the id of its entry, a multiple of 4 from 4 to 9e10,
--              or the request id, below 2^51; of a settle or an advance the entry's, or without entries the birth or
--              the microsecond of the charge; otherwise any
--   DETAIL     numbers with a space between them. Take: microseconds that the call may wait for its turn, and the
--              turns that may lie ahead then; "0" without a wait; with a score in MODE, the milliseconds after which
--              the log expires. Settle: microsecond of the charge; units that it takes instead; birth of the state,
--              0 of a log with the header "@"; microsecond before which the state cannot have expired; the request
--              id, 0 without one, or without entries the number of the settle; and microseconds for which that is
--              kept. Advance: microsecond of the turn, birth of the state that promised it, and the request id.
--              Pause: its length. Turns: id and units of each charge
--   DECIDING   number of tiers that decide; further ones are only counted
--   TIERS      index of the first number of the first tier. Further tiers follow, with as many numbers each

local PEEK, TAKE, SETTLE, ADVANCE, PAUSE, TURNS = '0', '1', '2', '3', '4', '5'
local OP, COST, MODE, ID, DETAIL, DECIDING, TIERS = 1, 2, 3, 4, 5, 6, 7

