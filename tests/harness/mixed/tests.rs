//! Each rule is broken by a history: a checker that finds nothing is worth nothing.

mod blocks;
mod candidates;
mod charges;
mod failover;
mod levers;
mod numbers;
mod pauses;
mod permits;
mod reasons;
mod shares;
mod warnings;

use super::*;

/// The start of a window of a sliding counter.
const START: u64 = 1_000_000_000;
const SECOND: u64 = 1_000_000;
const MS: u64 = 1_000;

const LEDGER: usize = 0;
const TOKENS: usize = 1;
const FIXED: usize = 2;
const COUNTER: usize = 3;
const SLOTS: usize = 4;
const BARRED: usize = 6;
const GATE: usize = 7;
const CREDIT: usize = super::CREDIT;

/// The history of some processes.
#[derive(Clone, Default)]
struct Story {
    processes: Vec<ProcessNotes>,
    gaps: Vec<Gap>,
    outages: Vec<Span>,
    losses: Vec<Span>,
    kills: Vec<Span>,
    audits: Vec<Audit>,
    left_over: Vec<String>,
    calls: u64,
}

/// A call, whose times are after [`START`].
#[derive(Clone, Copy)]
struct Told {
    process: usize,
    limit: usize,
    cost: u64,
    asked: u64,
    answered: u64,
    max_wait: u64,
    promised: Option<u64>,
    reply: Reply,
    id: u64,
    is_leased: bool,
    is_joint: bool,
    leave: u64,
    is_small: bool,
    blocks: usize,
    warn_at: u64,
    budget: u8,
}

const AT_ONCE: Reply = Reply::Admitted { is_counted: true, waited: 0 };

fn told(limit: usize, cost: u64, asked: u64, answered: u64, reply: Reply) -> Told {
    let (process, max_wait, promised, id, is_joint) = Default::default();
    let (leave, is_small) = (0, false);
    Told {
        process,
        limit,
        cost,
        asked,
        answered,
        max_wait,
        promised,
        reply,
        id,
        is_leased: false,
        is_joint,
        leave,
        is_small,
        blocks: 0,
        warn_at: 0,
        budget: 0,
    }
}

/// A call that has waited until its answer.
fn waited(limit: usize, asked: u64, promised: u64, answered: u64) -> Told {
    let reply = Reply::Admitted { is_counted: true, waited: answered - asked };
    let max_wait = SECOND;
    Told { max_wait, promised: Some(promised), ..told(limit, 1, asked, answered, reply) }
}

impl Story {
    fn new() -> Self {
        let process = |number| ProcessNotes {
            lines: Vec::new(),
            number,
            ended: START + 100 * SECOND,
            is_killed: false,
        };
        Self { processes: (0..4).map(process).collect(), ..Self::default() }
    }

    /// Adds an event of a process, whose times are after [`START`]. Returns this story.
    fn note(mut self, process: usize, call: u64, at: u64, mut note: Note) -> Self {
        if let Note::Promised(time)
        | Note::Gap(_, time)
        | Note::Overrides(_, _, time)
        | Note::Slows(_, time)
        | Note::Off(_, time)
        | Note::Share(_, _, time)
        | Note::Scales(_, time)
        | Note::Resets(_, time)
        | Note::Reset(_, time)
        | Note::OfCaller(_, _, _, time)
        | Note::Pauses(_, _, time)
        | Note::Paused(_, _, time) = &mut note
        {
            *time += START;
        }
        if let Note::OfCaller(_, _, until @ 1.., _) = &mut note {
            *until += START;
        }
        self.processes[process].lines.push(NoteLine { call, at: START + at, note });
        self
    }

    /// Adds a call, with further events of it.
    fn call(mut self, it: Told, further: &[(u64, Note)]) -> Self {
        self.calls += 1;
        let Told { process, limit, cost, max_wait, id, is_joint, leave, is_small, .. } = it;
        let Told { is_leased, blocks, warn_at, budget, .. } = it;
        let asks =
            CallNote { limit, cost, max_wait, runtime: 1, id, is_joint, ..Default::default() };
        let asks = CallNote { leave, is_small, blocks, warn_at, budget, ..asks };
        let asks = Note::Asks(CallNote { is_leased, ..asks });
        let call = self.calls;
        let mut story = self.note(process, call, it.asked, asks);
        if let Some(turn) = it.promised {
            story = story.note(process, call, it.asked + 1, Note::Promised(turn));
        }
        story = story.note(process, call, it.answered, Note::Answered(it.reply));
        for (at, note) in further {
            story = story.note(process, call, *at, *note);
        }
        let is_open = matches!(it.reply, Reply::Admitted { .. })
            && further.iter().all(|(_, note)| *note != Note::Ended);
        if is_open { story.note(process, call, it.answered, Note::Ended) } else { story }
    }

    /// Adds calls of one unit that are answered at these times.
    fn calls(self, limit: usize, at: impl IntoIterator<Item = u64>) -> Self {
        at.into_iter().fold(self, |story, at| story.call(told(limit, 1, at, at + 1, AT_ONCE), &[]))
    }

    fn audit(mut self, limit: usize, at: u64, units: u64) -> Self {
        self.audits.push(Audit { limit, span: (START + at, START + at + 10), units });
        self
    }

    /// Returns the broken invariants.
    fn broken(&self) -> Vec<&'static str> {
        let Self { processes, gaps, outages, losses, kills, audits, left_over, .. } = self.clone();
        let mut round = MixedRound::new(&processes, gaps, outages, losses, &kills);
        (round.audits, round.left_over) = (audits, left_over);
        let findings = round.findings();
        eprintln!("{findings}");
        findings.counts().map(|(invariant, _)| invariant).collect()
    }

    #[track_caller]
    fn is_sound(&self) {
        assert_eq!(self.broken(), [""; 0]);
    }

    #[track_caller]
    fn breaks(&self, invariant: &str) {
        assert_eq!(self.broken(), [invariant]);
    }
}

/// Times of so many calls, evenly from one time until another.
fn spread(count: u64, from: u64, until: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |n| from + n * (until - from) / count)
}

#[test]
fn one_unit_too_many_breaks_the_window_of_a_log() {
    let full = Story::new().calls(LEDGER, spread(200, 0, 2 * SECOND - 10));
    full.is_sound();
    full.clone().calls(LEDGER, [SECOND]).breaks("window");
    // The window is over, it may have been decided in another one, or the first one was given back.
    full.clone().calls(LEDGER, [2 * SECOND + 10]).is_sound();
    full.clone().call(told(LEDGER, 1, SECOND, 3 * SECOND, AT_ONCE), &[]).broken();
    let refunded = [(10, Note::Settles(0)), (20, Note::Settled), (21, Note::Ended)];
    let but_one = Story::new().calls(LEDGER, spread(199, 0, 2 * SECOND - 10));
    let with =
        |at| but_one.clone().call(told(LEDGER, 1, 0, 1, AT_ONCE), &refunded).calls(LEDGER, [at]);
    with(SECOND).is_sound();
    with(SECOND).calls(LEDGER, [SECOND + 1]).breaks("window");
}

#[test]
fn debts_repeated_ids_and_calls_without_enforcement_count_as_what_they_are() {
    let settles = |to| [(10, Note::Settles(to)), (20, Note::Settled), (21, Note::Ended)];
    let some = Story::new().calls(LEDGER, spread(198, 100, 2 * SECOND - 10));
    // A debt of one more than fits is no fault, a call after it is.
    some.clone().call(told(LEDGER, 1, 0, 1, AT_ONCE), &settles(2)).is_sound();
    some.clone().call(told(LEDGER, 1, 0, 1, AT_ONCE), &settles(3)).breaks("window");
    let named = |at| Told { id: 5, ..told(LEDGER, 2, at, at + 1, AT_ONCE) };
    some.clone().call(named(0), &[]).call(named(50), &[]).is_sound();
    // What is charged for nothing may come after a debt.
    let full = Story::new().calls(LEDGER, spread(196, 100, SECOND / 2)).call(named(0), &[]);
    let later = |it: (u64, Note)| (SECOND + it.0, it.1);
    let owing = full.call(told(LEDGER, 1, SECOND, SECOND + 1, AT_ONCE), &settles(3).map(later));
    owing.clone().call(named(SECOND + 50), &[]).is_sound();
    // So may the use of a lease from before.
    let leased =
        |at| Told { is_leased: true, ..told(LEDGER, 1, SECOND + at, SECOND + at, AT_ONCE) };
    owing.clone().call(leased(100 * MS), &[]).is_sound();
    owing.clone().call(leased(300 * MS), &[]).breaks("window");
    owing.calls(LEDGER, [SECOND + 50]).breaks("window");
    let uncounted = Reply::Admitted { is_counted: false, waited: 0 };
    let exempt = some.call(told(LEDGER, 9, SECOND, SECOND + 1, uncounted), &[]);
    let off = exempt.note(0, 0, SECOND + 1, Note::Off(LEDGER, SECOND));
    off.note(0, 0, SECOND + 3, Note::Overrides(LEDGER, 0, SECOND + 2)).is_sound();
}

#[test]
fn an_override_or_a_reset_admits_more_and_nothing_else_does() {
    let too_many = Story::new().calls(LEDGER, spread(300, 0, SECOND));
    too_many.breaks("window");
    too_many.clone().note(2, 0, 20, Note::Overrides(LEDGER, 400, 10)).is_sound();
    too_many.clone().note(2, 0, 20, Note::Overrides(FIXED, 400, 10)).breaks("window");
    too_many.clone().note(2, 0, 20, Note::Reset(LEDGER, 10)).is_sound();
    // Its process was killed before it was told.
    let later = || spread(300, 2 * SECOND, 3 * SECOND);
    let begun = Story::new().note(2, 0, 5, Note::Resets(LEDGER, 5));
    begun.clone().calls(LEDGER, later()).is_sound();
    begun.note(2, 0, 8, Note::Reset(LEDGER, 5)).calls(LEDGER, later()).breaks("window");
    // The override was removed long before.
    let before = Story::new().note(2, 0, 20, Note::Overrides(LEDGER, 400, 10)).note(
        2,
        0,
        40,
        Note::Overrides(LEDGER, 0, 30),
    );
    before.clone().calls(LEDGER, spread(300, 2 * SECOND, 3 * SECOND)).breaks("window");
    let mut lost = too_many.clone();
    lost.losses.push((START + 10, START + 20));
    lost.is_sound();
}

#[test]
fn a_waiting_call_is_charged_shortly_before_its_answer() {
    let full = Story::new().calls(LEDGER, spread(199, 0, SECOND));
    let late = |at| full.clone().call(waited(LEDGER, at - SECOND / 2, at, at), &[]);
    late(SECOND + SECOND / 2).is_sound();
    late(SECOND + SECOND / 2)
        .call(waited(LEDGER, SECOND, SECOND * 3 / 2, SECOND * 3 / 2), &[])
        .breaks("window");
    // Its process stood still: its turn may have come before the others.
    let mut stood = Story::new().calls(LEDGER, spread(200, 2_100 * MS, 2_200 * MS));
    stood = stood.call(waited(LEDGER, 1, 10, 2_150 * MS), &[]);
    stood.gaps.push(Gap { process: Some(0), runtime: 0, span: (START + 5, START + 2_149 * MS) });
    assert!(!stood.broken().contains(&"window"));
    stood.gaps.clear();
    assert!(stood.broken().contains(&"window"));
}

#[test]
fn buckets_fixed_windows_and_counters_have_bounds_too() {
    // 30 tokens, and 60 a second.
    let bucket = Story::new().calls(TOKENS, spread(90, 0, SECOND));
    bucket.is_sound();
    bucket.clone().calls(TOKENS, spread(5, 0, SECOND / 2)).breaks("window");
    // Two windows may meet, three do not.
    let fixed = Story::new().calls(FIXED, spread(80, 100, SECOND));
    fixed.is_sound();
    fixed.clone().calls(FIXED, [SECOND / 2]).breaks("window");
    // Half of the window before counts.
    let counter = Story::new().calls(COUNTER, spread(40, 0, SECOND / 10));
    counter.clone().calls(COUNTER, spread(20, 3 * SECOND / 2, 3 * SECOND / 2 + 10)).is_sound();
    counter
        .clone()
        .calls(COUNTER, spread(24, 3 * SECOND / 2, 3 * SECOND / 2 + 10))
        .breaks("window");
}

#[test]
fn a_bucket_that_refills_before_a_refund_has_the_refunded_tokens_too() {
    let of_three = |settle: Option<[u64; 2]>| {
        let notes = settle.map(|[asked, applied]| {
            [(asked, Note::Settles(0)), (applied, Note::Settled), (applied + 1, Note::Ended)]
        });
        let call = told(TOKENS, 3, 0, MS, AT_ONCE);
        Story::new().call(call, notes.as_ref().map_or(&[][..], |notes| &notes[..]))
    };
    // 29 are there when the refund comes, and are taken. The 3 refunded ones follow.
    let with_calls = |story: Story| {
        story.calls(TOKENS, spread(29, 40 * MS, 42 * MS)).calls(TOKENS, spread(3, 45 * MS, 46 * MS))
    };
    with_calls(of_three(Some([43 * MS, 44 * MS]))).is_sound();
    with_calls(of_three(None)).breaks("window");
    // Tokens that came back before are in the full bucket.
    with_calls(of_three(Some([20 * MS, 21 * MS]))).breaks("window");
    // A call that has left gives them back within a deadline, unless its process stands still.
    let left = Story::new().call(told(TOKENS, 3, 0, MS, Reply::Left), &[]);
    let left = left.calls(TOKENS, spread(33, 700 * MS, 702 * MS));
    left.clone().breaks("window");
    left.note(0, 0, 690 * MS, Note::Gap(0, 2 * MS)).is_sound();
}

#[test]
fn turns_out_of_order_or_late_break_a_promise() {
    let line = |first, second| {
        let story = Story::new().call(waited(FIXED, 0, first, first), &[]);
        story.call(waited(FIXED, 20 * MS, second, second), &[])
    };
    line(300 * MS, 310 * MS).is_sound();
    line(500 * MS, 310 * MS).breaks("order");
    line(500 * MS, 310 * MS).note(0, 0, 450 * MS, Note::Reset(FIXED, 400 * MS)).is_sound();
    // A reset after both, or of another limit, excuses nothing.
    line(500 * MS, 310 * MS).note(0, 0, 950 * MS, Note::Reset(FIXED, 900 * MS)).breaks("order");
    line(500 * MS, 310 * MS).note(0, 0, 450 * MS, Note::Reset(LEDGER, 400 * MS)).breaks("order");
    let late = Story::new().call(waited(FIXED, 0, 300 * MS, 500 * MS), &[]);
    late.breaks("promise");
    // A pause of Redis, or a lowered limit, excuses it. A raised limit does not.
    let mut paused = late.clone();
    paused.outages.push((START + 250 * MS, START + 260 * MS));
    paused.is_sound();
    let changed =
        |number| late.clone().note(0, 0, 30 * MS, Note::Overrides(FIXED, number, 20 * MS));
    changed(20).is_sound();
    changed(80).breaks("promise");
    let refused = Told { reply: Reply::Refused, ..waited(FIXED, 0, 300 * MS, 200 * MS) };
    Story::new().call(refused, &[]).breaks("promise");
    // Nor does a process that stands still, unless for longer than a turn counts as promised.
    let refused = Told { reply: Reply::Refused, ..waited(FIXED, 0, 300 * MS, 1_500 * MS) };
    let still = |since| {
        let mut story = Story::new().call(Told { max_wait: 1_500 * MS, ..refused }, &[]);
        let span = (START + since, START + 1_490 * MS);
        story.gaps.push(Gap { process: Some(0), runtime: 0, span });
        story
    };
    still(700 * MS).breaks("promise");
    still(310 * MS).is_sound();
    let undecided = Told { reply: Reply::Undecided, ..waited(FIXED, 0, 300 * MS, SECOND) };
    let undecided = Story::new().call(undecided, &[]);
    assert_eq!(undecided.broken(), ["promise", "undecided"]);
    let mut stood = undecided;
    stood.gaps.push(Gap { process: Some(0), runtime: 0, span: (START + 5, START + 290 * MS) });
    stood.is_sound();
}

#[test]
fn a_call_without_an_end_or_a_decision_breaks_the_rule() {
    let refused =
        |answered| Told { max_wait: SECOND, ..told(FIXED, 1, 0, answered, Reply::Refused) };
    Story::new().call(refused(SECOND + 500 * MS), &[]).is_sound();
    Story::new().call(refused(2 * SECOND), &[]).breaks("end");
    let joint = |answered| Told { is_joint: true, ..refused(answered) };
    Story::new().call(joint(2 * SECOND + 500 * MS), &[]).is_sound();
    Story::new().call(joint(3 * SECOND), &[]).breaks("end");
    let hung = Note::Asks(CallNote { limit: FIXED, cost: 1, runtime: 1, ..CallNote::default() });
    let hung = Story::new().note(0, 1, 0, hung);
    hung.breaks("end");
    let mut killed = hung.clone();
    killed.processes[0].is_killed = true;
    killed.is_sound();
    let undecided = told(FIXED, 1, 0, 500 * MS, Reply::Undecided);
    Story::new().call(undecided, &[]).breaks("undecided");
    let mut outage = Story::new().call(undecided, &[]);
    outage.outages.push((START, START + 100 * MS));
    outage.is_sound();
    let mut impatient = Story::new().call(Told { max_wait: SECOND, ..undecided }, &[]);
    impatient.outages.push((START, START + 100 * MS));
    impatient.breaks("patience");
}
