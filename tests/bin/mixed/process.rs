//! One of the processes: tasks on two tokio runtimes that call until the end of the load.

use std::{
    future::pending,
    io::{Read, stdin},
    sync::{Arc, atomic::AtomicU64, mpsc},
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;
use harness::{
    Promises,
    mixed::{
        BLOCKS, CREDIT, LIMITS, LONGEST_WAIT, MIXED_CALLER, MIXED_DEADLINE, MixedLimit, Note,
        SPARE, TRIED,
    },
    wall_clock,
};
use ratelimit_runtime::{Limiter, OnStoreError, Override};
use tokio::{
    runtime::{Builder, Runtime},
    task::{JoinSet, yield_now},
    time::sleep,
};

use crate::{
    caller::{Caller, Question, note, policy_of, promised},
    operator::unscaled,
    plan::{BOTH, GATE, Mix, Plan},
};

/// The runtime that made the limiter, the one that is blocked, and those that end.
const MAKER: u8 = 1;
const BLOCKED: u8 = 2;
const BRIEF: u8 = 3;

/// The numbers of limits.
const LEDGER: usize = 0;
const TOKENS: usize = 1;
const FIXED: usize = 2;
const COUNTER: usize = 3;
const SLOTS: usize = 4;
const BARRED: usize = 6;

/// Calls until the end of the load, sends what is left, and ends with its standard input.
pub(crate) fn call(url: &str, number: &str, seed: &str, span: (&str, &str), mix: Mix) {
    let read = |text: &str| text.parse::<u64>().expect("a number");
    let (seed, number) = (read(seed), usize::try_from(read(number)).expect("a small number"));
    Promises::install(promised);
    let maker = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let maker = maker.expect("a runtime");
    let builder = Limiter::builder().deadline(MIXED_DEADLINE).on_store_error(OnStoreError::Deny);
    let builder = builder.on_warning(|warning| {
        let is_its = |it: &MixedLimit| it.name == warning.decision().policy();
        note(0, Note::Warned(LIMITS.iter().position(is_its).expect("one of the limits")));
    });
    let limiter = maker.block_on(async {
        loop {
            match builder.clone().connect(url).await {
                Ok(limiter) => return limiter,
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    });
    let caller = Caller {
        limiter,
        plan: Arc::new(Plan::new(seed, &mix)),
        mix: Arc::new(mix),
        number,
        from: read(span.0),
        until: read(span.1),
        calls: Arc::new(AtomicU64::new(1)),
        runtime: MAKER,
    };
    // One that follows a killed one has other calls.
    let mut random = Rng::with_seed(
        seed * 16 + number as u64 + caller.from.abs_diff(wall_clock()) / 1_000_000 * 4,
    );
    thread::spawn(watch_process);
    if caller.has("candidate") {
        let tried = Override::new().threshold(TRIED);
        caller.limiter.overrides().candidate(LIMITS[GATE].name, tried).expect("a valid candidate");
    }
    caller.limiter.overrides().here().set(LIMITS[CREDIT].name, unscaled()).expect("a valid factor");
    let until_start = caller.from.saturating_sub(wall_clock());
    thread::sleep(Duration::from_micros(until_start));
    let (ended, others_end) = mpsc::channel();
    let others = Caller { runtime: BLOCKED, ..caller.clone() };
    let mut fork = random.fork();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            others.all_tasks(&mut fork).await;
            ended.send(()).expect("the process waits for it");
            // A runtime of its service stays.
            pending::<()>().await;
        });
    });
    if caller.has("runtimes") {
        let (caller, random) = (Caller { runtime: BRIEF, ..caller.clone() }, random.fork());
        thread::spawn(move || caller.brief_runtimes(random));
    }
    maker.block_on(caller.all_tasks(&mut random));
    others_end.recv().expect("the other runtime ends too");
    let unsent = maker.block_on(caller.limiter.flush()).err().map_or(0, |error| error.unsent());
    if let Some(tried) = caller.limiter.overrides().candidates().pop() {
        note(0, Note::Tried(tried.newly_admitted, tried.refused_otherwise));
    }
    note(0, Note::Flushed(unsent.try_into().expect("a small number")));
    let _ = stdin().read_to_end(&mut Vec::new());
}

/// Notes the times in which the whole process stood still.
fn watch_process() {
    const NAP: Duration = Duration::from_millis(2);
    loop {
        let (from, start) = (wall_clock(), Instant::now());
        thread::sleep(NAP);
        if start.elapsed() > 4 * NAP {
            note(0, Note::Gap(0, from));
        }
    }
}

impl Caller {
    /// Runs all tasks of this runtime until their calls have ended.
    async fn all_tasks(&self, random: &mut Rng) {
        let mut tasks = JoinSet::new();
        let watch = tokio::spawn(watch_runtime(self.runtime));
        for _ in 0..2 {
            tasks.spawn(self.clone().lease(random.fork()));
            if self.has("wait") {
                tasks.spawn(self.clone().wait(random.fork()));
            }
            if self.has("permits") {
                tasks.spawn(self.clone().take_permits(random.fork()));
            }
        }
        tasks.spawn(self.clone().plain(random.fork()));
        if self.has("local") {
            tasks.spawn(self.clone().alone(random.fork()));
        }
        if self.runtime == MAKER {
            tasks.spawn(self.clone().operate());
        }
        if self.runtime == BLOCKED && self.has("blocked") {
            tasks.spawn(self.clone().block(random.fork()));
        }
        while let Some(task) = tasks.join_next().await {
            task.expect("no panic");
        }
        watch.abort();
    }

    /// Returns `true` for a third of the calls of a limit with plans.
    fn is_small(&self, limit: usize, random: &mut Rng) -> bool {
        self.has("plans") && LIMITS[limit].plans().is_some() && random.u8(..3) == 0
    }

    /// Returns the share of a limit with windows of which the caller is warned, 0 for half of the calls.
    fn warn_at(&self, limit: usize, random: &mut Rng) -> u32 {
        let may_warn = self.has("warn") && limit != SLOTS;
        if may_warn { [0, 0, 50, 80][random.usize(..4)] } else { 0 }
    }

    /// The microseconds since the start of the load.
    fn since_start(&self) -> u64 {
        wall_clock().saturating_sub(self.from)
    }

    async fn pause(&self, random: &mut Rng, longest: u64) {
        sleep(Duration::from_micros(random.u64(..longest))).await;
    }

    /// Calls without a wait of a limit with leases, which take units on lease in turn.
    async fn lease(self, mut random: Rng) {
        while !self.is_over() {
            let is_rest = self.plan.is_rest(self.since_start());
            let limit = if is_rest || random.u8(..4) == 0 { TOKENS } else { LEDGER };
            let (cost, is_leased) = (random.u32(1..=2), self.has("lease"));
            let warn_at = self.warn_at(limit, &mut random);
            let question = Question { limit, cost, is_leased, warn_at, ..Question::default() };
            let body = Duration::from_millis(random.u64(..40));
            self.call(question, &mut random, body).await;
            self.pause(&mut random, 50_000).await;
        }
    }

    /// Bursts of calls that wait for one limit, of which some leave.
    async fn wait(self, mut random: Rng) {
        while !self.is_over() {
            let is_storm = self.plan.is_storm(self.since_start());
            let limit = match random.u8(..12) {
                0..8 if is_storm => LEDGER,
                0..3 => TOKENS,
                3..6 => FIXED,
                6..9 => COUNTER,
                _ => BOTH,
            };
            let mut calls = JoinSet::new();
            for _ in 0..random.u8(1..8) {
                let leaves = self.has("cancel") && random.u8(..5) == 0;
                let leaves = leaves.then(|| Duration::from_millis(random.u64(..900)));
                let max_wait = patience(&mut random);
                let cost = random.u32(1..=3);
                let is_trial = is_storm && random.bool();
                let is_small = self.is_small(limit, &mut random);
                let question = Question {
                    limit,
                    cost,
                    max_wait,
                    is_small,
                    warn_at: self.warn_at(limit, &mut random),
                    is_trial,
                    leaves,
                    ..Question::default()
                };
                let (caller, mut random) = (self.clone(), random.fork());
                calls.spawn(async move {
                    let body = Duration::from_millis(random.u64(..60));
                    caller.call(question, &mut random, body).await;
                });
            }
            while let Some(call) = calls.join_next().await {
                call.expect("no panic");
            }
            self.pause(&mut random, 150_000).await;
        }
    }

    /// Calls that wait for a permit, one after another.
    async fn take_permits(self, mut random: Rng) {
        while !self.is_over() {
            let max_wait = patience(&mut random).max(Duration::from_secs(1));
            let question = Question { limit: SLOTS, cost: 1, max_wait, ..Question::default() };
            let body = Duration::from_millis(random.u64(5..40));
            self.call(question, &mut random, body).await;
            // An answer may come at once.
            self.pause(&mut random, 2_000).await;
        }
    }

    /// Calls of the limit with a share for each process: some while Redis decides them, and more while it is away.
    async fn alone(self, mut random: Rng) {
        while !self.is_over() {
            let (limit, cost) = (SPARE, random.u32(1..=2));
            let question = Question { limit, cost, ..Question::default() };
            let is_here = self.call(question, &mut random, Duration::ZERO).await;
            self.pause(&mut random, if is_here { 10_000 } else { 500_000 }).await;
        }
    }

    /// Calls that do not wait, peeks, repeated ids, and two limits together.
    async fn plain(self, mut random: Rng) {
        let mut last_id = 0;
        while !self.is_over() {
            let limit = if random.u8(..4) == 0 { BARRED } else { random.usize(..SPARE) };
            let cost = if limit == SLOTS { 1 } else { random.u32(1..=3) };
            let mut question = Question { limit, cost, ..Question::default() };
            let body = Duration::from_millis(random.u64(..30));
            if self.plan.is_storm(self.since_start()) && random.bool() {
                (question.limit, question.is_trial) = (LEDGER, true);
            }
            question.warn_at = self.warn_at(question.limit, &mut random);
            match random.u8(..7) {
                0 if self.has("peek") => {
                    let _ = self.limiter.peek(&policy_of(&question), MIXED_CALLER).await;
                }
                1 if self.has("ids") => {
                    question.limit = LEDGER;
                    if last_id == 0 || random.bool() {
                        last_id = random.u64(1..1 << 40);
                    }
                    question.cost = 1;
                    question.id = last_id;
                    self.call(question, &mut random, body).await;
                }
                2 if self.has("together") => {
                    let max_wait =
                        if self.has("wait") { patience(&mut random) } else { Duration::ZERO };
                    let first = Question { limit: TOKENS, max_wait, ..question };
                    let limit = [FIXED, COUNTER, BOTH, BARRED][random.usize(..4)];
                    let mut second = Question { limit, ..question };
                    if limit == BARRED && self.has("block") {
                        second.blocks = random.usize(..BLOCKS.len());
                    }
                    self.call_both([first, second], &mut random, body).await;
                }
                3 if self.has("outage") => {
                    question = Question { limit: GATE, cost, ..Question::default() };
                    self.call(question, &mut random, Duration::ZERO).await;
                }
                4 if self.has("first") => {
                    let limit = [FIXED, COUNTER, BARRED][random.usize(..3)];
                    let first = Question { limit, ..question };
                    let limit = if random.u8(..3) == 0 { LEDGER } else { CREDIT };
                    let second = Question { limit, ..question };
                    self.call_first([first, second], &mut random, body).await;
                }
                _ => {
                    if question.limit == BARRED && self.has("block") {
                        question.blocks = random.usize(..BLOCKS.len());
                        question.is_trial = random.bool();
                    } else if self.has("leave") {
                        question.leave = [0, 20, 50][random.usize(..3)];
                    }
                    question.is_small = self.is_small(question.limit, &mut random);
                    self.call(question, &mut random, body).await;
                }
            }
            self.pause(&mut random, 60_000).await;
        }
    }

    /// Blocks the thread of its runtime for a while.
    async fn block(self, mut random: Rng) {
        while !self.is_over() {
            self.pause(&mut random, 1_500_000).await;
            thread::sleep(Duration::from_millis(random.u64(20..350)));
        }
    }

    /// Calls on runtimes that end, some of them while calls wait.
    fn brief_runtimes(self, mut random: Rng) {
        while self.until > wall_clock() + 2_000_000 {
            let runtime: Runtime =
                Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                tokio::spawn(watch_runtime(self.runtime));
                for _ in 0..random.u8(1..4) {
                    let limit = [TOKENS, COUNTER, BOTH][random.usize(..3)];
                    let question = Question { limit, cost: 1, ..Question::default() };
                    self.call(question, &mut random, Duration::from_millis(10)).await;
                }
                // A gap at the end is noted too.
                yield_now().await;
            });
            drop(runtime);
            thread::sleep(Duration::from_millis(random.u64(..800)));
        }
    }
}

/// Returns the longest wait of a call.
fn patience(random: &mut Rng) -> Duration {
    Duration::from_millis(random.u64(300..=LONGEST_WAIT.as_millis().try_into().unwrap_or(0)))
}

/// Notes the times in which the runtime stood still.
async fn watch_runtime(runtime: u8) {
    const NAP: Duration = Duration::from_millis(5);
    loop {
        let (from, start) = (wall_clock(), Instant::now());
        sleep(NAP).await;
        if start.elapsed() > 3 * NAP {
            note(0, Note::Gap(runtime, from));
        }
    }
}
